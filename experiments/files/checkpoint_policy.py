"""Which checkpoints of a run are kept: the last ones, and the best by a metric. Pure: facts in, what goes and why out.

A checkpoint here is what the engine writes after an epoch for people: `model/train/model_epoch_N.pth` with what belongs to it. The state to
resume from (`checkpoint/`), the final model and whatever a script writes by itself are not touched by any policy.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MOST = 1000  # that a policy may keep
_NAME = re.compile(r"model/train/model_epoch_([0-9]{1,9})(_optimizer_state)?\.[A-Za-z0-9.]{1,20}")


@dataclass(frozen=True)
class Policy:
    """`last`: how many of the newest are kept, at least 1; 0: all of them are, and nothing else counts. `best`: how many of the best by
    `metric`, a curve as pages name it ("test loss"), by its greatest values or else its least ones."""

    last: int = 0
    best: int = 0
    metric: str = ""
    greatest: bool = False

    @property
    def keeps_all(self) -> bool:
        return self.last == 0

    def stored(self) -> dict[str, Any]:
        if self.keeps_all:
            return {}
        return {"last": self.last, **({"best": self.best, "metric": self.metric, "greatest": self.greatest} if self.best else {})}

    def __str__(self) -> str:
        if self.keeps_all:
            return "all checkpoints"
        last = "the last checkpoint" if self.last == 1 else f"the last {self.last} checkpoints"
        if not self.best:
            return last
        side = "highest" if self.greatest else "lowest"
        return f"{last} and the {'one' if self.best == 1 else self.best} with the {side} {self.metric}"


@dataclass(frozen=True)
class Saved:
    """A checkpoint. `value`: of the metric in question at its step; None where there is none, or it is no number. `complete`: all of its
    files are there as they were written."""

    step: int
    epoch: int
    paths: tuple[str, ...]
    size_bytes: int
    value: float | None = None
    complete: bool = True


@dataclass(frozen=True)
class Dropped:
    """One that goes, and why: a sentence."""

    saved: Saved
    reason: str


def policy_of(stored: Mapping[str, Any]) -> Policy:
    return Policy(**stored)


def is_checkpoint(paths: Sequence[str], *, epoch: int | None = None) -> bool:
    """Whether these are files of one epoch, as the engine calls them, and nothing else."""
    found = [_NAME.fullmatch(path) for path in paths]
    epochs = {int(match[1]) if match else -1 for match in found}
    return len(epochs) == 1 and -1 not in epochs and epoch in (None, *epochs)


def ranked(saved: Sequence[Saved], *, greatest: bool) -> list[Saved]:
    """Those that have a value, the best first; of equal ones the earlier."""
    known = [(each.value, each) for each in saved if each.value is not None and each.complete]
    return [each for value, each in sorted(known, key=lambda one: (-one[0] if greatest else one[0], one[1].step))]


def decide(saved: Sequence[Saved], policy: Policy, *, held: Collection[str] = ()) -> list[Dropped]:
    """What goes, the oldest first. Never the newest complete one, and never one with a file in `held`: something else refers to that. One
    that is not complete counts for nothing, and nothing is done to it."""
    if policy.keeps_all:
        return []
    there = sorted((each for each in saved if each.complete), key=lambda each: each.step)
    kept = {each.step for each in there[-max(1, policy.last) :]}
    kept |= {each.step for each in ranked(there, greatest=policy.greatest)[: policy.best]}
    kept |= {each.step for each in there if any(path in held for path in each.paths)}
    return [Dropped(each, f"The policy keeps {policy}.") for each in there if each.step not in kept]
