"""Which modules of packages a run has imported, and which variables were set before that: for the node host, which may have all of it done
before the next such run begins, and for the agent of torchrun, which may before the next start.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from types import ModuleType

from training_runtime.errors import ProtocolError
from training_runtime.imported import Imported, SetBefore
from training_runtime.records import build

MOST_MODULES, MOST_BYTES, MOST_VARIABLES = 20_000, 900_000, 500
_INSTALLED = ("/site-packages/", "/dist-packages/")
_there: frozenset[str] = frozenset()  # before any package of the run's
_variables: dict[str, str] = {}  # as they were last looked at
_changes: list[tuple[str, dict[str, str | None]]] = []  # those found since, and the module that was there last
_tells: tuple[int, int, tuple[int, int]] | None = None  # a file in memory that shows it to another process, who writes it, and which it is
_told_at = 0.0
_TELL_S = 0.1


class _Watch:
    """Finds nothing. At each import of a package or of a module beside the script it looks what variables have changed."""

    def find_spec(self, fullname: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None) -> None:
        with suppress(Exception):  # of the script's other threads, which import and set variables as well: its import is what counts
            if "." not in fullname:
                _look()
            _tell()


def begin(tells: int = -1) -> None:
    """In a process that has just been forked, and again when its environment is that of its run: what is there now nobody has set.
    `tells`: a file in memory in which it is from here on, as it grows."""
    global _there, _variables, _tells
    _there, _variables = _there or frozenset(sys.modules), dict(os.environ)
    _tells = (tells, os.getpid(), _identity(tells)) if tells >= 0 else None
    end()
    sys.meta_path.insert(0, _Watch())


def end() -> None:
    """In a process that tells nobody of it."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _Watch)]


def so_far() -> Imported:
    """In the order in which their import began. Modules of the script, and of the standard library, are left out: the one may not be
    imported before there is a run, the other come with who needs them. Nothing where it is too much to tell."""
    modules = [(name, module) for name, module in list(sys.modules.items()) if name not in _there]
    names = [name for name, module in modules if _is_installed(_file_of(module))][:MOST_MODULES]
    said = _set_before(names)
    size = sum(len(name) + 3 for name in names) + sum(len(each.before) + len(each.name) + len(each.value or "") + 40 for each in said)
    return Imported(tuple(names), said) if size < MOST_BYTES and len(said) <= MOST_VARIABLES else Imported(())


def read(file: int) -> Imported | None:
    """What a process has told in there; None where it has not, or is at it."""
    try:
        return build(Imported, json.loads(os.pread(file, 2 * MOST_BYTES, 0)))
    except (ValueError, RecursionError, ProtocolError):
        return None


def _tell() -> None:
    """A file of the script's may have got the number, if it has closed what it did not know."""
    global _told_at
    if _tells is None or time.monotonic() < _told_at + _TELL_S:
        return
    _told_at = time.monotonic()
    file, process, identity = _tells
    if process != os.getpid() or _identity(file) != identity:
        return
    raw = json.dumps(dataclasses.asdict(so_far())).encode()
    os.ftruncate(file, len(raw))
    os.pwrite(file, raw, 0)


def _identity(file: int) -> tuple[int, int]:
    found = os.fstat(file)
    return found.st_dev, found.st_ino


def _look() -> None:
    global _variables
    now = dict(os.environ)
    if now == _variables:
        return
    changed = {name: now.get(name) for name in now.keys() | _variables.keys() if now.get(name) != _variables.get(name)}
    _changes.append((next(reversed(sys.modules)), changed))
    _variables = now


def _set_before(names: Sequence[str]) -> tuple[SetBefore, ...]:
    """Each change before the first of these modules that came after it."""
    order = {name: number for number, name in enumerate(list(sys.modules))}
    places = [order[name] for name in names]
    found = list[SetBefore]()
    for last, changed in _changes:
        after = next((name for name, place in zip(names, places, strict=True) if place > order.get(last, -1)), None)
        if after is not None:
            found += [SetBefore(after, name, value) for name, value in sorted(changed.items())]
    return tuple(found)


def _file_of(module: object) -> object:
    """Without asking the module, as some import others when they are asked."""
    return getattr(module, "__dict__", {}).get("__file__")


def _is_installed(file: object) -> bool:
    return isinstance(file, str) and any(part in file for part in _INSTALLED)
