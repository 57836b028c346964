"""Figures in boxes that a script prints, a name and a value a line, as Stable-Baselines3 and its like do. Pure, standard library only.

    | rollout/           |          |
    |    ep_rew_mean     | 22.3     |
    | time/              |          |
    |    total_timesteps | 2048     |

A box ends with a line of dashes, and counts where one of its names is a count of steps. Sections come before the names, as written;
what stands under `time/` is no curve.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

MOST_ROWS = 200
MOST_STEPS = 2**53  # that a float counts
_ROW = re.compile(r"\s*\|\s{0,8}(?P<name>[A-Za-z][\w@/.() -]{0,80}?)\s*\|\s{0,8}(?P<value>[^|\s]{0,40})\s*\|\s*")
_EDGE = re.compile(r"\s*(?:-{5,}|\+[-+]{4,})\s*")
_NUMBER = re.compile(r"[-+]?(?:(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|nan|inf)", re.IGNORECASE)
_STEPS = ("total_timesteps", "timesteps", "total timesteps", "total_steps", "steps", "step", "iterations", "iteration", "epoch")
_ASIDE = "time/"


@dataclass
class Boxes:
    """Of one script, line by line."""

    _rows: dict[str, float] = field(default_factory=dict)
    _section: str = ""

    def add(self, text: str) -> tuple[int, dict[str, float]] | None:
        """The step and the figures of the box that this line is the end of; None for any other line."""
        if _EDGE.fullmatch(text):
            rows, self._rows, self._section = self._rows, {}, ""
            return _of_box(rows)
        found = _ROW.fullmatch(text)
        if found is None or len(self._rows) >= MOST_ROWS:
            self._rows, self._section = {}, ""
        elif not found["value"]:
            self._section = found["name"] if found["name"].endswith("/") else ""
        elif _NUMBER.fullmatch(found["value"]):
            self._rows[self._section + found["name"]] = float(found["value"])
        return None


def _of_box(rows: dict[str, float]) -> tuple[int, dict[str, float]] | None:
    counts = {name.rsplit("/", 1)[-1]: value for name, value in rows.items()}
    step = next((counts[name] for name in _STEPS if name in counts and _is_count(counts[name])), None)
    figures = {name: each for name, each in rows.items() if not name.startswith(_ASIDE) and name.rsplit("/", 1)[-1] not in _STEPS}
    return (int(step), figures) if step is not None and figures else None


def _is_count(value: float) -> bool:
    return value.is_integer() and 0 <= value <= MOST_STEPS
