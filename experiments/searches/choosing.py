"""Which values the next trial of a search is to have, by what came of those before it.

Pure and repeatable: what is drawn depends on the search's seed and the trial's place alone. Random search; Hyperband (Li et al., JMLR 18,
2018, algorithm 1); TPE (Bergstra et al., NIPS 2011) by Optuna; or trials that were listed.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from experiments.searches import tpe
from experiments.searches.parameter_values import value_at
from experiments.searches.wishes import Listed, Value, Wishes, WrongWishes

MOST_RESOURCE = 10**9
LEAST_KNOWN = 2  # results before which there is nothing to learn from


@dataclass(frozen=True)
class Tried:
    """A trial that was begun. `result`: of its metric; None while it runs, and where it came to none."""

    values: Mapping[str, Value]
    has_ended: bool
    result: float | None = None


@dataclass(frozen=True)
class Choice:
    """What the next trial is to have. `values` None: nothing yet, and where `over` nothing any more."""

    number: int = 0
    values: Mapping[str, Value] | None = None
    over: bool = False


WAIT, OVER = Choice(), Choice(over=True)


def choose(wishes: Wishes, tried: Sequence[Tried], seed: int) -> Choice:
    """For the place after those that were tried."""
    place = len(tried)
    if place >= wishes.most_runs:
        return OVER
    if wishes.algorithm == "ExperimentGridSearch":
        listed: Listed = wishes.listed[place]
        return Choice(listed.number, listed.values)
    if wishes.algorithm == "Hyperband":
        return _hyperband(wishes, tried, seed)
    if wishes.algorithm == "Tpe":
        return _tpe(wishes, tried, seed)
    return Choice(place, drawn(wishes, place, seed))


def drawn(wishes: Wishes, place: int, seed: int) -> dict[str, Value]:
    """At random, evenly over each range."""
    source = _source(wishes, place, seed)
    return {each.name: value_at(each, source.random()) for each in wishes.parameters}


def best(wishes: Wishes, tried: Sequence[Tried]) -> int | None:
    """The place of the best of those that came to something."""
    places = [place for place, each in enumerate(tried) if each.result is not None]
    return min(places, key=lambda place: _rank(wishes, tried[place]), default=None)


def _rank(wishes: Wishes, one: Tried) -> float:
    if one.result is None:
        return math.inf
    return -one.result if wishes.maximize else one.result


def _source(wishes: Wishes, place: int, seed: int) -> random.Random:
    return random.Random(f"{wishes.settings.get('RandomSeed') or seed}/{place}")


def check(wishes: Wishes) -> None:
    """That its algorithm has what it needs. Raises WrongWishes."""
    if wishes.algorithm == "Hyperband":
        _rungs(wishes)
    _tpe_settings(wishes)


def _hyperband(wishes: Wishes, tried: Sequence[Tried], seed: int) -> Choice:
    """Brackets of rungs: of a rung's trials the best go on to the next one, with more of the resource. After the last bracket comes
    the first one again, with other values, where it was said how many trials there are to be."""
    name, first, brackets = wishes.settings["ResourceName"], 0, _rungs(wishes)
    for bracket in itertools.cycle(brackets) if wishes.limited else brackets:
        before: list[Tried] = []
        for count, resource in bracket:
            at = len(tried) - first
            if at < count:
                if not before:
                    values = drawn(wishes, len(tried), seed)
                elif all(each.has_ended for each in before):
                    values = dict(sorted(before, key=lambda each: _rank(wishes, each))[at].values)
                else:
                    return WAIT
                return Choice(len(tried), values | {name: str(resource)})
            before = list(tried[first : first + count])
            first += count
    return OVER


def most_runs(wishes: Wishes) -> int:
    """How many trials there will be, if none ends the search before."""
    if wishes.algorithm != "Hyperband" or wishes.limited:
        return wishes.most_runs
    return min(wishes.most_runs, sum(count for bracket in _rungs(wishes) for count, _ in bracket))


def _rungs(wishes: Wishes) -> list[list[tuple[int, int]]]:
    """Of each bracket its rungs: how many trials, and how much of the resource each has. Raises WrongWishes."""
    if not wishes.settings.get("ResourceName"):
        raise WrongWishes("Hyperband has no resource: give ResourceName and ResourceValue among algoDef.algoParams.")
    most = int(wishes.setting("ResourceValue", 0, least=1))
    eta = wishes.setting("eta", 3, least=2)
    if not 1 <= most <= MOST_RESOURCE:
        raise WrongWishes(f"ResourceValue of Hyperband is {most}: give a whole number from 1 to {MOST_RESOURCE}.")
    last = math.floor(math.log(most, eta) + 1e-9)
    brackets = []
    for bracket in range(last, -1, -1):
        count = math.ceil((last + 1) / (bracket + 1) * eta**bracket - 1e-9)
        least = most * eta**-bracket
        rungs = [(math.floor(count * eta**-rung + 1e-9), max(1, round(least * eta**rung))) for rung in range(bracket + 1)]
        brackets.append([(of, resource) for of, resource in rungs if of])
    return brackets


def _tpe_settings(wishes: Wishes) -> tuple[int, int, Callable[[int], int]]:
    """WarmUp, EICandidate, and by GoodRatio and GoodMax how many of so many count as good ones. Raises WrongWishes."""
    ratio, most_good = min(1.0, wishes.setting("GoodRatio", 0.25, least=0.001)), int(wishes.setting("GoodMax", 25, least=2))
    return (
        int(wishes.setting("WarmUp", 20, least=3)),
        min(int(wishes.setting("EICandidate", 24, least=2)), 1000),
        lambda known: max(1, min(most_good, math.ceil(ratio * known))),
    )


def _tpe(wishes: Wishes, tried: Sequence[Tried], seed: int) -> Choice:
    """What failed counts for nothing; what runs, as if it came to nothing good, so that several at once are not all at the same place."""
    warm_up, candidates, good = _tpe_settings(wishes)
    place = len(tried)
    if place < warm_up or sum(each.result is not None for each in tried) < LEAST_KNOWN:
        return Choice(place, drawn(wishes, place, seed))
    known = [(each.values, each.result) for each in tried if each.result is not None or not each.has_ended]
    return Choice(
        place,
        tpe.suggested(
            wishes.parameters,
            known,
            maximize=wishes.maximize,
            seed=_source(wishes, place, seed).getrandbits(32),
            candidates=candidates,
            good=good,
        ),
    )
