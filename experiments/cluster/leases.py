"""Machines that have joined and are not heard of any more. Each has stopped by itself when its lease was over
(`training_runtime.host.lease`), so nobody has to say that it is lost: its slots are freed, and its runs go on elsewhere from the last
state that has arrived here.

Whoever was away itself cannot tell: a process that has just begun waits for as long as it would wait for a machine. So does one whose clock
was put forward or back (or that was stopped while the clock went on): by that clock no machine was heard of lately.
"""

from __future__ import annotations

import datetime as dt
import logging
from dataclasses import dataclass

from django.conf import settings
from django.db.models import Q

from experiments.cluster import fleet, joining, losses
from experiments.models import Grant, Node, TrainingRun
from experiments.models.runs import LIVE

log = logging.getLogger(__name__)
LEASES = 6  # of silence: the studio stops telling it what is wanted after one lease, its own is over after another; the rest is for leaving


@dataclass
class Watch:
    """Of this process: since when it watches (monotonic), and when it looked last, by both clocks."""

    since: float
    looked_at: dt.datetime
    looked: float

    def goes_on(self, now: dt.datetime, monotonic: float, *, jump_s: float) -> None:
        """Anew where the clock has gone another way than the monotonic one by more than `jump_s`."""
        if abs((now - self.looked_at).total_seconds() - (monotonic - self.looked)) > jump_s:
            log.warning("The clock was put to %s: machines are given time to be heard of.", now)
            self.since = monotonic
        self.looked_at, self.looked = now, monotonic


_watching: list[Watch] = []


def take_leave(name: str, *, now: dt.datetime, reason: str = "") -> int:
    """The machine of that name has shut down and left nothing running: free its slots and move its runs. Returns how many runs."""
    node = Node.objects.get(name=name, joined=True)
    fleet.depart(node, now=now)
    reason = reason or f"{name} has been ended, as it said."
    moved, ended = losses.abandon(node, now=now, reason=reason)
    log.info("%s runs=%d", reason, moved + ended)
    return moved + ended


def departed(number: int, incarnation: int, name: str, now: dt.datetime) -> None:
    """The machine with that token says that it has ended; what an older incarnation says counts no more."""
    if joining.is_current(number, incarnation):
        take_leave(name, now=now)


def end_overdue(now: dt.datetime, *, monotonic: float) -> list[str]:
    """Give up machines whose lease is over; returns their names."""
    if not _watching:
        _watching.append(Watch(monotonic, now, monotonic))
    _watching[0].goes_on(now, monotonic, jump_s=settings.EDT_NODE_LEASE_S)
    lost_after_s = LEASES * settings.EDT_NODE_LEASE_S
    if monotonic < _watching[0].since + lost_after_s:
        return []
    ended = []
    lost_after = dt.timedelta(seconds=lost_after_s)
    silent = Q(last_seen_at__lt=now - lost_after) | Q(last_seen_at__gt=now + lost_after)  # the latter: not since the clock was put back
    for node in Node.objects.filter(silent, joined=True):
        if not joining.lease_s(node.name):
            continue
        held = Grant.objects.filter(slot__node=node, released_at__isnull=True).exists()
        if not held and not TrainingRun.objects.filter(head_node=node, state__in=LIVE).exists():
            continue
        reason = f"{node.name} has not been heard of for {lost_after_s:g} s, so its lease is over."
        runs, _ = losses.abandon(node, now=now, reason=reason)
        log.warning("%s runs=%d", reason, runs)
        ended.append(node.name)
    return ended
