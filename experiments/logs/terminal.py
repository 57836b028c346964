"""What a log looks like on a terminal: a progress bar is one line there, and in the file a line for each time it was drawn. Pure; the page
does the same with what comes later (static/js/terminal.js)."""

from __future__ import annotations

import re
from dataclasses import dataclass

_PIECES = re.compile(r"\r?\n|\r|\x08+|\x1b\[([0-9;?]*)([ -/]*[@-~])|\x1b.?|[^\r\n\x08\x1b]+")
_MOVED = re.compile(r"[\r\x08\x1b]")
LONGEST_OVERWRITTEN = 4096  # characters of a row in which the cursor goes back


@dataclass(frozen=True)
class Screen:
    """`text` as it is shown; what comes next is written `up` lines above the last one."""

    text: str
    up: int = 0


def render_screen(text: str) -> Screen:
    """Carriage returns write a line again, backspaces a part of it, the cursor goes up and down as tqdm moves it, colours and other
    sequences are dropped."""
    if not _MOVED.search(text):
        return Screen(text)
    rows: list[list[str]] = [[]]  # of pieces: a line of very many colours is not copied for each
    row, anew, back = 0, False, 0
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
        elif piece[0] == "\b":
            back = len(piece)
            continue
        elif piece[0] != "\x1b":
            if anew:
                rows[row] = []
            if back:
                rows[row] = _overwritten(rows[row], back, piece)
            else:
                rows[row].append(piece)
            anew = False
        back = 0
    return Screen("\n".join("".join(each).rstrip(" ") for each in rows), len(rows) - 1 - row)


def _overwritten(pieces: list[str], back: int, piece: str) -> list[str]:
    """The row after `piece` was written `back` characters before its end."""
    if len(pieces) > LONGEST_OVERWRITTEN or sum(map(len, pieces)) > LONGEST_OVERWRITTEN:
        pieces.append(piece)
        return pieces
    row = "".join(pieces)
    at = max(0, len(row) - back)
    return [row[:at] + piece + row[at + len(piece) :]]


def line(text: str) -> str:
    """One line of a log, as it stood at last."""
    return render_screen(text).text


def _count(parameter: str) -> int:
    return max(1, min(1000, int(parameter))) if parameter.isdecimal() else 1
