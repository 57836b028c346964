"""What a script prints that says how it trains: progress bars of tqdm, and lines that are figures by name. Pure, standard library only."""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from training_runtime.elastic.script_logs.printed_pairs import title_of

LONGEST_LINE = 4096  # characters of a line of figures
MOST_FIGURES = 100  # of a line
LONGEST_LABEL, LONGEST_BAR = 210, 600  # characters before and after the percentage of a bar
STEP_NAMES = ("step", "global_step", "iteration", "iter", "steps")
_ASIDE = frozenset({*STEP_NAMES, "epoch", "time", "timestamp", "wall_time"})
_BAR = re.compile(
    r"(?P<label>[^|\r\n]{0,200}?)\s{0,4}\d{1,3}%\|[^|\r\n]{0,400}\|\s{0,20}(?P<done>[\d.]{1,20})(?P<done_unit>[kMGTP]?)/"
    r"(?P<total>[\d.]{1,20})(?P<total_unit>[kMGTP]?)\s{0,4}\[(?P<spent>[\d:]{4,20})<(?P<left>[\d:]{4,20}|\?)"
)
_MOVES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")  # of a terminal's cursor, and colours
_UNITS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_PLAUSIBLE_S = 30.0  # a bar that has not been drawn for so long, and three times what it takes for one more, is not drawn any more


@dataclass(frozen=True)
class Bar:
    """A progress bar as it was drawn: `done` of `total` units, in `spent_s`; `left_s` None where it does not say."""

    label: str
    done: float
    total: float
    spent_s: float
    left_s: float | None


@dataclass(frozen=True)
class PrintedMetrics:
    """`step`: None where the line has an epoch alone, a number that may have a fraction."""

    step: int | None
    values: dict[str, float]


def bar(text: str) -> Bar | None:
    """The bar in what was drawn at once; None where there is none."""
    found = _bar(text)
    if found is None:
        return None
    try:
        done = float(found["done"]) * _UNITS[found["done_unit"]]
        total = float(found["total"]) * _UNITS[found["total_unit"]]
        spent_s = _seconds(found["spent"])
        left_s = None if found["left"] == "?" else _seconds(found["left"])
    except ValueError:
        return None
    if not 0 < total < math.inf or done > total:
        return None
    return Bar(title_of(found["label"].strip().removesuffix(":").strip()), done, total, spent_s, left_s)


def beside_bar(text: str) -> str:
    """What is written beside the bar in `text`, as a line: its label, how far it is, and what stands behind its rate
    (`set_description`, `set_postfix`). Empty where it counts no whole things."""
    found = _bar(text)
    if found is None or not (found["done"].isdigit() and found["total"].isdigit()):
        return ""
    return f"{found['label'].strip()} [{found['done']}/{found['total']}] | {text[found.end() : found.end() + LONGEST_BAR].rstrip('] ')}"


def figures(text: str) -> PrintedMetrics | None:
    """The numbers of a line that is one JSON object, or one dict as Python prints it, with a step or an epoch in it; else None. Before it
    may stand what moves a terminal's cursor, as where Transformers' `Trainer` prints an evaluation between two bars."""
    text = _MOVES.sub("", text).strip()
    if not (text.startswith("{") and text.endswith("}")) or len(text) > LONGEST_LINE:
        return None
    said = _mapping(text)
    return None if said is None else of(said)


def of(said: Mapping[Any, Any]) -> PrintedMetrics | None:
    """The figures by name of a mapping that has a step or an epoch."""
    step = next((number(said[name]) for name in STEP_NAMES if name in said), None)
    if step is not None and not 0 <= step < 2**63:
        step = None
    epoch = number(said.get("epoch"))
    if step is None and (epoch is None or not epoch >= 0):
        return None
    values = {str(name): number(value) for name, value in list(said.items())[:MOST_FIGURES] if name not in _ASIDE}
    found = {name: value for name, value in values.items() if value is not None}
    return PrintedMetrics(None if step is None else int(step), found) if found else None


def number(value: Any) -> float | None:
    """A number, or words that are one, as CSV has them and later releases of Transformers print them."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


class Bars:
    """Of all bars that a script draws, the one that says how far all of it is: that which was begun first and is still drawn."""

    def __init__(self) -> None:
        self._drawn: dict[tuple[str, float], tuple[Bar, float]] = {}

    def add(self, drawn: Bar, now: float) -> Bar | None:
        """`now`: seconds of a clock that goes forward. The bar to go by, where that is this one."""
        self._drawn[drawn.label, drawn.total] = drawn, now
        self._drawn = {key: (each, at) for key, (each, at) in self._drawn.items() if self._is_drawn(each, now - at)}
        longest = max((each for each, _ in self._drawn.values()), key=lambda each: each.spent_s)
        return drawn if drawn.spent_s >= longest.spent_s else None

    def _is_drawn(self, each: Bar, ago_s: float) -> bool:
        patience_s = _PLAUSIBLE_S + 3 * each.spent_s / max(each.done, 1.0)
        return ago_s == 0 or (each.done < each.total and ago_s <= patience_s)


def _bar(text: str) -> re.Match[str] | None:
    at = text.find("%|")  # most text has none: the pattern is slow to find that out
    return _BAR.search(text, max(0, at - LONGEST_LABEL), at + LONGEST_BAR) if at >= 0 else None


def _mapping(text: str) -> Mapping[Any, Any] | None:
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        try:
            said = ast.literal_eval(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
            return None
    return said if isinstance(said, dict) else None


def _seconds(clock: str) -> float:
    """Of "12:34" or "1:02:03"."""
    total = 0.0
    for part in clock.split(":"):
        total = 60 * total + int(part)
    return total
