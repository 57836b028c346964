"""Metrics that are more than a mean over the samples: what they count in each part of a batch is added up, and their values are made of the
sums. So they come out the same whoever has computed which part.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class Measures(Protocol):
    """All metrics of a script. `width`: how many numbers `sums` gives, the same each time."""

    names: tuple[str, ...]
    width: int

    def sums(self, outputs: Any, targets: Any) -> Sequence[float]:
        """What was counted in a part."""

    def values(self, sums: Sequence[float]) -> Sequence[float]:
        """What comes of the sums over all parts, a value for each name."""
