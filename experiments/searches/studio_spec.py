"""A search for hyperparameters as the studio's own pages, API and command line ask for it. Pure: JSON in, facts out.

A spec has `method`, `metric`, `goal`, `trials`, `at_once`, `early_stop` (of trials that fall behind), and `parameters`: by the name of an
argument a list of values, or a text: "0.0001..0.1 log", "1..4", "0..0.5 step 0.1" or "16, 32, 64". A range is of whole numbers where both
of its ends are, and its step.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from experiments.definitions.arguments import NO_NAME, is_name
from experiments.searches.wishes import LONGEST, MOST_PARAMETERS, MOST_RUNS, Parameter, Wishes, WrongWishes, check_width, number

METHODS = {"tpe": "Tpe", "random": "Random"}
USUAL_TRIALS, USUAL_AT_ONCE = 20, 2
GOALS = ("minimize", "maximize")
HOW = "write a range, 0.0001..0.1 log or 1..4, or several values, 16, 32, 64"
DIGITS = 4  # of a value out of a range: nobody can tell more apart, and commands and tables are read by people
MOST_WARM_UP = 10  # trials at random before TPE has learned enough to choose
_WHOLE = re.compile(r"[+-]?[0-9]{1,15}")
_RANGE = re.compile(r"(?P<least>[^\s,]+?)\s*\.\.\s*(?P<most>[^\s,]+)(?P<log>\s+log)?(\s+step\s+(?P<step>\S+))?")
T = TypeVar("T")


def parse(spec: Mapping[str, Any]) -> Wishes:
    """Raises WrongWishes, with all that is wrong by field."""
    wrong: dict[str, str] = {}

    def of(field: str, read: Callable[[Any], T]) -> T | None:
        try:
            return read(spec.get(field))
        except WrongWishes as error:
            wrong[field] = str(error)
            return None

    method, goal = of("method", _method), of("goal", _goal)
    metric, parameters = of("metric", _metric), of("parameters", _parameters)
    trials, at_once = of("trials", lambda said: _count(said, MOST_RUNS)), of("at_once", lambda said: _count(said, MOST_RUNS))
    if wrong or not (method and goal and metric and parameters and trials and at_once):
        raise WrongWishes(" ".join(wrong.values()), wrong)
    warm_up = str(max(3, min(MOST_WARM_UP, trials // 3)))
    return Wishes(
        algorithm=METHODS[method],
        metric=metric,
        maximize=goal == "maximize",
        most_runs=trials,
        at_once=at_once,
        minutes=None,
        parameters=parameters,
        settings={"WarmUp": warm_up},
        as_arguments=True,
        from_curves=True,
        early_stop=spec.get("early_stop") is True,
    )


def _method(said: object) -> str:
    if said not in METHODS:
        raise WrongWishes(f"{str(said)[:40]} is no way of searching: choose {' or '.join(METHODS)}.")
    return str(said)


def _goal(said: object) -> str:
    if said not in GOALS:
        raise WrongWishes(f"{str(said)[:40]} is no goal: choose {' or '.join(GOALS)}.")
    return str(said)


def _metric(said: object) -> str:
    name = " ".join(said.split()) if isinstance(said, str) else ""
    if not 0 < len(name) <= LONGEST or not name.isprintable():
        raise WrongWishes('Name the metric that says which is best as its chart does, or as the script prints it: "test loss", say.')
    return name


def _count(said: object, most: int) -> int:
    if isinstance(said, bool) or not isinstance(said, int) or not 1 <= said <= most:
        raise WrongWishes(f"{str(said)[:40]} is no number of trials: give a whole number from 1 to {most}.")
    return said


def _parameters(said: object) -> tuple[Parameter, ...]:
    if not isinstance(said, Mapping) or not said:
        raise WrongWishes(f"The search has nothing to try: name an argument, and {HOW}.")
    if len(said) > MOST_PARAMETERS:
        raise WrongWishes(f"{len(said)} arguments are too many: search for at most {MOST_PARAMETERS}.")
    return tuple(_parameter(str(name), values) for name, values in said.items())


def _parameter(name: str, said: object) -> Parameter:
    if not is_name(name) or len(name) > LONGEST:
        raise WrongWishes(NO_NAME.format(name[:40]))
    if isinstance(said, str) and (found := _RANGE.fullmatch(said.strip())):
        return _range(name, found)
    values = _split(said) if isinstance(said, str) else [str(each) for each in said] if isinstance(said, list) else []
    if isinstance(said, list) and any(isinstance(each, float) and not math.isfinite(each) for each in said):
        raise WrongWishes(f"{name} has a value that is no finite number: leave it out.")
    if len(values) < 2:
        raise WrongWishes(f"{name} has no values to choose from: {HOW}.")
    if wrong := next((each for each in values if not 0 < len(each) <= LONGEST or not each.isprintable()), None):
        raise WrongWishes(f"A value of {name} is no text of 1 to {LONGEST} characters: {wrong[:40]}.")
    if "" in values:
        raise WrongWishes(f"{name} has an empty value: leave it out.")
    return Parameter(name, "str", choices=tuple(dict.fromkeys(values)))


def _split(text: str) -> list[str]:
    """With commas between them; one that has a comma of its own is in double quotes."""
    return [each.strip() for each in next(csv.reader([text.replace("\n", " ")], skipinitialspace=True), [])]


def _range(name: str, said: re.Match[str]) -> Parameter:
    texts = [said["least"], said["most"], *([said["step"]] if said["step"] else [])]
    least, most, step = (*(number(f"The range of {name} has {text[:40]}, which", text) for text in texts), 0.0)[:3]
    whole = all(_WHOLE.fullmatch(text) for text in texts)
    if whole and not (said["step"] or said["log"]) and most - least == 1:
        raise WrongWishes(f"{name} has two values: write {said['least']}, {said['most']}, or {least:.1f}..{most:.1f} for what is between.")
    if least >= most:
        raise WrongWishes(f"{name} has a range from {said['least']} to {said['most']}: give the smaller one first.")
    if said["step"] and (said["log"] or step <= 0):
        raise WrongWishes(f"{name} has a step that cannot be: give one above 0, and none with log.")
    check_width(name, least, most, step)
    plain = Parameter(name, "int" if whole else "double", least, most, step, digits=0 if whole or step else DIGITS)
    if not said["log"]:
        return plain
    if least <= 0:
        raise WrongWishes(f"{name} has a range from {said['least']} on, and 0 has no logarithm: begin above 0, or leave log out.")
    return replace(plain, least=math.log10(least), most=math.log10(most), power=10.0)
