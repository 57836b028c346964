"""Which values the next trial of a search has: what was asked for, drawn repeatably, and by what came of those before."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.searches.choosing import OVER, WAIT, Tried, best, check, choose, most_runs
from experiments.searches.parameter_values import part_of, value_at
from experiments.searches.wishes import Parameter, Wishes, WrongWishes
from experiments.searches.wmla_spec import parse

# As IBM's notebooks send them.
LR = {"name": "learning_rate", "type": "Range", "dataType": "DOUBLE", "minDbVal": 0.001, "maxDbVal": 0.1, "minIntVal": 0, "maxIntVal": 0}
LR |= {"discreteDbVal": [], "discreteIntVal": [], "discreateStrVal": []}
SIZE = {"name": "batch_size", "type": "Discrete", "dataType": "INT", "discreteIntVal": [64, 128]}


def algo(name: str = "Random", **said: Any) -> dict[str, Any]:
    usual = {"maxRunTime": 60, "maxJobNum": 4, "maxParalleJobNum": 2, "objectiveMetric": "loss", "objective": "minimize"}
    return {"algorithm": name, **usual, **said}


def wishes(name: str = "Random", parameters: list[dict[str, Any]] | None = None, **said: Any) -> Wishes:
    return parse({"algoDef": algo(name, **said), "hyperParams": parameters or [LR, SIZE]})


def params(**said: str) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in said.items()]


def run_all(wanted: Wishes, measure: Any, seed: int = 7) -> list[Tried]:
    """All trials, each ended before the next begins."""
    tried: list[Tried] = []
    while (choice := choose(wanted, tried, seed)).values is not None:
        tried.append(Tried(choice.values, True, measure(choice.values)))
    assert choice == OVER
    return tried


def test_what_a_notebook_asks_for_is_understood() -> None:
    wanted = wishes()
    assert (wanted.algorithm, wanted.metric, wanted.maximize) == ("Random", "loss", False)
    assert (wanted.most_runs, wanted.at_once, wanted.minutes) == (4, 2, 60)
    assert wanted.parameters == (Parameter("learning_rate", "double", 0.001, 0.1), Parameter("batch_size", "int", choices=(64, 128)))
    assert wishes("tpe", maxRunTime=-1, objective="Maximize").maximize


def test_a_random_search_draws_within_its_ranges_and_the_same_again() -> None:
    found = run_all(wishes(maxJobNum=200), lambda values: 0.0)
    assert len(found) == 200
    assert all(0.001 <= float(each.values["learning_rate"]) < 0.1 for each in found)
    assert {each.values["batch_size"] for each in found} == {64, 128}
    assert found == run_all(wishes(maxJobNum=200), lambda values: 0.0)
    assert found != run_all(wishes(maxJobNum=200), lambda values: 0.0, seed=8)
    seeded = wishes(algoParams=params(RandomSeed="3"))
    assert run_all(seeded, lambda values: 0.0) == run_all(seeded, lambda values: 0.0, seed=9)


@pytest.mark.parametrize(
    ("parameter", "values"),
    [
        (Parameter("lr", "double", 0.001, 0.005, step=0.002), {0.001, 0.003, 0.005}),
        (Parameter("depth", "int", 1, 3), {1, 2, 3}),
        (Parameter("lambda", "double", -2, 0, step=1, power=10), {0.01, 0.1, 1.0}),
        (Parameter("units", "int", 3, 5, step=1, power=2), {8, 16, 32}),
        (Parameter("optimizer", "str", choices=("Adam", "SGD")), {"Adam", "SGD"}),
    ],
)
def test_steps_powers_and_choices(parameter: Parameter, values: set[object]) -> None:
    assert {value_at(parameter, part / 100) for part in range(100)} == values


@given(
    part=st.floats(0, 1, exclude_max=True),
    steps=st.integers(0, 40),
    how=st.sampled_from([("int", 0), ("double", 0), ("double", 2), ("double", 10)]),
)
def test_where_a_value_is_in_its_range_gives_that_value_again(part: float, steps: int, how: tuple[str, float]) -> None:
    kind, power = how
    ranged = Parameter("x", kind, 1, 6, step=5 / steps if steps and kind == "double" else 0, power=power)
    value = value_at(ranged, part)
    assert value_at(ranged, min(part_of(ranged, value), 1 - 1e-9)) == pytest.approx(value)


def test_listed_trials_have_the_values_and_numbers_that_they_were_listed_with() -> None:
    fixed = [{"name": "lr", "dataType": "DOUBLE", "fixedVal": "0.2"}, {"name": "optimizer", "dataType": "STR", "fixedVal": "Adam"}]
    listed = [{"id": 4, "hyperParams": fixed[:1]}, {"id": 2, "hyperParams": fixed}]
    wanted = parse({"algoDef": algo("ExperimentGridSearch", maxJobNum=-1), "experiments": listed})
    assert [dict(each.values) for each in run_all(wanted, lambda values: 1.0)] == [{"lr": 0.2}, {"lr": 0.2, "optimizer": "Adam"}]
    assert choose(wanted, [], 1).number == 4


def test_a_number_that_no_table_holds_is_no_id() -> None:
    with pytest.raises(WrongWishes, match="at most 18 digits"):
        parse({"algoDef": algo("ExperimentGridSearch"), "experiments": [{"id": 10**19, "hyperParams": []}]})


def test_hyperband_gives_the_best_of_a_rung_more_of_the_resource() -> None:
    wanted = wishes("Hyperband", maxJobNum=-1, maxParalleJobNum=9, algoParams=params(ResourceName="epochs", ResourceValue="9"))
    tried: list[Tried] = []
    for _ in range(9):
        values = choose(wanted, tried, 1).values
        assert values is not None
        assert values["epochs"] == "1"
        tried.append(Tried(values, has_ended=False))
    assert choose(wanted, tried, 1) == WAIT, "the first rung runs"
    found = run_all(wanted, lambda values: float(values["learning_rate"]))
    assert [each.values["epochs"] for each in found[9:13]] == ["3", "3", "3", "9"]
    assert [each.result for each in found[9:12]] == sorted(each.result or 0 for each in found[:9])[:3]
    assert len(found) == most_runs(wanted) == 9 + 3 + 1 + 5 + 1 + 3


def test_hyperband_begins_anew_until_it_has_as_many_trials_as_were_asked_for() -> None:
    """As IBM's notebook has it: five trials, of one epoch each."""
    wanted = wishes("Hyperband", maxJobNum=5, hyperbandEta=3.0, algoParams=params(ResourceName="epochs", ResourceValue="1"))
    found = run_all(wanted, lambda values: 0.0)
    assert [each.values["epochs"] for each in found] == ["1"] * 5
    assert len({each.values["learning_rate"] for each in found}) == 5
    assert most_runs(wanted) == 5


