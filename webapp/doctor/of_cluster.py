"""How the studio's processes and machines stand, as the database knows it, and whether the broker answers."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator

import redis
from django.conf import settings
from django.db.models import Min

from experiments.cluster import version_standing
from experiments.cluster.snapshot import is_silent
from experiments.files import pruning
from experiments.models import Delivery, Node, Slot, User
from experiments.ops import beat
from experiments.selectors import store
from webapp.doctor.findings import Finding, warning

LATE = dt.timedelta(hours=1)
STUCK = dt.timedelta(days=1)  # beyond the days in the trash
ANSWERS_WITHIN_S = 2.0


def check(now: dt.datetime) -> Iterator[Finding]:
    yield from _of_people()
    yield from _of_processes(now)
    for node in Node.objects.filter(removed_at=None).order_by("name"):
        yield from _of_node(node, now)
    for slot in Slot.objects.filter(node__removed_at=None, retired=False).exclude(out_reason="").select_related("node"):
        yield warning(f"Slot {slot.index} of {slot.node.name} is out of service: {slot.out_reason}")
    due = Delivery.objects.filter(done_at=None, next_at__lte=now - LATE).aggregate(oldest=Min("next_at"))["oldest"]
    if due is not None:
        yield warning(f"E-mails or webhooks that were due on {due:%Y-%m-%d %H:%M} UTC are not sent: see the control worker's log.")
    if (stuck := pruning.due(now - STUCK, dt.timedelta(days=settings.EDT_TRASH_DAYS)).count()) and beat.is_held(beat.CLOCK, now=now):
        yield warning(f"{stuck} deleted things should have been removed a day ago: see the control worker's log, or manage.py prune.")
    yield from _of_store(now)


def _of_people() -> Iterator[Finding]:
    if not User.objects.filter(is_active=True).exists():
        yield warning("Nobody has an account: the first start makes them, or manage.py person NAME --staff")
    elif not User.objects.filter(is_active=True, is_staff=True).exists():
        yield Finding("Nobody administers the studio: manage.py person NAME --staff")


def _of_processes(now: dt.datetime) -> Iterator[Finding]:
    if not beat.is_held(beat.CLOCK, now=now):
        yield warning("The studio does not run: nothing is planned or sent, and the broker was not asked.")
        return
    try:
        with redis.Redis.from_url(settings.REDIS_URL, socket_timeout=ANSWERS_WITHIN_S, socket_connect_timeout=ANSWERS_WITHIN_S) as broker:
            broker.ping()
    except (redis.RedisError, OSError) as error:
        yield Finding(f"The broker does not answer ({error}): see EDT_HOME/log/broker.log, or EDT_REDIS_URL.")


def _of_node(node: Node, now: dt.datetime) -> Iterator[Finding]:
    if node.last_seen_at is not None and is_silent(node, now):
        since = f"{node.last_seen_at:%Y-%m-%d %H:%M} UTC"
        yield warning(f"Machine {node.name} has not been heard of since {since}: start it again, or remove it under Cluster.")
    if node.storage_problem:
        yield Finding(f"Machine {node.name}: {node.storage_problem}")
    standing = version_standing.of(node)
    if standing.problem:
        yield Finding(f"Machine {node.name}: {standing.problem}")
    elif standing.state in ("behind", "ahead"):
        yield warning(f"Machine {node.name}: {standing.words}")


def _of_store(now: dt.datetime) -> Iterator[Finding]:
    found = store.store_status(now)
    if found.state.away_since is not None:
        yield Finding(f"The object store is away since {found.state.away_since:%Y-%m-%d %H:%M} UTC: {found.state.error}")
    if found.failed:
        yield warning(f"{len(found.failed)} things could not be copied to the object store: manage.py store status")
