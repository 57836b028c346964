"""Which of a run's curves people mean by what they write: as its chart names it ("test loss"), as the script does ("test_loss", "val/loss",
"loss"), in any case. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

Name = tuple[str, str]  # group, "train" or "test", and name


def curve_of(metric: str, there: Iterable[Name]) -> Name | None:
    """The first that is meant in the strictest of these ways; of two that are alike the one of the test group."""
    curves = sorted(there, key=lambda curve: (curve[0] != "test", curve[1]))
    ways: tuple[Callable[[Name], bool], ...] = (
        lambda curve: " ".join(curve) == metric,
        lambda curve: curve[1] == metric,
        lambda curve: _plain(" ".join(curve)) == _plain(metric),
        lambda curve: _plain(curve[1]) == _plain(metric),
    )
    return next((curve for is_meant in ways for curve in curves if is_meant(curve)), None)


def _plain(text: str) -> str:
    return re.sub(r"[\W_]+", " ", text).strip().casefold()