def test_tpe_looks_more_where_it_was_good() -> None:
    wanted = wishes("Tpe", [LR], maxJobNum=60, algoParams=params(WarmUp="10"))
    found = run_all(wanted, lambda values: abs(float(values["learning_rate"]) - 0.07))
    early, late = (sorted(each.result or 0 for each in part)[len(part) // 2] for part in (found[:10], found[30:]))
    assert late < early / 2
    best_place = best(wanted, found)
    assert best_place is not None
    assert (found[best_place].result or 1) < 0.003


def test_tpe_learns_of_choices_and_of_the_largest_and_asks_the_same_again() -> None:
    wanted = wishes("Tpe", maxJobNum=60, objective="maximize", algoParams=params(WarmUp="10", GoodRatio="0.2", GoodMax="5"))
    found = run_all(wanted, lambda values: float(values["batch_size"] == 128) - float(values["learning_rate"]))
    assert sum(each.values["batch_size"] == 128 for each in found[20:]) >= 28, "of 40, twice as often as the other"
    assert run_all(wanted, lambda values: float(values["batch_size"] == 128) - float(values["learning_rate"])) == found


def test_what_failed_teaches_tpe_nothing_and_what_runs_is_not_tried_twice() -> None:
    wanted = wishes("Tpe", [SIZE], maxJobNum=60, algoParams=params(WarmUp="3"))
    failed = [Tried({"batch_size": 64}, True, None)] * 30
    known = [Tried({"batch_size": size}, True, loss) for size, loss in ((64, 0.1), (128, 0.9), (64, 0.1), (128, 0.9))]
    running = [Tried({"batch_size": 64}, False)] * 20
    assert choose(wanted, [*known, *failed[:20]], 1).values == {"batch_size": 64}
    assert choose(wanted, [*known, *running], 1).values == {"batch_size": 128}


def test_the_best_is_the_largest_where_that_is_asked_for_and_none_without_a_result() -> None:
    tried = [Tried({}, True, None), Tried({}, True, 0.5), Tried({}, True, 0.9)]
    assert (best(wishes(), tried), best(wishes(objective="maximize"), tried), best(wishes(), tried[:1])) == (1, 2, None)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (algo("Bayesian"), "Bayesian is not available here: name one of Random, Tpe, Hyperband"),
        (algo(maxJobNum=-1, maxRunTime=-1), "would never end"),
        (algo(objective="best"), "neither minimize nor maximize"),
        (algo(objectiveMetric=None), "algoDef.objectiveMetric is no text"),
        (algo(maxJobNum=0), "whole number from 1 on, or -1"),
        (algo("ExperimentGridSearch"), "give experiments"),
        (algo("Hyperband"), "give ResourceName and ResourceValue"),
        (algo("Hyperband", algoParams=params(ResourceName="epochs", ResourceValue="0")), "ResourceValue is 0: give a number of at least 1"),
        (algo("Tpe", algoParams=params(WarmUp="many")), "WarmUp is many: give a number"),
    ],
)
def test_what_cannot_be_searched_is_said(said: dict[str, Any], why: str) -> None:
    with pytest.raises(WrongWishes, match=why):
        check(parse({"algoDef": said, "hyperParams": [LR]}))


@pytest.mark.parametrize(
    ("parameter", "why"),
    [
        ({**LR, "dataType": "FLOAT"}, "give INT, DOUBLE or STR"),
        ({**LR, "type": "Fix"}, "neither of type Range, with numbers, nor Discrete"),
        ({**LR, "minDbVal": 1}, "from 1 to 0.1: give the smaller one first"),
        ({**LR, "minDbVal": None}, "minDbVal of learning_rate is None: give a number"),
        ({**LR, "maxDbVal": 9e9, "power": 10}, "beyond all numbers"),
        ({**LR, "minDbVal": -1e308, "maxDbVal": 1e308}, "beyond all numbers: give ends that are nearer"),
        ({**LR, "step": 1e-320}, "or a greater step"),
        ({**SIZE, "discreteIntVal": [1.5]}, "give a whole number"),
        ({**SIZE, "discreteIntVal": []}, "give discreteIntVal, a list"),
        ({**SIZE, "name": ""}, "The name of a hyperparameter is no text"),
    ],
)
def test_a_wrong_range_is_said(parameter: dict[str, Any], why: str) -> None:
    with pytest.raises(WrongWishes, match=why):
        wishes(parameters=[parameter])
