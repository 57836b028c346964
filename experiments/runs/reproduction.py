"""Whether a run that repeats another one came out the same, bit for bit, and if not, where they part. Pure: facts in, a sentence out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

Result = Literal["waiting", "same so far", "identical", "same figures", "different", "unknown"]
MOST_INPUTS = 3  # that a sentence names


@dataclass(frozen=True)
class RunRecord:
    """A run. `ended`: its last state, "" while it lives; `digests`: by epoch, after which step and what; `inputs`: what it computed with,
    by name; `steps`: how many it did."""

    number: int
    ended: str = ""
    steps: int = 0
    digests: Mapping[int, tuple[int, str]] = field(default_factory=dict)
    inputs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class CurveComparison:
    """Curves that both have: how many, and where the first of them parts (curve, step, value then, value now), if one does."""

    curves: int = 0
    apart: tuple[str, int, float | None, float | None] | None = None


@dataclass(frozen=True)
class Verdict:
    """`epochs`: at whose ends both had the same state; `inputs`: (what, then, now) that are not the same."""

    result: Result
    sentence: str
    epochs: int = 0
    inputs: tuple[tuple[str, str, str], ...] = ()
    curves: CurveComparison | None = None


def verdict(then: RunRecord, now: RunRecord, figures: Callable[[], CurveComparison]) -> Verdict:
    """Of `now`, which repeats `then`. `figures` compares their curves: asked only where the digests do not say it all."""
    both = sorted(then.digests.keys() & now.digests.keys())
    apart = next((epoch for epoch in both if then.digests[epoch] != now.digests[epoch]), None)
    inputs = _differing(then, now)
    if apart is not None:
        return _different(then, now, both, apart, inputs, figures())
    if not now.ended:
        if not both:
            return Verdict("waiting", "Not compared yet: states are compared after each epoch.", inputs=inputs)
        return Verdict(
            "same so far", f"The same so far: the state after {_epochs(len(both))} is that of run {then.number}.", len(both), inputs
        )
    if both and len(both) == len(then.digests):
        longer = f", as far as run {then.number} came" if len(now.digests) > len(both) else ""
        said = f"Identical, bit for bit{longer}: the state after each of {_epochs(len(both))} is that of run {then.number}."
        return Verdict("identical", said, len(both), inputs)
    if both:
        said = f"It {_ended(now)} after {_epochs(len(both))}; as far as it came, its state is that of run {then.number}."
        return Verdict("same so far", said, len(both), inputs)
    return _by_curves(then, now, inputs, figures())


def _different(
    then: RunRecord, now: RunRecord, both: list[int], apart: int, inputs: tuple[tuple[str, str, str], ...], found: CurveComparison
) -> Verdict:
    same = both.index(apart)
    (step_then, _), (step_now, _) = then.digests[apart], now.digests[apart]
    said = f"Not identical: the state after epoch {apart} (step {step_now:,}) is another one than that of run {then.number}"
    said += f", whose epoch {apart} ended at step {step_then:,}" if step_then != step_now else ""
    said += f"; after epoch {both[same - 1]} it was the same." if same else "."
    return Verdict("different", f"{said}{_first(found)}{_because(inputs)}", same, inputs, found)


def _by_curves(then: RunRecord, now: RunRecord, inputs: tuple[tuple[str, str, str], ...], found: CurveComparison) -> Verdict:
    """Where there are no digests to compare: only elastic training keeps them."""
    if found.apart is not None:
        return Verdict("different", f"Not identical.{_first(found)}{_because(inputs)}", 0, inputs, found)
    if found.curves and then.ended == now.ended:
        said = f"The same figures: all values of {found.curves} curve{'s' * (found.curves != 1)} are those of run {then.number}. "
        return Verdict("same figures", f"{said}Its state was not compared: only elastic training keeps digests of it.", 0, inputs, found)
    why = (
        f"it {_ended(now)}, run {then.number} {_ended(then)}" if then.ended != now.ended else "neither has digests of its state, or curves"
    )
    return Verdict("unknown", f"Nothing can be compared: {why}.{_because(inputs)}", 0, inputs, found)


def _differing(then: RunRecord, now: RunRecord) -> tuple[tuple[str, str, str], ...]:
    """Of what is known of both."""
    shared = [name for name in then.inputs if name in now.inputs]
    return tuple((name, then.inputs[name], now.inputs[name]) for name in shared if then.inputs[name] != now.inputs[name])


def _first(found: CurveComparison) -> str:
    if found.apart is None:
        return ""
    curve, step, then, now = found.apart
    return f" The first value that differs: {curve} at step {step:,}, {_value(then)} then and {_value(now)} now."


def _value(value: float | None) -> str:
    return "none" if value is None else repr(value)


def _because(inputs: tuple[tuple[str, str, str], ...]) -> str:
    if not inputs:
        return ""
    more = f" and {len(inputs) - MOST_INPUTS} more" if len(inputs) > MOST_INPUTS else ""
    return f" They were not given the same: {', '.join(name for name, _, _ in inputs[:MOST_INPUTS])}{more}."


def _epochs(count: int) -> str:
    return f"{count:,} epoch{'s' * (count != 1)}"


def _ended(run: RunRecord) -> str:
    return {"completed": "completed", "stopped": "was stopped", "failed": "failed"}.get(run.ended, "has not ended")
