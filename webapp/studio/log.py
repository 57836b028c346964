"""The logs in EDT_HOME/log: every process writes straight to its own file, so that none depends on a reader; this shows the new lines."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TextIO

from training_runtime.log_rotation import rotate

LONGEST_PIECE = 1 << 20
COLOURS = (36, 32, 33, 35, 34)


def path_of(home: Path, name: str) -> Path:
    return home / "log" / f"{name}.log"


def open_for(home: Path, name: str) -> IO[bytes]:
    """The file that a process writes to, appended to and private to this user."""
    return open(path_of(home, name), "ab", opener=lambda path, flags: os.open(path, flags, 0o600))


@dataclass
class Tail:
    """Whole lines that appear in a file from now on."""

    path: Path
    offset: int = 0

    def __post_init__(self) -> None:
        self.offset = self.path.stat().st_size if self.path.exists() else 0

    def new_lines(self) -> list[str]:
        try:
            size = self.path.stat().st_size
        except FileNotFoundError:
            return []
        if size < self.offset:  # it was rotated
            self.offset = 0
        if size == self.offset:
            return []
        with open(self.path, "rb") as file:
            file.seek(self.offset)
            piece = file.read(LONGEST_PIECE)
        end = piece.rfind(b"\n") + 1 or (len(piece) if len(piece) == LONGEST_PIECE else 0)
        self.offset += end
        return piece[:end].decode(errors="replace").splitlines()


@dataclass
class Terminal:
    """What a person sees: the processes' lines with their name in front, and the studio's own sentences. `show` False: nothing of it."""

    home: Path
    names: tuple[str, ...]
    show: bool = True
    out: TextIO = field(default_factory=lambda: sys.stdout)

    def __post_init__(self) -> None:
        self._tails = {name: Tail(path_of(self.home, name)) for name in self.names}
        if isinstance(self.out, io.TextIOWrapper):
            self.out.reconfigure(errors="backslashreplace")  # a character that this terminal has not
        self._colour = self.out.isatty() and "NO_COLOR" not in os.environ

    def say(self, sentence: str) -> None:
        """A sentence of the studio itself, on the terminal and in studio.log, if that can be written to."""
        with contextlib.suppress(OSError), open_for(self.home, "studio") as file:
            file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {sentence}\n".encode(errors="backslashreplace"))
        self._print([self._line("studio", 0, sentence)] if self.show else [])

    def show_new(self) -> None:
        for place, (name, tail) in enumerate(self._tails.items()):
            lines = tail.new_lines()
            if self.show:
                self._print(self._line(name, COLOURS[place % len(COLOURS)], _harmless(line)) for line in lines)

    def rotate(self) -> None:
        """Every log, also those that are not shown."""
        for path in (self.home / "log").glob("*.log"):
            rotate(path)

    def _line(self, name: str, colour: int, text: str) -> str:
        label = f"{name:<8}|"
        return f"\x1b[{colour}m{label}\x1b[0m {text}" if self._colour and colour else f"{label} {text}"

    def _print(self, lines: Iterable[str]) -> None:
        """A terminal that has gone away must not stop the studio."""
        try:
            for line in lines:
                print(line, file=self.out)
            self.out.flush()
        except OSError:
            self.show = False


def _harmless(line: str) -> str:
    """Without control characters: a log line may carry what a user has typed."""
    return "".join(c if c.isprintable() or c == "\t" else "�" for c in line)


def last_lines(home: Path, name: str, *, count: int = 8) -> list[str]:
    path = path_of(home, name)
    if not path.exists():
        return []
    with open(path, "rb") as file:
        file.seek(max(0, path.stat().st_size - 8192))
        return [_harmless(line) for line in file.read().decode(errors="replace").splitlines()[-count:]]
