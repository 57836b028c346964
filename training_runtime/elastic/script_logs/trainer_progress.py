"""How far the training of a library's trainer is, all of its epochs, as `trainers.reporting` writes it into a small file of the run's
results. Whatever stands in the file, nothing is raised."""

from __future__ import annotations

import json
from pathlib import Path

from training_runtime import journal
from training_runtime.elastic.script_logs.pieces import read_piece

PATH = "checkpoint/.trainer-progress.json"  # in RESULT_DIR
OVER = "is_over"  # the training has ended, and other bars say how far the script is
MOST_BYTES = 1 << 12
LONGEST_LABEL = 100


class TrainerProgress:
    """Of the run whose result folder is `root`. is_at_work: a training is, as far as it was read."""

    def __init__(self, root: Path) -> None:
        self._path, self._text = root / PATH, b""
        self.is_at_work = False

    def read(self) -> journal.Progress | None:
        """What was reported since; None where nothing was."""
        text = read_piece(self._path, 0, most=MOST_BYTES)
        if text == self._text:
            return None
        self._text = text
        try:
            said = json.loads(text)
            left_s = None if said["left_s"] is None else float(said["left_s"])
            found = journal.Progress(float(said["done"]), float(said["total"]), left_s, str(said["label"])[:LONGEST_LABEL], is_whole=True)
            self.is_at_work = not said[OVER]
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
            return None
        return found if 0 <= found.done <= found.total and found.total > 0 else None
