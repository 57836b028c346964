"""Figures in tables whose head has a rule of dashes below it, a row a step, as spaCy prints its trainings. Pure, standard library only.

    E    #       LOSS TEXTCAT  CATS_SCORE  SCORE
    ---  ------  ------------  ----------  ------
      2      40          8.47      100.00    1.00

A table counts where a column counts steps and another has the name of a usual measure. Other lines may stand between its rows. Names are as
written.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

from training_runtime.elastic.script_logs.printed_pairs import ASIDE, MEASURES, NUMBER, words_of

MOST_COLUMNS = 50
LONGEST_LINE = 1000
_RULE = re.compile(r"-+(?:\s+-+)+")
_VALUE = re.compile(rf"{NUMBER}|nan")
_STEPS = ("#", "step", "steps", "iter", "iteration")
_EPOCHS = ("e", "epoch")


@dataclass
class RuledTables:
    """Of one script, line by line."""

    _head: str = ""
    _names: tuple[str, ...] = ()
    _step: int = 0  # which column

    def add(self, text: str) -> tuple[int, dict[str, float]] | None:
        """The step and the figures of a row; None for any other line."""
        head, self._head = self._head, text[:LONGEST_LINE].rstrip()
        if _RULE.fullmatch(self._head):
            self._begin(head, self._head)
            return None
        cells = self._head.split() if self._names else []
        is_row = self._names and len(cells) == len(self._names) and all(map(_VALUE.fullmatch, cells)) and cells[self._step].isdecimal()
        if not is_row:
            return None
        return int(cells[self._step]), {name: float(cell) for name, cell in zip(self._names, cells, strict=True) if _is_figure(name)}

    def _begin(self, head: str, rule: str) -> None:
        begins = [found.start() for found in re.finditer("-+", rule)][:MOST_COLUMNS]
        names = tuple(" ".join(head[begin:end].split()) for begin, end in pairwise([*begins, LONGEST_LINE]))
        steps = [place for place, name in enumerate(names) if name.lower() in _STEPS]
        is_one = steps and all(names) and any(words_of(name) & MEASURES for name in names)
        self._names, self._step = (names, steps[0]) if is_one else ((), 0)


def _is_figure(name: str) -> bool:
    return name.lower() not in (*_STEPS, *_EPOCHS) and not words_of(name) & ASIDE
