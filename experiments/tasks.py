"""Celery tasks: short, idempotent, level-triggered from the database. Each calls one service; a lost or repeated message never harms."""

from __future__ import annotations

import logging

from celery import shared_task
from django.conf import settings
from django.utils import timezone

from experiments import deliveries, fleet, ingest, pruning, scheduling, states
from experiments.models import Node
from training_runtime.errors import HostUnavailable
from training_runtime.host import client

log = logging.getLogger(__name__)
APPLY_TIMEOUT_S = 10.0


@shared_task
def schedule() -> None:
    """Plan, tell of those that have been without slots for a while, and make sure that every node is heard of."""
    now = timezone.now()
    scheduling.tick(now)
    states.tell_suspended(now)
    fleet.nudge_silent(now)


@shared_task
def apply_node(name: str) -> None:
    """Make what runs on this machine equal to what the database grants. On the node's own queue."""
    node, _ = Node.objects.get_or_create(name=name)
    try:
        observation = client.apply(settings.EDT_HOME, name, fleet.wanted(node, now=timezone.now()), timeout_s=APPLY_TIMEOUT_S)
    except HostUnavailable as error:
        log.warning("Node %s: %s", name, error)  # its runs go on; beat asks again
        return
    fleet.record(observation, now=timezone.now())


@shared_task
def ingest_run(run_id: int) -> None:
    """Take in what the run's journal has got since."""
    ingest.catch_up(run_id, now=timezone.now(), most_batches=ingest.TURN_BATCHES)


@shared_task
def ingest_all() -> None:
    """The safety net behind `ingest_run`."""
    ingest.catch_up_all(timezone.now())


@shared_task
def deliver() -> None:
    """Send e-mails and webhooks that are due, and go on while there are any."""
    while deliveries.send_due(timezone.now()):
        pass


@shared_task
def prune() -> None:
    """Remove what nobody refers to any more."""
    pruning.prune(timezone.now())
