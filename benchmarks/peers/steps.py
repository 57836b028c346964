"""What a peer's workers did: each writes a line for every step that it finished, and the figures are made of these lines alone.

Pure but for `Journal` and `Reader`. A peer may finish a step more than once (it went back to a checkpoint), so a step is told apart by its
generation: a number that grows whenever the peer's members met anew. The first worker to finish a step gives the time of that step.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

DISTURBED = 3  # so many steps after a change of members count as its doing


@dataclass(frozen=True)
class Step:
    """A finished step. `samples` is how many were used since the start, this step's included, by all workers that count in it."""

    t: float
    number: int
    generation: int
    workers: int
    samples: int
    rank: int
    pid: int


class Journal:
    """The lines of this process, in a file of its own; each is written in one piece."""

    def __init__(self, folder: Path) -> None:
        self._file = os.open(folder / f"{os.getpid()}.steps", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, *, number: int, generation: int, workers: int, samples: int, rank: int) -> None:
        os.write(self._file, f"{time.time()} {number} {generation} {workers} {samples} {rank} {os.getpid()}\n".encode())


class Reader:
    """All lines of all workers so far, in `lines`; each `read` adds those that are new."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._offsets: dict[Path, int] = {}
        self.lines: list[Step] = []

    def read(self) -> None:
        for path in self._folder.glob("*.steps"):
            with path.open("rb") as file:
                file.seek(self._offsets.get(path, 0))
                whole, _, _ = file.read().rpartition(b"\n")
            if whole:
                self._offsets[path] = self._offsets.get(path, 0) + len(whole) + 1
                for line in whole.decode().split("\n"):
                    t, *rest = line.split()
                    self.lines.append(Step(float(t), *map(int, rest)))


def finished(lines: Sequence[Step]) -> list[Step]:
    """Each step of each generation once, when its first worker had finished it."""
    seen: dict[tuple[int, int], Step] = {}
    for step in sorted(lines, key=lambda step: step.t):
        seen.setdefault((step.generation, step.number), step)
    return list(seen.values())


def pause_s(steps: Sequence[Step], *, workers: int) -> float:
    """The longest gap between two finished steps at a change to `workers` members, minus the median step of those.

    `steps` go from before the change until well after it. The gaps that count are those of the first steps after members met anew or
    another number of them took part: what a newcomer's start costs in between is not the pause.
    """
    gaps = [now.t - before.t for before, now in pairwise(steps)]
    changes = [i for i, (a, b) in enumerate(pairwise(steps)) if (a.generation, a.workers) != (b.generation, b.workers)]
    near = {i + further for i in changes for further in range(DISTURBED)} & set(range(len(gaps)))
    usual = [gap for i, gap in enumerate(gaps) if i not in near and i > max(changes) and steps[i + 1].workers == workers]
    return max(gaps[i] for i in near) - median(usual)


def redone(steps: Sequence[Step]) -> int:
    """Steps that had been finished and were done again."""
    return len(steps) - len({step.number for step in steps})


def samples_wrong(steps: Sequence[Step], *, a_step: int) -> int:
    """Samples that the last attempt at each step left out or used too often, where each step should have used `a_step`."""
    last = {step.number: step.samples for step in steps}  # a later generation overwrites an earlier one
    return sum(abs(now - before - a_step) for before, now in pairwise(last[number] for number in sorted(last)))
