"""Celery tasks: short, idempotent, level-triggered from the database. Each calls one service; a lost or repeated message never harms."""

from __future__ import annotations

import logging
import threading
import time

from celery import shared_task

from experiments import triggers
from experiments.cluster import evictions, leases, pilots, scheduling, slot_health
from experiments.files import diskuse, pruning
from experiments.files.store import turns
from experiments.live import notify
from experiments.metrics import ingest
from experiments.notifications import deliveries
from experiments.ops import clock
from experiments.ops.pace import Pace
from experiments.runs import states
from experiments.searches import advancing
from experiments.services import deletion
from experiments.transfer import importing

log = logging.getLogger(__name__)
_pace = Pace(share=0.3)  # of its time, so much this process plans at the most: others write meanwhile, and one plan does for what they say

_holding = threading.Lock()


@shared_task
def schedule() -> None:
    """Plan, tell of those that have been without slots or without train() for a while, and end the processes of those without for long."""
    time.sleep(_pace.wait_s(time.monotonic()))
    notify.begun(notify.SCHEDULE)
    began, now = time.monotonic(), clock.now()
    scheduling.tick(now)
    _pace.took(began, time.monotonic())
    states.tell_suspended(now)
    states.tell_at_work(now)
    evictions.evict(now)


@shared_task
def look_at_slots() -> None:
    """Take slots out of service on which workers keep dying."""
    slot_health.look(clock.now())


@shared_task
def hold_capacity() -> None:
    """Hold as many machines of engines that lend them as was decided. One at a time: an engine that keeps silent until it is given up would
    have all threads wait for it that plan as well."""
    if _holding.acquire(blocking=False):
        try:
            pilots.look(clock.now())
        finally:
            _holding.release()


@shared_task
def end_leases() -> None:
    """Free what machines hold that have joined and are not heard of any more: they have stopped by themselves."""
    leases.end_overdue(clock.now(), monotonic=time.monotonic())


@shared_task
def ingest_run(run_id: int) -> None:
    """Take in what the run's journal has got since."""
    notify.begun(notify.ingesting(run_id))
    ingest.catch_up(run_id, now=clock.now(), most_batches=ingest.TURN_BATCHES)


@shared_task
def ingest_all() -> None:
    """The safety net behind `ingest_run`."""
    ingest.catch_up_all(clock.now())


@shared_task
def deliver() -> None:
    """Send e-mails and webhooks that are due, and go on while there are any."""
    while deliveries.send_due(clock.now):
        pass


@shared_task
def pull_triggers() -> None:
    """Act on what came in by triggers."""
    notify.begun(notify.TRIGGERS)
    triggers.pull_all(clock.now())


@shared_task
def advance_searches() -> None:
    """Begin the next trials of searches for hyperparameters."""
    notify.begun(notify.SEARCHES)
    advancing.advance_all(clock.now())


@shared_task
def import_projects() -> None:
    """Take in the projects that have arrived as archives."""
    notify.begun(notify.IMPORTS)
    importing.go_on(clock.now)


@shared_task
def count_disk() -> None:
    """See what runs take of the disk."""
    diskuse.count(clock.now())


@shared_task
def use_store() -> None:
    """A turn of what is due with the object store, and another one if there is more."""
    notify.begun(notify.STORE)
    if turns.turn():
        notify.nudge_store()


@shared_task
def prune() -> None:
    """Remove what expires, and begin with what was deleted."""
    now = clock.now()
    more = clock.is_steady(now) and pruning.prune(now)
    if deletion.go_on(clock.now()) or more:  # last, so that a project that cannot be removed keeps nothing else
        notify.nudge_prune()


@shared_task
def clear() -> None:
    """A turn of removing what was deleted, and another one if there is more: turns of plans and journals come in between."""
    now = clock.now()
    more = clock.is_steady(now) and pruning.clear(now)
    if deletion.go_on(clock.now()) or more:
        notify.nudge_prune()
