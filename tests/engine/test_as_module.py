"""Scripts that are begun as `python -m` does it: modules of the code, and of packages."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engine.harness import DEADLINE_S, Run, weights
from tests.engine.scripts import SMALL
from tests.host.conftest import HostUnderTest, make_host  # noqa: F401 - a fixture

TRAINS = """
import json, os, random, sys
from letters.words import NAME
from . import words
with open(os.environ["RESULT_DIR"] + "/said", "w") as file:
    json.dump([__name__, __package__, __spec__.name, sys.path[0], sys.argv, NAME, words.BEGUN, random.random() < 1], file)
"""
LOADS = """
import torch
from . import words
class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, i):
        return i
if __name__ == "__main__":
    loader = torch.utils.data.DataLoader(Numbers(), num_workers=1, multiprocessing_context="spawn")
    print("sum", sum(int(each) for each in loader))
"""


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """A package with a file that is called like a module of Python's."""
    folder = tmp_path / "code"
    (folder / "letters").mkdir(parents=True)
    (folder / "letters" / "__init__.py").write_text("BEGUN = True\n")
    (folder / "letters" / "words.py").write_text("from letters import BEGUN\nNAME = __name__\n")
    (folder / "letters" / "random.py").write_text("raise AssertionError('beside the script, and not of Python')\n")
    return folder


def ended(run: Run, code: int = 0) -> Run:
    run.members(0)
    assert run.wait() == code, run.tail()
    return run


@pytest.mark.parametrize("options", [{}, {"torchrun": "fixed"}], ids=["one process", "torchrun"])
@pytest.mark.parametrize(
    ("module", "script", "name"),
    [("letters.train", "letters/train.py", "letters.train"), ("letters", "letters/__main__.py", "letters.__main__")],
)
def test_a_module_of_the_code_finds_what_python_finds(start, code, options, module, script, name):
    (code / script).write_text(TRAINS)
    run = ended(start(code, "--epochs", "3", script=script, module=module, elastic=False, max_slots=1, **options))
    argv = [str(code / script), "--epochs", "3"]
    assert json.loads((run.result_dir / "said").read_text()) == ["__main__", "letters", name, str(code), argv, "letters.words", True, True]


def test_processes_that_load_its_data_begin_as_it_does(start, code):
    (code / "letters" / "train.py").write_text(LOADS)
    run = ended(start(code, script="letters/train.py", module="letters.train", elastic=False, max_slots=1))
    assert "sum 6" in run.log.read_text()


@pytest.mark.parametrize("way", ["fork", "spawn"])
def test_its_workers_have_the_weights_of_those_of_a_script(start, code, way):
    options = {"max_slots": 2, "env": {"EDT_START_METHOD": way}}
    (code / "letters" / "train.py").write_text(f"from letters import BEGUN\n{SMALL}")
    found = []
    for run in (start(SMALL, **options), start(code, script="letters/train.py", module="letters.train", **options)):
        run.members(0, 1)
        assert run.wait() == 0, run.tail()
        found.append(weights(run.result_dir))
    assert found[0] == found[1]


def test_a_module_of_a_package_is_run_with_the_code_as_its_folder(start, tmp_path):
    code = tmp_path / "code"
    code.mkdir()
    (code / "config.json").write_text('{"epochs": 3}')
    ended(start(code, "config.json", "neat.json", "--indent", "1", script="json.tool", module="json.tool", elastic=False, max_slots=1))
    assert (code / "neat.json").read_text() == '{\n "epochs": 3\n}\n'


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nowhere.train", "No module named 'nowhere'. The package nowhere is not installed where scripts run: add a line nowhere to"),
        ("json.nowhere", "No module named 'json.nowhere'. The package json is installed, in a version that has no json.nowhere"),
        ("json", "json is a package without a __main__.py, so it cannot be run: name one of its modules"),
    ],
)
def test_one_that_is_not_there_is_said_with_what_to_do(start, name, says):
    run = ended(start("", script=name, module=name, elastic=False, max_slots=1), code=1)
    (error,) = run.events("error")
    assert says in error.message


def test_a_script_in_a_folder_that_imports_from_the_top_is_told_to_begin_as_a_module(start, code):
    (code / "letters" / "train.py").write_text("import letters.words\n")
    run = ended(start(code, script="letters/train.py", elastic=False, max_slots=1), code=1)
    (error,) = run.events("error")
    assert "No module named 'letters'. letters lies at the top of the upload" in error.message
    assert "python -m letters.train" in error.message


def test_a_module_that_imports_what_lies_beside_it_is_told_to_begin_as_a_script(start, code):
    (code / "letters" / "train.py").write_text("import words\n")
    run = ended(start(code, script="letters/train.py", module="letters.train", elastic=False, max_slots=1), code=1)
    (error,) = run.events("error")
    assert "No module named 'words'. words lies beside the script, and python -m looks for modules at the top" in error.message
    assert "Begin the command with letters/train.py" in error.message


CALLS_ITSELF = """
from letters.words import NAME
from . import words
assert words.NAME == NAME == "letters.words"
print("read", open("letters/config.txt").read(), __file__)
"""


@pytest.mark.parametrize(("module", "script"), [("letters.train", "train.py"), ("letters", "__main__.py")])
def test_the_only_folder_of_an_upload_is_found_by_its_name(
    tmp_path: Path,
    make_host: Callable[[Path], HostUnderTest],  # noqa: F811
    module: str,
    script: str,
) -> None:
    """Which the studio takes off: the code is what is in it."""
    host = make_host(tmp_path)
    host.start(driver="training_runtime.elastic.driver.main:main", preload="torch,numpy")
    code = {"__init__.py": "", "words.py": "NAME = __name__", "config.txt": "lr", script: CALLS_ITSELF}
    spec = dataclasses.replace(host.spec(7, script, code=code), module=module, elastic=False, max_slots=1)
    for attempt in (1, 2):
        host.want(dataclasses.replace(spec, run=spec.run, attempt=attempt), 1)
        host.apply()
        ended = host.until_run(7, lambda run, attempt=attempt: run.state == "exited" and run.attempt == attempt, deadline_s=DEADLINE_S)
        assert ended.exit_code == 0, host.console(7)
        assert f"/letters/{script}" in host.console(7).split("read lr ", 1)[1]
    assert not Path(spec.code_dir, "letters").exists()
