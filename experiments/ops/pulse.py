"""Tells the supervisor that this Celery worker is alive: its message loop turns, and so do the loops beside it.

A worker whose process is stopped says nothing at once; one whose loop waits for something that never comes says nothing after LIMIT_S.
While the broker is away there is no message loop to judge.
"""

from __future__ import annotations

import time
from typing import Any

from celery import bootsteps

from experiments.ops import loops
from training_runtime import watchdog

LIMIT_S = 180.0  # a turn may wait for a locked database and for a slow host
LOOK_S = 1.0
_turned_at: dict[str, float] = {}  # of the message loop, while it is connected
_threads: list[watchdog.Thread] = []


def is_well(now: float) -> bool:
    """Whether no loop of this process is stuck. `now` is monotonic."""
    return all(now - at < LIMIT_S for at in (*_turned_at.values(), *(loop.turned_at for loop in loops.running)))


class Turning(bootsteps.StartStopStep):
    """Part of the worker's consumer: notes that its loop turns, from each connection to the broker to its end."""

    requires = ("celery.worker.consumer.tasks:Tasks",)
    _timer: Any = None

    def start(self, parent: Any) -> None:
        self._note()
        self._timer = parent.timer.call_repeatedly(LOOK_S, self._note)

    def stop(self, parent: Any) -> None:  # noqa: ARG002  (Celery passes it)
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        _turned_at.clear()

    shutdown = stop

    @staticmethod
    def _note() -> None:
        _turned_at["messages"] = time.monotonic()


def prepare(instance: Any, **_: object) -> None:
    """Before the worker is built: add the step to its consumer, and speak up from here on."""
    instance.app.steps["consumer"].add(Turning)
    thread = watchdog.Thread(is_well)
    thread.start()
    _threads.append(thread)


def leave(**_: object) -> None:
    """Nobody asks any more."""
    for thread in _threads:
        thread.stop.set()
