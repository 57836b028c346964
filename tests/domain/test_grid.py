"""Value lists in commands and grids of arguments: which runs they make, what is literal, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from experiments import services
from experiments.errors import DomainError
from experiments.models import DefinitionVersion, Experiment, Project, TrainingRun, User
from experiments.services import grid
from tests import cast
from tests.conftest import SentMessages


@pytest.mark.parametrize(
    ("command", "makes"),
    [
        ("main.py --lr 0.1", ["main.py --lr 0.1"]),
        ("main.py --lr {0.1,0.3, 1.0}", ["main.py --lr 0.1", "main.py --lr 0.3", "main.py --lr 1.0"]),
        ("main.py --lr={1,2} -b {3,4}", [f"main.py --lr={lr} -b {b}" for lr in (1, 2) for b in (3, 4)]),
        ("main.py {a,b} x", ["main.py a x", "main.py b x"]),
        ("main.py --note {'a, b',c d}", ["main.py --note 'a, b'", "main.py --note 'c d'"]),
        ("main.py --run{1,2}.pt", ["main.py --run1.pt", "main.py --run2.pt"]),
        ("main.py --twice {1,1}", ["main.py --twice 1", "main.py --twice 1"]),
        ("main.py --empty {'',x}", ["main.py --empty ''", "main.py --empty x"]),
    ],
)
def test_a_list_of_values_makes_a_command_of_each(command: str, makes: list[str]) -> None:
    assert grid.expanded(command) == makes


@pytest.mark.parametrize(
    "command",
    [
        "main.py --layers 64,64",
        "main.py --layers {64}",
        'main.py --json \'{"a": 1, "b": 2}\'',
        'main.py --json "{1,2}"',
        r"main.py --set \{1,2\}",
        "main.py --open {1,2",
        "main.py --half '{1,2}",
        "main.py }{ {}",
        "",
    ],
)
def test_what_is_no_list_stays_as_it_is(command: str) -> None:
    assert grid.expanded(command) == [command]


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("main.py --lr {0.1,}", "has an empty value"),
        ("main.py --a {1,2,3,4,5,6,7,8,9,10} --b {1,2,3,4,5,6,7,8,9,10} --c {1,2}", "make 200 runs: at most 100"),
        ("main.py" + " {1,2}" * 300, "at most 100"),
    ],
)
def test_a_list_that_cannot_be_is_refused_with_what_to_do(command: str, says: str) -> None:
    with pytest.raises(DomainError, match=says):
        grid.expanded(command)


def test_values_by_name_stand_in_place_of_what_the_command_has() -> None:
    made = grid.combined("python main.py --lr 1 --fast data", {"lr": ["0.1", "-2"], "-b": ["8"], "note": ["it's, so"]})
    assert made == [
        "python main.py --lr 0.1 --fast data -b 8 --note 'it'\"'\"'s, so'",
        "python main.py --lr=-2 --fast data -b 8 --note 'it'\"'\"'s, so'",
    ]
    assert grid.combined("main.py --set {1,2}", {}) == ["main.py --set {1,2}"], "the text of the command is taken as it is"
    assert grid.combined("main.py --lr=3", {"--lr": ["4"]}) == ["main.py --lr=4"], "some scripts read nothing else"
    assert grid.combined("main.py --batch-size 8", {"batch_size": ["16"]}) == ["main.py --batch-size 16"]
    assert grid.combined("main.py optimizer.lr=3 -m", {"optimizer.lr": ["4", "5"]}) == [f"main.py optimizer.lr={lr} -m" for lr in (4, 5)]
    assert grid.combined("main.py 'it", {"lr": ["4"]}) == ["main.py 'it --lr 4"], "what no shell takes apart is refused later"


@pytest.mark.parametrize("wrong", [{"lr": []}, {"": ["1"]}, {"--": ["1"]}, {"a b": ["1"]}, {"lr": [str(n) for n in range(101)]}])
def test_a_grid_that_cannot_be_is_refused(wrong: dict[str, list[str]]) -> None:
    with pytest.raises(DomainError) as error:
        grid.combined("main.py", wrong)
    assert set(error.value.fields) == {"grid"}


def made(project: Project, alice: User, version: DefinitionVersion, *commands: str, **said: Any) -> Experiment:
    return services.create_experiment(project, by=alice, name="rates", versions=[version] * len(commands), commands=list(commands), **said)


def test_an_experiment_runs_the_same_version_several_times_each_with_its_command(project: Project, alice: User, said: SentMessages) -> None:
    version = cast.definition(project, by=alice, command="main.py --epochs 2")
    experiment = made(project, alice, version, "main.py --lr 0.1 --epochs 2", "main.py --lr 0.3 --epochs 2", "")
    runs = services.run_experiment(experiment, by=alice)
    assert [(run.name, run.command) for run in runs] == [
        ("rates: lr=0.1", "main.py --lr 0.1 --epochs 2"),
        ("rates: lr=0.3", "main.py --lr 0.3 --epochs 2"),
        ("rates: lenet", "main.py --epochs 2"),
    ]
    copy = services.duplicate_experiment(experiment, by=alice)
    assert [run.command for run in services.run_experiment(copy, by=alice)] == [run.command for run in runs]


def test_runs_of_several_definitions_are_named_after_them_and_what_differs(project: Project, alice: User, said: SentMessages) -> None:
    one, other = (cast.definition(project, by=alice, name=name, command="main.py") for name in ("lenet", "mlp"))
    commands = ["main.py --lr 1", "main.py --lr 2", "main.py --lr 3"]
    experiment = services.create_experiment(project, by=alice, name="both", versions=[one, one, other], commands=commands)
    assert [run.name for run in services.run_experiment(experiment, by=alice)] == ["both: lenet, lr=1", "both: lenet, lr=2", "both: mlp"]


def test_what_is_wrong_with_a_version_that_is_there_often_is_said_once(project: Project, alice: User) -> None:
    version = cast.definition(project, by=alice)
    with pytest.raises(DomainError) as error:
        made(project, alice, version, "other.py", "other.py", "other.py")
    assert len(error.value.fields["versions"]) == 1
    with pytest.raises(DomainError, match="201 runs are too many"):
        made(project, alice, version, *["main.py"] * 201)
    assert not TrainingRun.objects.exists()
