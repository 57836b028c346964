"""What a worker has made at a barrier that workers on other machines will read past it: one word, left beside its phase. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

NOTHING, PARTS, SUM, TEST, MARKS, STATE, FIGURES = range(7)  # SUM: its shard of the gradients; MARKS: the table of test batches
_FIRST, _SECOND = 8, 40  # bits before each argument


class Payload(NamedTuple):
    """PARTS, FIGURES: engines of the step, its parity. TEST: the batch. STATE: machines that need it, a bit each; workers who write it
    together."""

    kind: int
    first: int
    second: int


def parts(engines: int, parity: int) -> int:
    """Of a step's gradients and figures, what this worker could not add up alone."""
    return PARTS | engines << _FIRST | parity << _SECOND


def figures(engines: int, parity: int) -> int:
    """The same without the gradients, which go another way."""
    return FIGURES | engines << _FIRST | parity << _SECOND


def test(batch: int) -> int:
    """The row of one test batch."""
    return TEST | batch << _FIRST


def state(machines: Iterable[int], writers: int) -> int:
    """A part of the whole state, of which `writers` on this machine write one each, for `machines`."""
    return STATE | sum(1 << machine for machine in machines) << _FIRST | writers << _SECOND


def read(word: int) -> Payload:
    return Payload(word & (1 << _FIRST) - 1, word >> _FIRST & (1 << _SECOND - _FIRST) - 1, word >> _SECOND)
