"""What an archive says of searches for hyperparameters, as the fields of rows, checked as who begins one would be. Stores nothing. Raises
TransferRefused."""

from __future__ import annotations

import datetime as dt
import math
from typing import Any

from experiments.searches import specs
from experiments.searches.wishes import MOST_RUNS, WrongWishes
from experiments.services.searches import REASON_LIMIT
from experiments.transfer.experiment_format import Search, Trial
from experiments.transfer.format import Manifest, TransferRefused
from experiments.transfer.values import INT64, json_object, time_of

MOST_CHARACTERS = 1 << 20  # of a spec, or of the values of a trial


def check(found: Manifest, *, now: dt.datetime) -> None:
    there = {each.number: each.name for each in found.experiments}
    if len({each.experiment for each in found.searches}) < len(found.searches):
        raise TransferRefused("An experiment has two searches for hyperparameters: export the project again.")
    runs = [trial.run for search in found.searches for trial in search.trials]
    if len(set(runs)) < len(runs):
        raise TransferRefused("A run is a trial of a search twice: export the project again.")
    for search in found.searches:
        if search.experiment not in there:
            raise TransferRefused("There is a search for hyperparameters of an experiment that the archive has not: export it again.")
        of_search(search, called=there[search.experiment], now=now)


def of_search(found: Search, *, called: str, now: dt.datetime) -> dict[str, Any]:
    who = f"The search of the experiment {called[:80]}"
    spec = json_object(found.spec, most=MOST_CHARACTERS)
    try:
        specs.parse(spec or {})
    except WrongWishes as wrong:
        raise TransferRefused(f"{who} cannot be stored here. {wrong}") from None
    if len({trial.place for trial in found.trials}) < len(found.trials) or len(found.trials) > MOST_RUNS:
        raise TransferRefused(f"{who} has over {MOST_RUNS} trials, or two at one place: export the project again.")
    for trial in found.trials:
        of_trial(trial, who=who)
    times = {"created_at": time_of(found.at, who, now), "ended_at": time_of(found.ended_at, who, now)}
    return {"spec": spec, "seed": 0, "state": found.state, "reason": found.reason[:REASON_LIMIT], **times}


def of_trial(found: Trial, *, who: str) -> dict[str, Any]:
    values = json_object(found.values, most=MOST_CHARACTERS)
    sane = values is not None and all(isinstance(each, int | float | str) for each in values.values())
    if not sane or not 0 <= found.place < MOST_RUNS or abs(found.number) >= INT64:
        raise TransferRefused(f"{who} has a trial that cannot have been: export the project again.")
    result = found.result if found.result is not None and math.isfinite(found.result) else None
    facts = {"place": found.place, "number": found.number, "values": values, "result": result}
    return {**facts, "settled": True, "ended_early": found.ended_early}
