"""A training that is told to end (SIGTERM) saves what it has at the end of a step. Workers of one training must do so at the same step: the
first says which, by the store that they have met at.

Only who is told asks that store, so a step costs nothing, and nobody waits for its answer. A worker that is told too late is not waited for
either: it is killed when its time is up, and should the others need it to save, the run goes on from what was saved before.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any, NoReturn

from training_runtime.elastic.trainers import meeting

TOLD_TO_END = 128 + signal.SIGTERM


_around_fork = threading.local()


@functools.cache
def _watch_forks() -> None:
    """Python forgets a signal that reaches a child before its first line, where it has a handler for it: a pool that is ended as soon as it
    was begun would be waited for for ever. So it waits until the child is as it would be without us."""

    def before() -> None:
        _around_fork.mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM]) if _is_ours() else None

    def in_parent() -> None:
        if _around_fork.mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, _around_fork.mask)

    def in_child() -> None:
        if _around_fork.mask is not None:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, _around_fork.mask)

    os.register_at_fork(before=before, after_in_parent=in_parent, after_in_child=in_child)


def _is_ours() -> bool:
    return isinstance(getattr(signal.getsignal(signal.SIGTERM), "__self__", None), Interruption)


class Interruption:
    """While a training goes on: `with Interruption(...) as interruption`. `number`: of the training; `is_stopped`: whether somebody has
    stopped the run, whose process then ends by itself, as a script does."""

    def __init__(self, environment: Mapping[str, str], number: int, is_stopped: Callable[[], bool]) -> None:
        self._environment, self._key, self._is_stopped = environment, f"interrupted/{number}", is_stopped
        self.is_told = False
        self._ticks = 0
        self._last: int | None = None  # the tick at which all stop; 0 where that is not to be known

    def __enter__(self) -> Interruption:
        return self

    def __exit__(self, *_: object) -> None:
        """As it was before. Who was told in vain is told again, as the script may not hear of it otherwise."""
        if signal.getsignal(signal.SIGTERM) == self._tell:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if self.is_told:
            self.leave()

    def listen(self, is_librarys: Callable[[Any], bool] = lambda _: False) -> None:
        """From now on. A handler of the script's own is left alone, and the script with it; `is_librarys`: whether it is of a library, and
        may be replaced."""
        now = signal.getsignal(signal.SIGTERM)
        if threading.current_thread() is threading.main_thread() and (now is signal.SIG_DFL or is_librarys(now)):
            signal.signal(signal.SIGTERM, self._tell)
            _watch_forks()

    def _tell(self, _number: int, _frame: FrameType | None) -> None:
        self.is_told = True

    def is_due(self) -> bool:
        """Asked by all workers at the same places of the training, each time: whether this is where they stop."""
        self._ticks += 1
        if not meeting.has_several(self._environment):
            return self.is_told
        if self.is_told and self._last is None:
            self._last = self._agreed()
        return self._ticks == self._last

    def _agreed(self) -> int | None:
        """The tick at which all stop: the next one of the first worker, which no other gets past without it. None: nothing is known yet."""
        try:
            store = meeting.store_of(self._environment)
            if self._environment.get("RANK") == "0":
                store.set(self._key, str(self._ticks + 1))
            return int(store.get(self._key)) if store.check([self._key]) else None
        except (KeyError, ValueError, RuntimeError):
            return 0

    def leave(self) -> NoReturn:
        """The end of this process, with all saved: by the signal, as it would have been without us, or as the run's stopping has it."""
        self.is_told = False
        sys.stdout.flush()
        sys.stderr.flush()
        if "RANK" not in self._environment and not self._is_stopped():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)
        raise SystemExit(TOLD_TO_END)
