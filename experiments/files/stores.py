"""What files and folders are called in the stores of EDT_HOME, as the database says it. Pure.

The studio gives such names itself (a UUID, a number, a hash), so they were never looked at. But a database may be put back from a backup
that somebody else has had in hand, and "../../etc" or "/etc" as a run's folder would be read, given away and deleted as that run's.
"""

from __future__ import annotations

import re
from pathlib import Path

NOWHERE = "no-such-name"  # nothing is kept under it
_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z-]{0,63}")


def named(name: str) -> str:
    """The name, if it is one that the studio gives; else one under which nothing is."""
    return name if _NAME.fullmatch(name) else NOWHERE


def inside(top: Path, below: str) -> Path:
    """What is called `below` in the folder `top`, however many folders deep; where that leads out of it, also by a link, a place in it
    where nothing is."""
    try:
        found = (top / below).resolve()
    except (OSError, RuntimeError, ValueError):  # a circle of links, a NUL
        return top / NOWHERE
    return top / below if found.is_relative_to(top.resolve()) else top / NOWHERE
