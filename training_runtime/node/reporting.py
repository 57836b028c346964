"""What the studio is told of this machine: what its host sees, as far as the files of it have arrived in the studio. Pure."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from training_runtime.protocol import EnvironmentSeen, Observation, RunObservation

COPIED_BACK = "its last files are being copied to the studio"
ENDING_HERE = "the machine is being ended"
COPIED_HERE = "its files are being copied to this machine"
TOLD_NEXT = "what it is made of is told to the studio next"
TEXT_BYTES = 1 << 20  # of environments in one message


@dataclass(frozen=True)
class Copy:
    """How far the studio's copy of a run's folder is. `complete`: it has all that there is of a run that has ended."""

    run: int
    attempt: int
    journal_bytes: int
    complete: bool


def reported(
    seen: Observation, *, copies: Iterable[Copy], coming: Mapping[int, tuple[int, str]], address: str = "", leaving: bool = False
) -> Observation:
    """`address`: where other machines reach this one. `copies`: of the runs whose folders are this machine's. `coming`: of runs that are
    wanted and not begun, since files of theirs are on their way here: (attempt, how far). `leaving`: the machine is being ended: where all
    of its processes are told so by a signal, as an engine does that takes an allocation back, a run that dies of it has not failed.

    A run has ended, for the studio, when its last file is there; one that the host has forgotten is still here until then. Slots that are
    free are free at once.
    """
    known = {copy.run: copy for copy in copies}
    runs = [_reported(run, known.get(run.run), leaving=leaving) for run in seen.runs]
    there = {run.run for run in seen.runs}
    runs += [_held_back(copy) for copy in known.values() if copy.run not in there and not copy.complete]
    there |= known.keys()
    runs += [
        RunObservation(run, attempt, "starting", (), detail=f"{COPIED_HERE}{how_far}", busy_s=0.0)
        for run, (attempt, how_far) in coming.items()
        if run not in there
    ]
    node = dataclasses.replace(seen.node, address=address)
    environments = tuple(_environments_that_fit(seen.environments)) if seen.environments is not None else None
    return dataclasses.replace(seen, node=node, runs=tuple(sorted(runs, key=lambda run: run.run)), environments=environments)


def _environments_that_fit(environments: Iterable[EnvironmentSeen]) -> Iterator[EnvironmentSeen]:
    """Of those that have ended as many as fit into a message with their lists of packages and logs, one at least. The others are still
    being built, as far as the studio hears, until it knows these."""
    told = 0
    for each in environments:
        size = len(json.dumps((each.lock, each.log))) if each.lock or each.log else 0
        if size and told and told + size > TEXT_BYTES:
            yield EnvironmentSeen(each.key, each.attempt, "building", detail=TOLD_NEXT)
        else:
            told += size
            yield each


def _reported(run: RunObservation, copy: Copy | None, *, leaving: bool) -> RunObservation:
    if leaving and run.exit_code:
        journal = min(run.journal_bytes, copy.journal_bytes) if copy is not None else run.journal_bytes
        return dataclasses.replace(run, state="stopping", exit_code=None, detail=ENDING_HERE, journal_bytes=journal)
    if copy is None:
        return run
    run = dataclasses.replace(run, journal_bytes=min(run.journal_bytes, copy.journal_bytes))
    if run.exit_code is None or copy.complete:
        return run
    return dataclasses.replace(run, state="stopping", exit_code=None, detail=COPIED_BACK)


def _held_back(copy: Copy) -> RunObservation:
    return RunObservation(copy.run, copy.attempt, "stopping", (), journal_bytes=copy.journal_bytes, detail=COPIED_BACK, busy_s=0.0)
