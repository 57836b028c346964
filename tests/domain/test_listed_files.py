"""A run's files and logs: what is listed, with which role, and what is never opened."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from experiments import selectors
from experiments.files import runfiles
from experiments.models import Bundle, TrainingRun
from tests.domain.test_selectors import node, run
from training_runtime.host.runs import workdir

__all__ = ["node", "run"]  # fixtures

pytestmark = pytest.mark.django_db


@pytest.fixture
def folder(run: TrainingRun, tmp_path: Path) -> Path:
    """A run's folder, as friendly and as hostile as a folder can be."""
    folder = runfiles.make(run)
    for path, text in {
        "journal.jsonl": "",
        "model/model_epoch_1.pth": "weights",
        "checkpoint/engine.pt": "state",
        "checkpoint/.lock": "",
        "checkpoint/.rendezvous.json": "a secret of the run's machines",
        "log/driver/console.log": "".join(f"line {n}\n" for n in range(1000)),
        "log/worker-10/console.log": "ten",
        "log/worker-2/console.log": "two",
        "tmp/scratch": "x",
        "deep/er/file.txt": "deep",
    }.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("secret")
    (secret / "console.log").write_text("secret")
    (folder / "link").symlink_to(secret / "key")
    (folder / "linked").symlink_to(secret)
    (folder / "log" / "worker-3").symlink_to(secret)
    os.mkfifo(folder / "pipe")
    return folder


def test_files_are_the_regular_ones_with_their_roles(run: TrainingRun, folder: Path) -> None:
    assert [(f.path, f.role) for f in selectors.files(run)] == [
        ("checkpoint/engine.pt", "checkpoint"),
        ("deep/er/file.txt", "other"),
        ("journal.jsonl", "journal"),
        ("log/driver/console.log", "log"),
        ("log/worker-2/console.log", "log"),
        ("log/worker-10/console.log", "log"),
        ("model/model_epoch_1.pth", "model"),
    ]
    assert len(selectors.files(run, limit=3)) == 3


def test_of_the_working_folder_what_the_script_has_written_is_listed_and_after_all_else(
    run: TrainingRun, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, work = tmp_path / "code", folder / "_submitted_code" / "digits"
    code.mkdir()
    for name in ("main.py", "config.yaml", *(f"lib{n}.py" for n in range(30))):
        (code / name).write_text("as uploaded")
    work.parent.mkdir()
    workdir.make(code, work)
    (work / "config.yaml").write_text("lr: 0.1")
    (work / "outputs").mkdir()
    (work / "outputs" / "model.pt").write_text("weights")
    found = [file.path for file in selectors.files(run)]
    assert [path for path in found if path.startswith("_")] == [
        "_submitted_code/digits/config.yaml",
        "_submitted_code/digits/outputs/model.pt",
    ]
    monkeypatch.setattr(runfiles, "MOST_LOOKED", 40)  # what is looked at is bounded, and the code may be all of it
    assert "model/model_epoch_1.pth" in [file.path for file in selectors.listed(run, limit=12).files]


def test_what_a_script_has_written_behind_ten_thousand_files_of_code_is_listed(run: TrainingRun, folder: Path, tmp_path: Path) -> None:
    code, work = tmp_path / "code", folder / "_submitted_code" / "digits"
    for part in range(100):
        (code / f"part{part:02}").mkdir(parents=True)
        for number in range(100):
            (code / f"part{part:02}" / f"{number}.py").touch()
    Bundle.objects.filter(pk=run.version.bundle_id).update(entries=10_000)
    work.parent.mkdir()
    workdir.make(code, work)
    assert sum(1 for path in work.rglob("*.py") if not path.is_symlink()) == 10_000
    for path in ("part50/deep/er/weights.pt", "zz/last.txt", "part99/99.py"):
        (work / path).parent.mkdir(parents=True, exist_ok=True)
        (work / path).write_text("written by the script")
    found = selectors.listed(TrainingRun.objects.get(pk=run.pk))
    assert [file.path.removeprefix("_submitted_code/digits/") for file in found.files if file.path.startswith("_")] == [
        "part50/deep/er/weights.pt",
        "part99/99.py",
        "zz/last.txt",
    ]
    assert not [said for said in found.missing if "Only" in said]


def test_a_listed_file_can_be_opened(run: TrainingRun, folder: Path) -> None:
    for found in selectors.files(run):
        file, size = selectors.open_file(run, found.path)
        with file:
            assert len(file.read()) == size == found.size_bytes


@pytest.mark.parametrize(
    "path",
    [
        "",
        ".",
        "..",
        "../secret/key",
        "/etc/passwd",
        "link",
        "linked/key",
        "pipe",
        "model",
        "missing",
        "model/../link",
        "model//model_epoch_1.pth",
        "model/model_epoch_1.pth/",
        "checkpoint/.rendezvous.json",
        "a\0b",
        "x/" * 100 + "x",
        "n" * 5000,
        "\udcff",
    ],
)
def test_nothing_else_can_be_opened(run: TrainingRun, folder: Path, path: str) -> None:
    with pytest.raises(FileNotFoundError):
        selectors.open_file(run, path)


def test_logs_are_named_and_followed(run: TrainingRun, folder: Path) -> None:
    assert selectors.log_names(run) == ["driver", "worker-2", "worker-10"]
    tail = selectors.log_tail(run, "driver", lines=3)
    assert tail.text == "line 997\nline 998\nline 999\n"
    assert tail.end == tail.size_bytes == (folder / "log/driver/console.log").stat().st_size
    with (folder / "log/driver/console.log").open("a") as file:
        file.write("more\0 \x1b[31m")
    more = selectors.log_tail(run, "driver", offset=tail.end)
    assert more.text == "more\N{REPLACEMENT CHARACTER} \x1b[31m"
    assert (more.begin, more.end) == (tail.end, more.size_bytes)
    assert selectors.log_tail(run, "driver", offset=more.end).text == ""
    assert selectors.log_tail(run, "driver", offset=0, limit_bytes=6).text == "line 0"
    assert selectors.log_tail(run, "driver", lines=5000, limit_bytes=100).text.startswith("line 99")


@pytest.mark.parametrize("name", ["worker-3", "worker-99", "..", "../../etc", "", "a/b", "\0"])
def test_other_logs_are_empty(run: TrainingRun, folder: Path, name: str) -> None:
    assert selectors.log_tail(run, name) == selectors.LogTail("", 0, 0, 0)


def test_a_run_without_a_folder_has_nothing(run: TrainingRun) -> None:
    assert (selectors.files(run), selectors.log_names(run), selectors.log_tail(run, "driver").text) == ([], [], "")
