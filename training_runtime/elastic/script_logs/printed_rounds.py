"""Figures in lines that a boosting library prints after a round: XGBoost, LightGBM and CatBoost. Pure, standard library only.

    [12]	train-mlogloss:0.06083	eval-mlogloss:0.26610
    [2]	valid_0's multi_logloss: 1.42843	valid_0's multi_error: 0.131111
    7:	learn: 1.5142	test: 1.5300	best: 1.5300 (7)	total: 61ms	remaining: 1.16s

A number in front, and behind it nothing but names with numbers, between tabs. Rounds go on where a second model begins its own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

MOST_ROUNDS = 2**53  # that a float counts
MOST_KINDS = 100  # of lines, by the names in them
_NUMBER = r"(?:[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|[-+]?(?:nan|inf))"
_LINE = re.compile(r"\s{0,4}(?:\[(?P<in_brackets>\d{1,15})\]|(?P<alone>\d{1,15}):)\t(?P<figures>[^\t].*)")
_FIGURE = re.compile(  # of a cross-validation with its deviation
    rf"(?P<name>[A-Za-z][^:]{{0,80}}):\s?(?P<value>{_NUMBER})(?:\s?\+\s?{_NUMBER})?", re.IGNORECASE
)
_ASIDE = re.compile(r"(?:best|total|remaining):.{1,60}")


@dataclass
class Rounds:
    """Of one script, line by line."""

    _reached: dict[tuple[str, ...], tuple[int, int]] = field(default_factory=dict)  # where rounds of this kind began, and the last one

    def add(self, text: str) -> tuple[int, dict[str, float]] | None:
        """The step and the figures of this line; None where it is another."""
        found = _LINE.fullmatch(text.rstrip())
        figures = _figures(found["figures"]) if found else {}
        if not found or not figures:
            return None
        kind = tuple(figures)
        if kind not in self._reached and len(self._reached) >= MOST_KINDS:
            return None
        at = int(found["in_brackets"] or found["alone"])
        base, last = self._reached.get(kind, (0, -1))
        if at <= last:
            base += last + (not at)  # some count from 0
        self._reached[kind] = (base, at)
        return min(base + at, MOST_ROUNDS), figures


def _figures(text: str) -> dict[str, float]:
    """Empty where something in there is no figure."""
    found = dict[str, float]()
    for part in text.split("\t"):
        if figure := _FIGURE.fullmatch(part):
            found[figure["name"]] = float(figure["value"])
        elif not _ASIDE.fullmatch(part):
            return {}
    return {name: value for name, value in found.items() if name != "best"}
