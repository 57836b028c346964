"""Follows what a run's processes print, `log/*/console.log`, piece by piece: lines, and what was drawn over a line. Whatever stands there,
nothing is raised."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from training_runtime.elastic.script_logs.pieces import read_piece

MOST_BYTES = 1 << 18  # of a log, at a time
MOST_LOGS = 16  # that are followed
LONGEST_BYTES = 1 << 14  # a piece without an end is passed over when it is longer
LAST_BYTES, LONGEST_SHOWN = 1 << 12, 300
_END = re.compile(rb"[\r\n]")
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@dataclass(frozen=True)
class Piece:
    """Of the log at `path`. `whole`: its end has come."""

    path: str
    text: str
    whole: bool


class ConsoleLogs:
    """Of the run whose result folder is `root`. `offsets`: how far each log was read, by its path."""

    def __init__(self, root: Path, offsets: Mapping[str, int]) -> None:
        self._root = root
        self.offsets = dict(offsets)

    def read(self, *, all_of_it: bool) -> Iterator[Piece]:
        """What was written since. A piece whose end has not come is given as it is, and again with it."""
        for path in self._paths():
            while True:
                before = self.offsets.setdefault(path, 0)
                pieces = self._pieces(path)
                yield from (piece for piece in pieces if piece.text.strip())
                if not all_of_it or self.offsets[path] == before:
                    break

    def _paths(self) -> list[str]:
        """The driver's, then those of workers."""
        try:
            names = sorted(folder.name for folder in (self._root / "log").iterdir())[: 4 * MOST_LOGS]
        except OSError:
            return []
        found = [f"log/{name}/console.log" for name in names if not name.startswith(".")]
        return sorted(found, key=lambda path: (path not in self.offsets, path))[:MOST_LOGS]

    def _pieces(self, path: str) -> list[Piece]:
        data = read_piece(self._root / path, self.offsets[path], most=MOST_BYTES)
        whole = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if len(data) - whole > LONGEST_BYTES:
            whole = len(data)
        self.offsets[path] += whole
        pieces = [Piece(path, piece.decode(errors="replace"), whole=True) for piece in _END.split(data[:whole])]
        return [*pieces, Piece(path, data[whole:].decode(errors="replace"), whole=False)]


def last_line(path: Path) -> str:
    """With text in it, as a person sees it; empty where there is none."""
    try:
        begins = max(0, path.stat(follow_symlinks=False).st_size - LAST_BYTES)
    except OSError:
        return ""
    lines = without_escapes(read_piece(path, begins, most=LAST_BYTES).decode(errors="replace")).split("\n")
    return next((shown[:LONGEST_SHOWN] for line in reversed(lines) if (shown := line.rstrip("\r").split("\r")[-1].strip())), "")


def without_escapes(text: str) -> str:
    """Colours and the like left out."""
    return _ESCAPES.sub("", text)
