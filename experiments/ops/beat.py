"""The clock behind the events: a thread of the control worker that sends the tasks of CELERY_BEAT_SCHEDULE when they are due.

Of several control workers one sends, the one that holds the lease; another takes over when that has not renewed it for a while. It is no
Celery beat: that is a process that nobody watches, and it keeps time by the wall clock.
"""

from __future__ import annotations

import datetime as dt
import os
import socket
import time
import uuid
from collections.abc import Callable
from typing import Any

from django.db.models import Q

from experiments.models import Lease
from experiments.ops import clock
from experiments.ops.loops import Loop

QUEUE = "control"
CLOCK = "beat"  # the lease of the one that sends
TURN_S = 1.0
LEASE_S = 5.0  # within which and a turn another takes over; one that was only slow harms nobody, for every task may come twice
RENEWED_S = 3.0  # so long before its end a lease is renewed: a write every two seconds
_threads: list[Beat] = []


def hold(name: str, *, holder: str, now: dt.datetime) -> bool:
    """Take or renew the lease of that name; False where somebody else has it. One statement decides, so two can never both get it; who has
    it for a while yet, or sees that another has, writes nothing.

    One that lasts longer than any is given is from before the clock was put back: it is over.
    """
    until = now + dt.timedelta(seconds=LEASE_S)
    found, _ = Lease.objects.get_or_create(name=name, defaults={"holder": holder, "until": now})
    if now < found.until <= until and (found.holder != holder or found.until > now + dt.timedelta(seconds=RENEWED_S)):
        return found.holder == holder
    mine_or_over = Q(holder=holder) | Q(until__lte=now) | Q(until__gt=until)
    return Lease.objects.filter(mine_or_over, name=name).update(holder=holder, until=until) == 1


def is_held(name: str, *, now: dt.datetime) -> bool:
    """Whether somebody has the lease of that name, by the same measure."""
    return Lease.objects.filter(name=name, until__gt=now, until__lte=now + dt.timedelta(seconds=LEASE_S)).exists()


class Beat(Loop):
    """Sends each entry of `schedule` (as Celery's beat has it: task, seconds, options) through `send` whenever it is due."""

    def __init__(self, schedule: dict[str, dict[str, Any]], send: Callable[..., object]) -> None:
        super().__init__("The clock", every_s=TURN_S)
        self.schedule = schedule
        self.send = send
        self.holder = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        self._due = dict.fromkeys(schedule, 0.0)

    def turn(self) -> None:
        self.send_due(time.monotonic())

    def send_due(self, now: float) -> list[str]:
        """`now` is monotonic. The names of the entries that were sent. A turn that comes late sends once, not as often as it missed."""
        if not hold(CLOCK, holder=self.holder, now=clock.now()):
            return []
        due = [name for name in self.schedule if now >= self._due[name]]
        for name in due:
            entry = self.schedule[name]
            self._due[name] = now + float(entry["schedule"])
            self.send(entry["task"], retry=False, **entry.get("options", {}))
        return due


def listen(sender: Any, **_: object) -> None:
    """Start the clock where the worker consumes the queue of the control worker."""
    if QUEUE in sender.app.amqp.queues.consume_from:
        beat = Beat(sender.app.conf.beat_schedule, sender.app.send_task)
        beat.start()
        _threads.append(beat)


def leave(**_: object) -> None:
    """Let the thread end by itself."""
    for beat in _threads:
        beat.end()
