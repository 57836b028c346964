"""A run's data where scripts of tutorials look for it: what such a script calls `./data` or `../data` is a folder of its own, in which each
entry of the run's data folder is a link. `MNIST("../data", download=True)` then finds what it would download; what it does not find it may
write beside. Nothing is there where its code has a folder of that name, or names none.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from collections.abc import Iterator
from pathlib import Path

from training_runtime import notebooks

MOST_ENTRIES = 1000  # of a data folder; one with more is for scripts that know of DATA_DIR
MOST_FILES, MOST_BYTES = 200, 4 << 20  # of code that is read for names
_NAMED = re.compile(rb"""["'](\.{1,2}/(?:data|datasets?))(?:/[^"'\n]*)?["']|\broot\s*=\s*["'](data)["']""")
_MAKES = re.compile(rb"(?:mkdir|makedirs)\(\s*$")
NEAR = 160  # bytes before and behind a name, in which a script says that it minds no folder that exists


def link(data: Path, code: Path, folder: Path) -> None:
    """`folder`: the working folder, with a copy of `code` in it. At each start of the run: on another machine links lead elsewhere."""
    with contextlib.suppress(OSError):  # a full disk, say, of which who needs the disk says more
        with os.scandir(data) as found:
            entries = [entry.name for entry in itertools.islice(found, MOST_ENTRIES + 1)]
        if not 0 < len(entries) <= MOST_ENTRIES:
            return
        for name in _names(code):
            place = Path(os.path.normpath(folder / name))
            if place != folder and not (place.parent == folder and os.path.lexists(code / name)):
                _fill(place, data, entries)


def _names(code: Path) -> list[str]:
    """Of folders of data that its scripts expect to be there, or do not mind."""
    named, made = set(), set()
    for text in _scripts(code):
        for found in _NAMED.finditer(text):
            name = os.path.normpath((found[1] or found[2]).decode())
            named.add(name)
            before, behind = text[max(0, found.start() - NEAR) : found.start()], text[found.end() : found.end() + NEAR]
            if _MAKES.search(before) and b"exist" not in before + behind:
                made.add(name)  # which would fail, were it there
    return sorted(named - made)


def _scripts(code: Path) -> Iterator[bytes]:
    scripts = (Path(at, name) for at, _, names in os.walk(code) for name in sorted(names) if name.endswith((".py", notebooks.SUFFIX)))
    left = MOST_BYTES
    for path in itertools.islice(scripts, MOST_FILES):
        with path.open("rb") as file:
            text = file.read(left)
        left -= len(text)
        yield text.replace(b'\\"', b'"') if notebooks.is_notebook(path.name) else text  # which is written as JSON


def _fill(place: Path, data: Path, entries: list[str]) -> None:
    """What the script has put there itself stays."""
    if place.is_symlink():
        return
    place.mkdir(exist_ok=True)
    for name in entries:
        entry = place / name
        if entry.is_symlink() and not entry.exists():
            entry.unlink(missing_ok=True)
        with contextlib.suppress(FileExistsError):
            entry.symlink_to(data / name)
