"""The end of a script whose process goes on after it, as the interpreter makes it: what a script has left to be done there (a logger that
writes its last figures, a thread that still saves, a file that nobody has closed) is done, and only then is it over.

Not done, since it would leave nothing to go on with: modules are not taken down, so no `__del__` of what they hold is called.
"""

from __future__ import annotations

import atexit
import gc
import io
import sys
import threading
import traceback
from contextlib import suppress

_BUFFERED = (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)


def conclude() -> None:
    """On the main thread, once. Waits for the threads that are no daemons; those of the script that it does not end go on being waited
    for."""
    for step in (threading._shutdown, atexit._run_exitfuncs):  # type: ignore[attr-defined]
        try:
            step()
        except BaseException:  # a signal's handler may raise whatever it likes; the interpreter prints that and goes on
            sys.stderr.write(traceback.format_exc())
    _flush_files()


def _flush_files() -> None:
    """Those that are still open."""
    for each in gc.get_objects():
        if issubclass(type(each), _BUFFERED):  # isinstance would ask each object in the process
            with suppress(OSError, ValueError):  # a full disk, or a pipe that nobody reads; closed
                each.flush()
