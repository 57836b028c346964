"""A program of a package in the place of a script: `yolo detect train`, `nnUNetv2_train 1 2d 0`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from training_runtime.elastic.driver import programs

TRAINS = """#!{python}
import json, os, sys
if __name__ == "__main__":
    with open(os.environ["RESULT_DIR"] + "/said", "w") as file:
        json.dump([sys.argv[1:], os.getcwd(), sys.path[0], __name__], file)
    print("step 3 loss: 0.5")
    sys.exit(int(sys.argv[1]))
"""
BY_A_SHELL = """#!/bin/sh
'''exec' "{python}" "$0" "$@"
'''
import os, pathlib
pathlib.Path(os.environ["RESULT_DIR"], "said").write_text("[]")
"""


def installed(folder: Path, name: str, text: str) -> dict[str, str]:
    """The environment of a run whose packages have this program."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(text.format(python=sys.executable))
    path.chmod(0o755)
    return {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}


@pytest.mark.parametrize("code", [0, 3])
def test_it_is_run_as_the_script_and_the_runs_code_is_its_folder(start, tmp_path, code):
    env = installed(tmp_path / "bin", "trains", TRAINS)
    run = start("", str(code), "data=digits.yaml", script="trains", elastic=False, max_slots=1, env=env)
    run.members(0)
    assert run.wait() == code, run.tail()
    folder = str(run.code_dir)
    assert json.loads((run.result_dir / "said").read_text()) == [[str(code), "data=digits.yaml"], folder, folder, "__main__"]
    assert [event.metrics for event in run.events("logged")] == [{"loss": 0.5}]


def test_one_whose_interpreter_has_a_long_path_is_run_too(start, tmp_path):
    run = start("", script="trains", elastic=False, max_slots=1, env=installed(tmp_path / "bin", "trains", BY_A_SHELL))
    run.members(0)
    assert run.wait() == 0, run.tail()
    assert (run.result_dir / "said").exists()


def test_one_that_no_package_of_the_run_has_is_said_with_what_to_do(start):
    run = start("", script="trains", elastic=False, max_slots=1)
    run.members(0)
    assert run.wait() == 1, run.tail()
    (error,) = run.events("error")
    assert error.message.startswith("trains is no program of the run's packages: name the package that it comes with in requirements.txt")
    assert error.message in run.log.read_text()


@pytest.mark.parametrize("text", ["#!/bin/sh\necho python3 is not asked\n\n", "\x7fELF", "import python"])
def test_what_is_no_python_is_no_program(tmp_path, monkeypatch, text):
    monkeypatch.setenv("PATH", installed(tmp_path, "other", text)["PATH"])
    assert programs.path_of("other") is None
