"""What is said outward after a commit: messages to pages through the channel layer, and nudges to Celery. The only writer of both.

Everything here waits for the commit and never raises into the writer: the database is the truth, a lost message is made up for by
the pages' own catch-up and by beat. Message shapes are in docs/architecture.md. Tasks are sent by name: nothing imports upwards.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer
from django.db import connection, transaction

from experiments.models import TrainingRun
from webapp.celery import app

log = logging.getLogger(__name__)
Point = tuple[str, str, int, float, float | None, int, int]  # group, name, step, t, value, workers, epoch
_ended_well = {"layer": True, "broker": True}  # so that an outage is logged once, at its start and at its end


def group(topic: str) -> str:
    """The channel layer's group for a topic. Consumers join it and get events {"type": "push", "message": {...}}."""
    return "topic." + re.sub(r"[^A-Za-z0-9_.-]", "-", topic)[:90]


def changed(topic: str, *what: str) -> None:
    """Something that pages on the topic render has changed; they fetch the fragments concerned."""
    _send(topic, {"type": "changed", "topic": topic, "what": list(what)})


def slots(*, tick: int, held: Mapping[int, int], counts: Mapping[int, int]) -> None:
    """Which run holds which slot now, and how many slots each run holds."""
    message = {"held": {str(k): v for k, v in held.items()}, "counts": {str(k): v for k, v in counts.items()}}
    _send("cluster", {"type": "slots", "topic": "cluster", "tick": tick, **message})


def points(run: TrainingRun, *, after: int, seq: int, points: Sequence[Point], progress: Mapping[str, object]) -> None:
    """What journal lines `after + 1` to `seq` brought."""
    topic = f"run-{run.pk}"
    what = {"after": after, "seq": seq, "points": [list(point) for point in points], "progress": dict(progress)}
    _send(topic, {"type": "points", "topic": topic, **what})


def completed(run: TrainingRun) -> None:
    """The run has ended."""
    for topic in (f"run-{run.pk}", f"experiment-{run.experiment_id}"):
        _send(topic, {"type": "completed", "topic": topic, "run": run.pk, "state": run.state, "metrics": run.final_metrics})


def nudge_schedule() -> None:
    """Ask for a plan soon."""
    _task("experiments.tasks.schedule", queue="control", expires=30)


def nudge_node(name: str) -> None:
    """Ask the node's agent to make what runs there equal to what the database grants."""
    _task("experiments.tasks.apply_node", name, queue=f"node.{name}", expires=30)


def nudge_ingest(run_id: int) -> None:
    """Ask for the new lines of a run's journal to be read."""
    _task("experiments.tasks.ingest_run", run_id, queue="control", expires=60)


def nudge_deliveries() -> None:
    """Ask for e-mails and webhooks to be sent."""
    _task("experiments.tasks.deliver", queue="control", expires=60)


def _send(topic: str, message: dict[str, Any]) -> None:
    _after_commit(lambda: _send_now(topic, message))


def _send_now(topic: str, message: dict[str, Any]) -> None:
    layer = get_channel_layer()
    if layer is not None:
        _outward("layer", async_to_sync(layer.group_send), group(topic), {"type": "push", "message": message})


def _task(name: str, *args: object, queue: str, expires: float) -> None:
    _after_commit(lambda: _outward("broker", app.send_task, name, args, queue=queue, expires=expires, retry=False))


def _after_commit(say: Callable[[], None]) -> None:
    """At once outside a transaction, without touching the database, which may be away."""
    if connection.in_atomic_block:
        transaction.on_commit(say, robust=True)
    else:
        say()


def _outward(where: str, call: Any, /, *args: Any, **kwargs: Any) -> None:
    try:
        call(*args, **kwargs)
    except Exception as error:  # the edge to another server: whatever it raises, the writer's work is done
        if _ended_well[where]:
            log.warning("The %s cannot be reached, pages and nodes will hear of changes later: %s", where, error)
        _ended_well[where] = False
    else:
        if not _ended_well[where]:
            log.info("The %s can be reached again.", where)
        _ended_well[where] = True
