"""Which modules of packages a run's process has imported, for the node host: it may have them imported before the next such run begins."""

from __future__ import annotations

import sys
from itertools import islice

MOST_MODULES, MOST_BYTES = 20_000, 900_000
_INSTALLED = ("/site-packages/", "/dist-packages/")
_there: frozenset[str] = frozenset()  # before any package of the run's


def begin() -> None:
    """In a process that has just been forked; only the first time counts."""
    global _there
    _there = _there or frozenset(sys.modules)


def of_packages() -> tuple[str, ...]:
    """In the order in which their import began. Those of the script, and of the standard library, are left out: the one may not be imported
    before there is a run, the other come with who needs them."""
    modules = [(name, module) for name, module in list(sys.modules.items()) if name not in _there]
    names = [name for name, module in modules if _is_installed(getattr(module, "__file__", None))]
    return tuple(islice(names, MOST_MODULES)) if sum(len(name) + 3 for name in names) < MOST_BYTES else ()


def _is_installed(file: object) -> bool:
    return isinstance(file, str) and any(part in file for part in _INSTALLED)
