"""A kind of line of the journal: how far a script is. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Progress:
    """How far a script is as its own progress bar says, or its library's trainer: `done` of `total` units of any kind, under the bar's
    `label`. `left_s` None where it does not say. `is_whole`: of all of its training, where a bar may be of an epoch. `total` 0: what was
    said is over, and nothing is said of what the script does now."""

    done: float
    total: float
    left_s: float | None
    label: str
    is_whole: bool = False
    kind: Literal["progress"] = "progress"
