"""Measured speed of the six applications of the Philly workloads, read from a folder of profiles. Standard library only.

`APP/placements.csv` and `APP/scalability.csv` give the time of one step and the part of it that is synchronisation, by placement and local
batch size; `APP/validation-BATCH.csv` gives the number of iterations after each epoch. Nothing of it is part of this project.

A run here keeps its global batch whatever it holds: V engines of batch / V samples each, computed one after the other by whoever holds a
slot, so W workers take ceil(V / W) forward and backward passes and one synchronisation for a step. An engine that would not fit into a
GPU's memory is computed in several passes, as the authors of the profiles do.
"""

from __future__ import annotations

import csv
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

Placement = tuple[int, ...]
Row = tuple[float, float, float]  # local batch size, step time (s), synchronisation time (s)


@dataclass
class Application:
    """One application's profile. `curves` by placement, `wide` by (machines, slots) for placements on more machines than `curves` has."""

    name: str
    curves: dict[Placement, list[Row]]
    wide: dict[tuple[int, int], list[Row]]
    iterations: dict[int, float]
    _known: dict[tuple[Placement, int, int], float] = field(default_factory=dict)

    def step_s(self, placement: Placement, *, batch: int, engines: int) -> float:
        """Seconds that a step of `engines` engines takes on so many slots of each machine."""
        key = (placement, batch, engines)
        if key not in self._known:
            curve = self._curve(placement)
            engine_batch = batch / engines
            passes = -(-engine_batch // curve[-1][0])
            step, sync = between(curve, engine_batch / passes)
            load = -(-engines // sum(placement)) * passes
            self._known[key] = (load - 1) * (step - sync) + step
        return self._known[key]

    def _curve(self, placement: Placement) -> list[Row]:
        normal = min(placement[turn:] + placement[:turn] for turn in range(len(placement)))
        if normal in self.curves:
            return self.curves[normal]
        wanted = (len(normal), sum(normal))
        return self.wide[min(self.wide, key=lambda each: (abs(each[0] - wanted[0]), abs(each[1] - wanted[1]), each))]


def between(curve: list[Row], size: float) -> tuple[float, float]:
    """Step and synchronisation time at a local batch size, on straight lines between the measured ones and flat outside them."""
    at = bisect_left(curve, (size,))
    if at == 0 or at == len(curve):
        return curve[min(at, len(curve) - 1)][1:]
    (low, *first), (high, *second) = curve[at - 1], curve[at]
    part = (size - low) / (high - low)
    step, sync = (a + (b - a) * part for a, b in zip(first, second, strict=True))
    return step, sync


def read_application(folder: Path, *, most_samples: int | None = None) -> Application:
    """`most_samples`: more than so many are never computed in one pass, although more were measured."""
    curves: dict[Placement, list[Row]] = {}
    for row in _rows(folder / "placements.csv", most_samples=most_samples):
        curves.setdefault(tuple(int(digit) for digit in row["placement"]), []).append(_point(row))
    wide: dict[tuple[int, int], list[Row]] = {}
    for row in _rows(folder / "scalability.csv", most_samples=most_samples):
        wide.setdefault((int(row["num_nodes"]), int(row["num_replicas"])), []).append(_point(row))
    epochs = {int(path.stem.split("-")[1]): [float(row["iteration"]) for row in _rows(path)] for path in folder.glob("validation-*.csv")}
    shortest = min(len(each) for each in epochs.values())
    return Application(
        name=folder.name,
        curves={placement: sorted(points) for placement, points in curves.items()},
        wide={key: sorted(points) for key, points in wide.items()},
        iterations={batch: each[shortest - 1] for batch, each in epochs.items()},
    )


def _point(row: dict[str, str]) -> Row:
    return float(row["local_bsz"]), float(row["step_time"]), float(row["sync_time"])


def _rows(path: Path, *, most_samples: int | None = None) -> Iterable[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if most_samples is None or float(row["local_bsz"]) <= most_samples:
                yield row
