"""Metric curves for charts: whole ones down-sampled in the database, and what is new since a journal line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from experiments.models import TrainingRun
from experiments.notify import Point


@dataclass(frozen=True)
class Curve:
    """One curve: parallel lists of steps, Unix seconds and values (None where the value is not a number), at most about max_points long.

    `total` is the number of points stored; `sampled` says that they are more than these (then each bucket gave its least and greatest).
    """

    group: str
    name: str
    steps: list[int]
    times: list[float]
    values: list[float | None]
    total: int
    sampled: bool


@dataclass(frozen=True)
class NewPoints:
    """Points of journal lines after `after` up to `seq`; `reload` says that they are too many: fetch the curves anew."""

    after: int
    seq: int
    points: list[Point]
    progress: dict[str, object]
    reload: bool = False


def series(run: TrainingRun, *, max_points: int = 1000, x: Literal["step", "time"] = "step") -> tuple[int, list[Curve]]:
    """(sequence number, curves): everything up to that journal line, so that `points_after` it neither misses nor repeats a point."""
    raise NotImplementedError


def points_after(run: TrainingRun, *, seq: int, limit: int = 5000) -> NewPoints:
    raise NotImplementedError
