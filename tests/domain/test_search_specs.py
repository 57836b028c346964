"""What people write of a search for hyperparameters: ranges, values and what they look for, and what is said where that cannot be."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.searches import specs
from experiments.searches.choosing import Tried, choose, most_runs
from experiments.searches.curve_names import curve_of
from experiments.searches.parameter_values import as_text, value_at
from experiments.searches.studio_spec import parse
from experiments.searches.wishes import Parameter, WrongWishes


def spec(parameters: Any = None, **said: Any) -> dict[str, Any]:
    usual = {"method": "tpe", "metric": "test loss", "goal": "minimize", "trials": 20, "at_once": 2}
    return {**usual, "parameters": {"lr": "0.001..0.1 log"} if parameters is None else parameters, **said}


def parameter(text: Any) -> Parameter:
    (found,) = parse(spec({"it": text})).parameters
    return found


@pytest.mark.parametrize(
    ("text", "kind", "lowest", "highest"),
    [
        ("0.0001..0.1", "double", 0.0001, 0.1),
        ("1e-4..1e-1 log", "double", 1e-4, 0.1),
        (" -0.5 .. 0.5 ", "double", -0.5, 0.5),
        ("-0.5..0.5", "double", -0.5, 0.5),
        ("1..4", "int", 1, 4),
        ("16..256 log", "int", 16, 256),
        ("0..0.5 step 0.1", "double", 0.0, 0.5),
        ("0..12 step 4", "int", 0, 12),
        ("0..12 step 0.5", "double", 0.0, 12.0),
        (".5..1.", "double", 0.5, 1.0),
    ],
)
def test_a_range_is_understood(text: str, kind: str, lowest: float, highest: float) -> None:
    found = parameter(text)
    assert found.kind == kind
    ends = [value_at(found, part) for part in (0.0, 1 - 1e-9)]
    assert ends == [pytest.approx(lowest), pytest.approx(highest, rel=1e-3)]
    assert all(isinstance(end, int) == (kind == "int") for end in ends)


def test_values_are_texts_as_they_were_written() -> None:
    assert parameter("16, 32,64").choices == ("16", "32", "64")
    assert parameter('adam, "sgd, nesterov"').choices == ("adam", "sgd, nesterov")
    assert parameter([16, 0.5, "a,b"]).choices == ("16", "0.5", "a,b")


@pytest.mark.parametrize("text", ["1..4", "0.0001..0.1 log", "16..256 log", "0..0.5 step 0.1", '16, 0.5, "a,b"'])
def test_it_is_said_again_as_it_was_written(text: str) -> None:
    assert as_text(parameter(text)) == text


@given(st.floats(1e-6, 1e3), st.floats(1e-6, 1e3), st.booleans(), st.floats(0, 1, exclude_max=True))
def test_a_value_is_short_and_within_its_range(one: float, other: float, log: bool, part: float) -> None:
    least, most = sorted((one, other))
    if least == most:
        return
    found = value_at(parameter(f"{least!r}..{most!r}{' log' if log else ''}"), part)
    assert isinstance(found, float)
    assert least * (1 - 1e-9) <= found <= most * (1 + 1e-9)
    assert len(repr(found)) <= 10 or found in (pytest.approx(least), pytest.approx(most))


@pytest.mark.parametrize(
    ("wrong", "field", "says"),
    [
        ({"parameters": {}}, "parameters", "nothing to try"),
        ({"parameters": {"lr": "0.1"}}, "parameters", "no values to choose from"),
        ({"parameters": {"lr": "a..b"}}, "parameters", "which is a"),
        ({"parameters": {"lr": "1..inf"}}, "parameters", "which is inf"),
        ({"parameters": {"lr": "0..1"}}, "parameters", "write 0, 1, or 0.0..1.0 for what is between"),
        ({"parameters": {"lr": "4..1"}}, "parameters", "give the smaller one first"),
        ({"parameters": {"lr": "0..1 log"}}, "parameters", "0 has no logarithm"),
        ({"parameters": {"lr": "1..3 log step 1"}}, "parameters", "none with log"),
        ({"parameters": {"lr": "1..3 step 0"}}, "parameters", "above 0"),
        ({"parameters": {"lr": "0..1 step 1e-320"}}, "parameters", "beyond all numbers: .* or a greater step"),
        ({"parameters": {"lr": "-1e308..1e308"}}, "parameters", "ends that are nearer"),
        ({"parameters": {"lr": "1,,2"}}, "parameters", "empty value"),
        ({"parameters": {"lr": ["1", ""]}}, "parameters", "empty value"),
        ({"parameters": {"lr": ["1", "x" * 201]}}, "parameters", "no text of 1 to 200"),
        ({"parameters": {"lr": [1.0, float("nan")]}}, "parameters", "no finite number"),
        ({"parameters": {"learning rate": "1..3"}}, "parameters", "no name of an argument"),
        ({"parameters": {f"a{n}": "1..3" for n in range(101)}}, "parameters", "101 arguments are too many"),
        ({"parameters": "lr"}, "parameters", "nothing to try"),
        ({"metric": " "}, "metric", "as its chart does"),
        ({"metric": "x" * 201}, "metric", "as its chart does"),
        ({"metric": None}, "metric", "as its chart does"),
        ({"goal": "best"}, "goal", "choose minimize or maximize"),
        ({"method": "grid"}, "method", "choose tpe or random"),
        ({"trials": 0}, "trials", "from 1 to 1000"),
        ({"trials": True}, "trials", "from 1 to 1000"),
        ({"at_once": "2"}, "at_once", "from 1 to 1000"),
    ],
)
def test_what_cannot_be_is_said_beside_its_field(wrong: dict[str, Any], field: str, says: str) -> None:
    with pytest.raises(WrongWishes, match=says) as error:
        parse(spec(**wrong))
    assert set(error.value.fields) == {field}


@pytest.mark.parametrize(
    ("metric", "found"),
    [
        ("test loss", ("test", "loss")),
        ("train loss", ("train", "loss")),
        ("loss", ("test", "loss")),
        ("test_loss", ("test", "loss")),
        ("Test/Loss", ("test", "loss")),
        ("val_loss", ("test", "val_loss")),
        ("val loss", ("test", "val_loss")),
        ("top-5", ("train", "Top_5")),
        ("los", None),
        ("", None),
    ],
)
def test_a_curve_is_found_by_what_people_call_it(metric: str, found: tuple[str, str] | None) -> None:
    assert curve_of(metric, [("train", "loss"), ("train", "Top_5"), ("test", "val_loss"), ("test", "loss")]) == found


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(WrongWishes) as error:
        parse(spec({}, metric="", trials=-1))
    assert set(error.value.fields) == {"parameters", "metric", "trials"}


def test_a_search_finds_what_is_best() -> None:
    wanted = specs.parse(spec({"lr": "0.0001..1 log", "layers": "1..8", "act": "relu, tanh"}, trials=40))
    tried: list[Tried] = []
    while (choice := choose(wanted, tried, 7)).values is not None:
        lr, layers = float(choice.values["lr"]), int(choice.values["layers"])
        tried.append(Tried(choice.values, True, abs(lr - 0.01) * 10 + abs(layers - 3) + (choice.values["act"] == "relu")))
    assert len(tried) == 40 == most_runs(wanted)
    results = [each.result or 0.0 for each in tried]
    assert min(results[10:]) < min(results[:10]), "what it chose is better than what it drew"
    assert min(results) < 1
