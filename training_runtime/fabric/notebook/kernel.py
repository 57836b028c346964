"""Whether this process is a notebook's kernel. Imports nothing: a script that is no notebook pays nothing for asking."""

from __future__ import annotations

import sys


def running() -> bool:
    """A kernel's interpreter says so itself; IPython in a terminal has none."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None
