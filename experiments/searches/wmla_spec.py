"""A search for hyperparameters in the JSON that WMLA's clients send (`algoDef`, `hyperParams`, `experiments`).

Pure: JSON in, facts out. Words may be written in any case, and numbers as text, as those clients do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.searches.wishes import (
    KINDS,
    LONGEST,
    MOST_PARAMETERS,
    MOST_RUNS,
    Listed,
    Parameter,
    Value,
    Wishes,
    WrongWishes,
    check_width,
    number,
)

GREATEST_ID = 10**18
MOST_MINUTES = 100 * 366 * 24 * 60  # a century: calendars end, and some say a great number for no end
ALGORITHMS = {"random": "Random", "tpe": "Tpe", "hyperband": "Hyperband", "experimentgridsearch": "ExperimentGridSearch"}
_VALUES = {"int": "IntVal", "double": "DbVal"}


def parse(spec: Mapping[str, Any]) -> Wishes:
    """Raises WrongWishes."""
    algo = _object(spec, "algoDef")
    name = str(algo.get("algorithm", ""))
    if (algorithm := ALGORITHMS.get(name.lower())) is None:
        there = ", ".join(ALGORITHMS.values())
        raise WrongWishes(f"Algorithm {name[:64] or 'without a name'} is not available here: name one of {there} as algoDef.algorithm.")
    objective = str(algo.get("objective", "")).lower()
    if objective not in ("minimize", "maximize"):
        raise WrongWishes("algoDef.objective is neither minimize nor maximize: say which.")
    settings = {str(each.get("name")): str(each.get("value")) for each in _objects(algo, "algoParams")}
    if "hyperbandEta" in algo:
        settings.setdefault("eta", str(algo["hyperbandEta"]))
    grid = algorithm == "ExperimentGridSearch"
    listed = tuple(_listed(each) for each in _objects(spec, "experiments")) if grid else ()
    parameters = tuple(_parameter(each) for each in _objects(spec, "hyperParams")) if not grid else ()
    if not (listed or parameters):
        raise WrongWishes(f"The search has nothing to try: give {'experiments' if grid else 'hyperParams'}.")
    minutes = _count("algoDef.maxRunTime", algo.get("maxRunTime", -1))
    most = _count("algoDef.maxJobNum", algo.get("maxJobNum", -1))
    if most is None and minutes is None and algorithm in ("Random", "Tpe"):
        raise WrongWishes("The search would never end: give algoDef.maxJobNum or maxRunTime.")
    minutes = min(minutes, MOST_MINUTES) if minutes is not None else None
    limited, most = most is not None, min(MOST_RUNS, most or MOST_RUNS, len(listed) or MOST_RUNS)
    at_once = _count("algoDef.maxParalleJobNum", algo.get("maxParalleJobNum", algo.get("maxParalleJob", 1))) or most
    metric = _text("algoDef.objectiveMetric", algo.get("objectiveMetric"))
    return Wishes(algorithm, metric, objective == "maximize", most, at_once, minutes, parameters, listed, settings, limited)


def _parameter(said: Mapping[str, Any]) -> Parameter:
    name = _text("The name of a hyperparameter", said.get("name"))
    kind = _kind(name, said)
    if str(said.get("type", "")).lower() == "discrete":
        keys = (f"discrete{_VALUES[kind]}",) if kind in _VALUES else ("discreateStrVal", "discreteStrVal")
        found = next((said[key] for key in keys if said.get(key)), None)
        if not isinstance(found, list):
            raise WrongWishes(f"{name} has no values to choose from: give {keys[0]}, a list.")
        return Parameter(name, kind, choices=tuple(_value(name, kind, each) for each in found))
    if str(said.get("type", "")).lower() != "range" or kind == "str":
        raise WrongWishes(f"{name} is neither of type Range, with numbers, nor Discrete: say which.")
    least, most = (number(f"{end}{_VALUES[kind]} of {name}", said.get(f"{end}{_VALUES[kind]}")) for end in ("min", "max"))
    if least > most:
        raise WrongWishes(f"{name} has a range from {least:g} to {most:g}: give the smaller one first.")
    step, power = (number(f"{key} of {name}", said.get(key) or 0, least=0) for key in ("step", "power"))
    check_width(name, least, most, step)
    try:
        power and power**least + power**most
    except OverflowError:
        raise WrongWishes(f"{name} goes beyond all numbers: {power:g} to the power of {most:g}.") from None
    return Parameter(name, kind, least, most, step, power)


def _listed(said: Mapping[str, Any]) -> Listed:
    place = said.get("id")
    if isinstance(place, bool) or not isinstance(place, int) or abs(place) > GREATEST_ID:
        raise WrongWishes("One of the experiments has no id, a whole number of at most 18 digits: give it one.")
    values = {}
    for each in _objects(said, "hyperParams"):
        name = _text("The name of a hyperparameter", each.get("name"))
        values[name] = _value(name, _kind(name, each), each.get("fixedVal"))
    return Listed(place, values)


def _kind(name: str, said: Mapping[str, Any]) -> str:
    kind = str(said.get("dataType", "")).lower()
    if kind not in KINDS:
        raise WrongWishes(f"{name} has no dataType: give INT, DOUBLE or STR.")
    return kind


def _value(name: str, kind: str, said: object) -> Value:
    if kind == "str":
        return _text(f"A value of {name}", said)
    found = number(f"A value of {name}", said)
    if kind == "int" and found != int(found):
        raise WrongWishes(f"A value of {name} is {found:g}: give a whole number.")
    return int(found) if kind == "int" else found


def _count(what: str, said: object) -> int | None:
    """None for -1: as many as there are."""
    found = number(what, said)
    if found != int(found) or found == 0 or found < -1:
        raise WrongWishes(f"{what} is {found:g}: give a whole number from 1 on, or -1.")
    return int(found) if found > 0 else None


def _text(what: str, said: object) -> str:
    if not isinstance(said, str) or not said or len(said) > LONGEST or not said.isprintable():
        raise WrongWishes(f"{what} is no text of 1 to {LONGEST} characters: {str(said)[:40]}.")
    return said


def _object(said: Mapping[str, Any], key: str) -> dict[str, Any]:
    found = said.get(key)
    if not isinstance(found, dict):
        raise WrongWishes(f"The search has no {key}, a JSON object: give it.")
    return found


def _objects(said: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    found = said.get(key) or []
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise WrongWishes(f"{key} is no list of JSON objects.")
    most = MOST_RUNS if key == "experiments" else MOST_PARAMETERS
    if len(found) > most:
        raise WrongWishes(f"{len(found)} {key} are too many: give at most {most}.")
    return found
