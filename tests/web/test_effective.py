"""What runs computed with: arguments with their defaults, seed, code and packages; on the run's page, by the API and compared."""

from __future__ import annotations

from typing import Any

import pytest
from django.urls import reverse
from django.utils import timezone

from experiments import services
from experiments.definitions.script_argument import Argument
from experiments.metrics import ingest
from experiments.models import LoggedFacts, Project, TrainingRun, User
from experiments.selectors import compare
from experiments.selectors.effective import Effective, effective, facts_of, together
from tests import cast
from tests.conftest import SentMessages
from tests.web import api
from tests.web.conftest import As
from tests.web.text import one_line
from training_runtime.noted import Setup

SCRIPT = """import argparse
p = argparse.ArgumentParser()
p.add_argument("-l", "--lr", type=float, default=0.1)
p.add_argument("--batch-size", type=int, default=32)
p.add_argument("--amp", action="store_true")
p.add_argument("--note")
"""
DECLARED = (
    Argument(("--lr", "-l"), "number", "0.1", ""),
    Argument(("--batch-size",), "whole", "32", ""),
    Argument(("--amp",), "flag", "off", ""),
    Argument(("--bias",), "flag", "on", "", off="--no-bias"),
    Argument(("--workers",), "text", None, "", computed="os.cpu_count()"),
    Argument(("--note",), "text", None, ""),
)


def shown(found: list[Effective]) -> dict[str, tuple[str, bool]]:
    return {each.name: (each.value, each.given) for each in found}


def test_declared_defaults_stand_beside_what_the_command_says() -> None:
    told = {"l": "0.3", "no-bias": "given", "amp": "given", "seed": "7", "argument 1": "data"}
    assert shown(together(DECLARED, told, {})) == {
        "--lr": ("0.3", True),
        "--batch-size": ("32", False),
        "--amp": ("on", True),
        "--bias": ("off", True),
        "--workers": ("os.cpu_count()", False),
        "--seed": ("7", True),
        "argument 1": ("data", True),
    }


def test_what_the_script_parsed_counts_before_all_else() -> None:
    parsed = {"lr": "0.30000001", "batch_size": "32", "amp": "off", "bias": "off", "workers": "8", "folder": "data", "cfg": "a.yaml"}
    assert shown(together(DECLARED, {"l": "0.3", "no-bias": "given", "argument 1": "data", "rest": "1"}, parsed)) == {
        "--lr": ("0.30000001", True),
        "--batch-size": ("32", False),
        "--amp": ("off", False),
        "--bias": ("off", True),
        "--workers": ("8", False),
        "--folder": ("data", False),
        "--cfg": ("a.yaml", False),
        "--rest": ("1", True),
    }
    assert shown(together((), {"batch-size": "8"}, {"batch_size": "8"})) == {"--batch-size": ("8", True)}


@pytest.fixture
def runs(project: Project, alice: User, said: SentMessages) -> list[TrainingRun]:
    """Two of one experiment: one said its rate, the other left it at the default and noted what it parsed."""
    version = cast.definition(project, by=alice, files={"main.py": SCRIPT}, command="main.py")
    commands = ["main.py --lr 0.3", "main.py --batch-size 64"]
    made = services.create_experiment(project, by=alice, name="rates", versions=[version] * 2, commands=commands)
    first, second = services.run_experiment(made, by=alice)
    setups = Setup.of({"lr": "0.1", "batch_size": "64", "amp": "off"}, {"torch": "2.13.0", "numpy": "2.4"}, python="3.11.7", seed=9)
    cast.write_journal(second, *setups, cast.started())
    ingest.catch_up(second.pk, now=timezone.now())
    return [first, second]


def test_what_a_run_noted_is_kept_and_the_seed_of_train_counts(runs: list[TrainingRun]) -> None:
    facts = LoggedFacts.objects.get(run=runs[1])
    assert (facts.python, facts.seed, facts.packages["torch"]) == ("3.11.7", 1, "2.13.0")
    cast.write_journal(runs[1], Setup({"lr": "0\0.2"}, {"scipy": "1"}, "3.11.8" * 20, 2**80))
    ingest.catch_up(runs[1].pk, now=timezone.now())
    facts.refresh_from_db()
    assert (facts.arguments["lr"], facts.arguments["batch_size"], facts.seed, len(facts.python)) == ("0.2", "64", 1, 40)
    assert set(facts.packages) == {"torch", "numpy", "scipy"}


def test_a_default_is_compared_with_a_value(runs: list[TrainingRun]) -> None:
    rows = {row.name: row for row in compare.table(runs, now=timezone.now())}
    assert (rows["--lr"].values, rows["--lr"].differs) == (["0.3", "0.1"], True)
    assert rows["--batch-size"].values == ["32", "64"]
    assert (rows["--amp"].values, rows["--amp"].differs) == (["off", "off"], False)
    assert rows["Seed"].values == [None, "1"]
    assert rows["torch"].values == [None, "2.13.0"]
    assert not rows["Code"].differs
    assert {"--lr", "--batch-size"} <= {axis.name for axis in compare.parallel(list(rows.values()))}


def test_the_runs_page_says_what_was_a_default_and_what_it_had(runs: list[TrainingRun], alice: User, as_: As) -> None:
    page = as_(alice).get(reverse("run_overview", args=[runs[0].pk])).content.decode()
    assert '<bdi>32</bdi> <span class="quiet">default</span>' in one_line(page)
    assert "was not noted" in page
    page = as_(alice).get(reverse("run_overview", args=[runs[1].pk])).content.decode()
    for words in ("As its script parsed them.", "<dt>Seed</dt><dd>1</dd>", "<code>torch</code></dt><dd><bdi>2.13.0</bdi>", "3.11.7"):
        assert words in page


def test_a_script_asks_what_a_run_computed_with(runs: list[TrainingRun], alice: User) -> None:
    found: dict[str, Any] = api.of(alice, "read").get(f"/runs/{runs[1].pk}/setup").json()
    assert {each["name"]: (each["value"], each["given"], each["parsed"]) for each in found["arguments"]} == {
        "--lr": ("0.1", False, True),
        "--batch-size": ("64", True, True),
        "--amp": ("off", False, True),
    }
    assert (found["seed"], found["python"], found["packages"]["numpy"], found["git_commit"]) == (1, "3.11.7", "2.4", "")
    assert len(found["code_sha256"]) == 64


def test_a_run_whose_script_cannot_be_read_has_what_its_command_says(runs: list[TrainingRun], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("experiments.selectors.code.scripts", lambda bundle: ())
    assert shown(effective(runs[0], facts_of(runs).get(runs[0].pk))) == {"--lr": ("0.3", True)}
