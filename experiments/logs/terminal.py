"""What a log looks like on a terminal: a progress bar is one line there, and in the file a line for each time it was drawn. Pure; the page
does the same with what comes later (static/js/terminal.js)."""

from __future__ import annotations

import re
from dataclasses import dataclass

_PIECES = re.compile(r"\r?\n|\r|\x1b\[([0-9;?]*)([ -/]*[@-~])|\x1b.?|[^\r\n\x1b]+")
_MOVED = re.compile(r"[\r\x1b]")


@dataclass(frozen=True)
class Screen:
    """`text` as it is shown; what comes next is written `up` lines above the last one."""

    text: str
    up: int = 0


def render_screen(text: str) -> Screen:
    """Carriage returns write a line again, the cursor goes up and down as tqdm moves it, colours and other sequences are dropped."""
    if not _MOVED.search(text):
        return Screen(text)
    rows: list[list[str]] = [[]]  # of pieces: a line of very many colours is not copied for each
    row, anew = 0, False
    for found in _PIECES.finditer(text):
        piece, final = found.group(), found[2]
        if piece[-1] == "\n":
            row, anew = row + 1, True
            if row == len(rows):
                rows.append([])
        elif piece == "\r":
            anew = True
        elif final == "A":
            row = max(0, row - _count(found[1]))
        elif final == "B":
            row = min(len(rows) - 1, row + _count(found[1]))
        elif final == "K":
            if anew or found[1] == "2":
                rows[row] = []
        elif piece[0] != "\x1b":
            if anew:
                rows[row] = []
            rows[row].append(piece)
            anew = False
    return Screen("\n".join("".join(each).rstrip(" ") for each in rows), len(rows) - 1 - row)


def line(text: str) -> str:
    """One line of a log, as it stood at last."""
    return render_screen(text).text


def _count(parameter: str) -> int:
    return max(1, min(1000, int(parameter))) if parameter.isdecimal() else 1
