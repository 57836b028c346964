"""What a library's trainer has logged, a JSON object with its step on each line of a file in the run's results: `trainers.recording`
writes it. It says the same as what the trainer prints, with the steps that it prints nothing of and all digits. Whatever stands in the
file, nothing is raised."""

from __future__ import annotations

import json
from pathlib import Path

from training_runtime.elastic.script_logs.event_folders import Figure, group_of
from training_runtime.elastic.script_logs.pieces import read_piece
from training_runtime.elastic.script_logs.printed import number, of

PATH = "checkpoint/.trainer-records.jsonl"  # in RESULT_DIR
TIME = "timestamp"  # in seconds since the epoch
MOST_BYTES = 1 << 18  # at a time


class TrainerRecords:
    """Of the run whose result folder is `root`. `offset`: how far they were read."""

    def __init__(self, root: Path, offset: int) -> None:
        self._path, self.offset = root / PATH, offset

    @property
    def are_kept(self) -> bool:
        """A trainer has begun, and what is printed says nothing more. Before it has printed anything this is so."""
        return self._path.is_file()

    def read(self, *, all_of_it: bool) -> list[Figure]:
        """What was logged since."""
        found: list[Figure] = []
        while piece := read_piece(self._path, self.offset, most=MOST_BYTES):
            whole = piece.rfind(b"\n") + 1 or (len(piece) if len(piece) == MOST_BYTES else 0)
            self.offset += whole
            for line in piece[:whole].decode(errors="replace").splitlines():
                found += _of(line)
            if not (whole and all_of_it):
                break
        return found


def _of(line: str) -> list[Figure]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return []
    said = of(record) if isinstance(record, dict) else None
    if said is None or said.step is None:
        return []
    t = number(record.get(TIME)) or 0.0
    return [Figure(group_of(name), name, said.step, value, t) for name, value in said.values.items()]
