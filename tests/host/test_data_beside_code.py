"""What scripts of tutorials call ./data or ../data has what is in the run's data folder."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.host.conftest import HostUnderTest
from training_runtime.host.runs import data_beside_code


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data of people"
    (folder / "MNIST" / "raw").mkdir(parents=True)
    (folder / "MNIST" / "raw" / "labels").write_text("7")
    (folder / "letters.csv").write_text("a,b\n")
    return folder


def linked(tmp_path: Path, data: Path, text: str, *, folders: tuple[str, ...] = ()) -> dict[str, list[str]]:
    """By the path of each folder that was made beside or in the working folder, what is in it."""
    code, work = tmp_path / "code", tmp_path / "run" / "_submitted_code" / "mnist"
    code.mkdir()
    work.mkdir(parents=True)
    (code / "main.py").write_text(text)
    for name in folders:
        for at in (code, work):
            (at / name).mkdir()
    data_beside_code.link(data, code, work)
    top = work.parent
    found = sorted(path for path in (*top.iterdir(), *work.iterdir()) if path != work)
    return {path.relative_to(top).as_posix(): sorted(each.name for each in path.iterdir()) for path in found}


BOTH = ["MNIST", "letters.csv"]


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("set1 = datasets.MNIST('../data', train=True, download=True)", {"data": BOTH}),
        ('CIFAR10(root="./data", train=True)', {"mnist/data": BOTH}),
        ("FashionMNIST(root = 'data', train=True)", {"mnist/data": BOTH}),
        ("read('./data/letters.csv'); read('../dataset/x')", {"dataset": BOTH, "mnist/data": BOTH}),
        ("read('./datasets/')", {"mnist/datasets": BOTH}),
        ("batch['data']; read('mydata/x'); read('./database'); read('/data/x')", {}),
        ("os.mkdir('./data')\nMNIST('./data')", {}),
        ("if not os.path.exists('./data'):\n    os.makedirs('./data')\nMNIST('./data')", {"mnist/data": BOTH}),
        ("os.makedirs('./data', exist_ok=True)", {"mnist/data": BOTH}),
    ],
)
def test_it_is_there_where_a_script_names_it_and_does_not_mind(text: str, places: dict[str, list[str]], data: Path, tmp_path: Path) -> None:
    assert linked(tmp_path, data, text) == places


def test_a_folder_of_the_code_itself_stays_as_it_was_uploaded(data: Path, tmp_path: Path) -> None:
    assert linked(tmp_path, data, "read('./data/x'); read('../data/x')", folders=("data",)) == {"data": BOTH, "mnist/data": []}


def test_a_run_that_is_called_data_is_not_its_own_data(data: Path, tmp_path: Path) -> None:
    code, work = tmp_path / "code", tmp_path / "run" / "data"
    code.mkdir()
    work.mkdir(parents=True)
    (code / "main.py").write_text("read('../data/x')")
    data_beside_code.link(data, code, work)
    assert not list(work.iterdir())


def test_a_folder_with_very_much_in_it_is_left_to_scripts_that_know_of_it(data: Path, tmp_path: Path) -> None:
    for number in range(data_beside_code.MOST_ENTRIES):
        (data / str(number)).touch()
    assert linked(tmp_path, data, "read('../data/x')") == {}


def test_elsewhere_links_lead_to_the_data_that_is_there_and_what_the_script_wrote_stays(data: Path, tmp_path: Path) -> None:
    linked(tmp_path, data, "read('../data/x')")
    place = tmp_path / "run" / "_submitted_code" / "data"
    (place / "own.txt").write_text("mine")
    (place / "letters.csv").unlink()
    (place / "letters.csv").write_text("mine, too")
    moved = tmp_path / "elsewhere"
    shutil.move(data, moved)
    data_beside_code.link(moved, tmp_path / "code", place.parent / "mnist")
    assert (place / "MNIST/raw/labels").read_text() == "7"
    assert (place / "own.txt").read_text() == "mine"
    assert (place / "letters.csv").read_text() == "mine, too"


SCRIPT = """
from pathlib import Path
print("label", Path("../data/MNIST/raw/labels").read_text())
Path("../data/cache").write_text("may be written to")
"""


def test_a_run_reads_it_and_writes_beside_it_and_the_data_stays(host: HostUnderTest, data: Path) -> None:
    spec = host.spec(7, "script", "main.py", code={"main.py": SCRIPT})
    shutil.copytree(data, spec.data_dir, dirs_exist_ok=True)
    host.want(spec)
    host.apply()
    assert host.until_run(7, lambda seen: seen.state == "exited").exit_code == 0, host.console(7)
    assert "label 7" in host.console(7)
    assert sorted(path.name for path in Path(spec.data_dir).iterdir()) == BOTH
    assert (host.result(7) / "_submitted_code" / "data" / "cache").is_file()
