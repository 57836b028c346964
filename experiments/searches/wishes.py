"""What a search for hyperparameters is to do: its parameters, what it looks for, how many trials there may be. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

Value = float | int | str
MOST_RUNS = 1000
MOST_PARAMETERS = 100
LONGEST = 200  # characters of a name, or of a value that is text
KINDS = ("int", "double", "str")


class WrongWishes(ValueError):
    """The message says what is wrong with the search and how to write it; `fields` the same by field, where it was asked for in fields."""

    def __init__(self, message: str, fields: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.fields = dict(fields or {})


@dataclass(frozen=True)
class Parameter:
    """A value is one of `choices`, or lies from `least` to `most`: in steps of `step` where that is not 0, and `power` to that where
    that is not 0. `kind`: of the value, one of KINDS. `digits`: that count of it, 0 for all."""

    name: str
    kind: str
    least: float = 0.0
    most: float = 0.0
    step: float = 0.0
    power: float = 0.0
    digits: int = 0
    choices: tuple[Value, ...] = ()


@dataclass(frozen=True)
class Listed:
    """A trial that was listed as it is to be."""

    number: int
    values: Mapping[str, Value]


@dataclass(frozen=True)
class Wishes:
    """`most_runs`: trials in all, and `limited`: that was said; `minutes`: after which it ends, None for no such end; `settings`: of its
    algorithm, as text. `as_arguments`: a trial has its values in its command, else in config.json; `from_curves`: its result is that of the
    curve `metric` ("test loss"), else that of WMLA's file; `early_stop`: trials that fall behind are ended."""

    algorithm: str
    metric: str
    maximize: bool
    most_runs: int
    at_once: int
    minutes: int | None
    parameters: tuple[Parameter, ...] = ()
    listed: tuple[Listed, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    limited: bool = True
    as_arguments: bool = False
    from_curves: bool = False
    early_stop: bool = False

    def setting(self, name: str, usual: float, *, least: float) -> float:
        """A number among the settings. Raises WrongWishes."""
        said = self.settings.get(name, "")
        return number(f"algoParams {name}", said, least=least) if said else usual


def check_width(name: str, least: float, most: float, step: float) -> None:
    """Raises WrongWishes for a range with more values than any number counts."""
    if not math.isfinite((most - least) / (step or 1.0)):
        raise WrongWishes(f"{name} has a range that goes beyond all numbers: give ends that are nearer, or a greater step.")


def number(what: str, said: object, *, least: float = -math.inf) -> float:
    try:
        found = float(said) if isinstance(said, int | float | str) and not isinstance(said, bool) else math.nan
    except (ValueError, OverflowError):
        found = math.nan
    if not math.isfinite(found) or found < least:
        raise WrongWishes(f"{what} is {str(said)[:40]}: give a number{f' of at least {least:g}' if math.isfinite(least) else ''}.")
    return found
