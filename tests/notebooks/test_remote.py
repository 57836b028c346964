"""A run of the studio as a cell follows it, when all is not well."""

from __future__ import annotations

from typing import Any

import pytest

from edt_client.credentials import Studio
from edt_client.errors import NoAnswer
from edt_client.studio import Client
from training_runtime.fabric.notebook import kernel
from training_runtime.fabric.notebook.remote import Remote, notebook_name, of_rows, read
from training_runtime.fabric.notebook.seen import Seen

JOB = {"runState": "running", "reason": "", "step": 5, "steps": 0, "epoch": 1, "epochs": 3, "workers": 2, "rate": 0.0}


def test_a_studio_that_does_not_answer_is_asked_again() -> None:
    remote = Remote(Client(Studio("http://127.0.0.1:9", "t")), "wmla-1", "http://127.0.0.1:9/runs/1/")
    seen = remote.look()
    assert not seen.ended
    assert "cannot be reached" in seen.problem
    assert seen.problem.endswith("The run goes on; this cell tries again.")
    assert "could not be stopped: http://127.0.0.1:9 cannot be reached" in remote.stop()
    assert remote.log_tail() == ""


def test_what_is_not_known_is_0_there_and_none_here() -> None:
    assert read(JOB) == Seen("running", "", 5, None, 1, 3, 2, None)


@pytest.mark.parametrize("wrong", [{"step": None}, {"runState": "running", "step": "many"}, {"workers": []}])
def test_a_studio_of_another_version_is_told_from_one_that_does_not_answer(wrong: dict[str, Any]) -> None:
    with pytest.raises(NoAnswer, match="another version"):
        read({**JOB, **wrong})
    with pytest.raises(NoAnswer, match="another version"):
        read({"id": "wmla-1", "state": "RUNNING"})


def test_rows_become_curves() -> None:
    curves = of_rows({"train": [{"iteration": 1, "ml_metrics": {"loss": 2}}, {"iteration": 2, "ml_metrics": {"loss": 1}}], "test": []})
    assert [(curve.steps, curve.values) for curve in curves.values()] == [([1, 2], [2.0, 1.0])]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/home/alice/My digits (2).ipynb", "My-digits-2"),
        ("", "notebook"),
        ("/x/--.ipynb", "notebook"),
        ("/x/" + "n" * 99 + ".ipynb", "n" * 60),
    ],
)
def test_a_run_is_called_after_its_notebook(monkeypatch: pytest.MonkeyPatch, path: str, name: str) -> None:
    monkeypatch.setenv("JPY_SESSION_NAME", path)
    assert notebook_name() == name


def test_a_test_is_no_notebook() -> None:
    assert not kernel.running()
