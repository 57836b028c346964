"""What is known of a training at a moment, and the sentences about it. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

ENDED = ("completed", "failed", "stopped")


@dataclass
class Curve:
    """Steps and values, in their order. `group`: "train" or "test"."""

    group: str
    name: str
    steps: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)


@dataclass
class Seen:
    """`state` is the studio's word. `workers`: slots that train. `rate`: steps a second. `problem`: why it is not the newest."""

    state: str = "starting"
    reason: str = ""
    step: int = 0
    steps: int | None = None
    epoch: int = 0
    epochs: int | None = None
    workers: int = 0
    rate: float | None = None
    curves: dict[tuple[str, str], Curve] = field(default_factory=dict)
    problem: str = ""

    @property
    def ended(self) -> bool:
        """Whether the state is one after which nothing comes."""
        return self.state in ENDED

    def add(self, group: str, step: int, values: Mapping[str, float]) -> None:
        """A point at `step` for the curve of each name of `group`."""
        for name, value in values.items():
            curve = self.curves.setdefault((group, name), Curve(group, name))
            curve.steps.append(step)
            curve.values.append(value)


def sentence(seen: Seen) -> str:
    """ "Running on 2 slots: epoch 3 of 10, step 57 of 210, 12.5 steps/s" """
    if seen.state == "running" and not seen.workers:
        said = "Running"
    elif seen.state == "running":
        said = f"Running on {seen.workers} slot{'s' * (seen.workers != 1)}"
    else:
        said = seen.state.capitalize()
    facts = []
    if seen.step:
        facts += [f"epoch {seen.epoch}{f' of {seen.epochs}' if seen.epochs else ''}"] if seen.epoch else []
        facts += [f"step {seen.step}{f' of {seen.steps}' if seen.steps else ''}"]
    if seen.rate and seen.state == "running":
        facts.append(f"{seen.rate:.3g} steps/s")
    said += f": {', '.join(facts)}" if facts else ""
    reason = seen.reason.rstrip(".") if seen.state not in ("running", "completed") else ""
    return f"{said}. {reason[0].upper()}{reason[1:]}" if reason else said


def figures(seen: Seen) -> str:
    """ "train loss: 0.123   test loss: 0.456": the newest of each curve."""
    newest = [f"{curve.group} {curve.name}: {curve.values[-1]:.4g}" for curve in ordered(seen) if curve.values]
    return "   ".join(newest)


def ordered(seen: Seen) -> list[Curve]:
    """By name, the loss first; of each the training's before the test's."""
    return sorted(seen.curves.values(), key=lambda each: (each.name != "loss", each.name, each.group != "train"))


def thin(curve: Curve, most: int) -> list[tuple[int, float]]:
    """At most `most` finite points: of each stretch of a longer curve its least and its greatest."""
    points = [(step, value) for step, value in zip(curve.steps, curve.values, strict=True) if math.isfinite(value)]
    if len(points) <= most:
        return points
    size = math.ceil(2 * len(points) / most)
    kept: list[tuple[int, float]] = []
    for at in range(0, len(points), size):
        stretch = points[at : at + size]
        kept += sorted({min(stretch, key=lambda each: each[1]), max(stretch, key=lambda each: each[1])})
    return kept
