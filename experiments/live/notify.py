"""Sends messages to pages (through the channel layer) and nudges to Celery, after a commit. The only sender of both.

Everything here waits for the commit and never raises into the writer: the database is the truth, a lost message is made up for by
the pages' own catch-up and by beat. Message shapes are in docs/architecture.md. Tasks are sent by name: nothing imports upwards.

Whoever changes many rows does it inside `together`: what is said then is merged and leaves in one go. A task that is asked for again before
it has begun is sent once: see `begun`.
"""

from __future__ import annotations

import contextlib
import logging
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer
from django.core.cache import cache, caches
from django.db import connection, transaction
from kombu import pools

from experiments.live.page_layer import PageLayer
from experiments.models import TrainingRun
from webapp.celery import app

log = logging.getLogger(__name__)
Point = tuple[str, str, int, float, float | None, int, int]  # group, name, step, t, value, workers, epoch
Message = tuple[str, dict[str, Any]]  # topic, what is said
SCHEDULE = "schedule"
TRIGGERS = "triggers"
IMPORTS = "imports"
SEARCHES = "searches"
STORE = "store"

PAUSE_S = 1.0  # after a failure nothing is tried for so long: a writer with ten things to say waits for a server that is away once
_failed_at: dict[str, float] = {}  # monotonic time of the last failure, while it lasts; so an outage is logged once, at its start and end


@dataclass(frozen=True)
class Task:
    """A task by name. `expires`: seconds after which it is no use any more. `once`: what it is called while it waits, where one waiting is
    enough."""

    name: str
    args: tuple[object, ...]
    queue: str
    expires: float | None
    once: str = ""


@dataclass
class Outbox:
    """The messages that a thread sends when its `together` ends."""

    messages: list[Message] = field(default_factory=list)
    tasks: dict[Task, None] = field(default_factory=dict)  # in order, each once


class _Thread(threading.local):
    outbox: Outbox | None = None


_thread = _Thread()


@contextlib.contextmanager
def together() -> Iterator[None]:
    """Collect the messages sent within, also by commits, and send them at the end, equal ones once. May be nested."""
    if _thread.outbox is not None:
        yield
        return
    outbox = _thread.outbox = Outbox()
    try:
        yield
    finally:  # what was committed before something went wrong is true all the same
        _thread.outbox = None
        for task in outbox.tasks:
            _send_task(task)
        if outbox.messages:
            _publish(merged(outbox.messages))


def disconnect() -> None:
    """Close this thread's connections to the broker and the channel layer, before a fork; the next message opens new ones."""
    layer = get_channel_layer()
    if isinstance(layer, PageLayer):
        layer.disconnect()
    with contextlib.suppress(AttributeError):  # none was made
        del caches["default"]
    pools.reset()  # type: ignore[no-untyped-call]
    app._after_fork()  # Celery's own way to forget them, which it takes in children that it forks itself


@contextlib.contextmanager
def unheard() -> Iterator[None]:
    """Send nothing of what is said within: the studio is being prepared, and nobody is there yet who could hear it."""
    _thread.outbox = Outbox()
    try:
        yield
    finally:
        _thread.outbox = None


def merged(messages: Sequence[Message]) -> list[Message]:
    """The same with one "changed" and one "apply" for each topic, where the first one was: they carry no data, so nothing depends on their
    place."""
    kinds: dict[str, dict[str, None]] = {}
    for topic, message in messages:
        if message["type"] == "changed":
            kinds.setdefault(topic, {}).update(dict.fromkeys(message["what"]))
    found: list[Message] = []
    for topic, message in messages:
        if message["type"] == "apply" and (topic, message) in found:
            continue
        if message["type"] != "changed":
            found.append((topic, message))
        elif topic in kinds:
            found.append((topic, message | {"what": list(kinds.pop(topic))}))
    return found


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
    """The points of journal lines `after + 1` to `seq`."""
    topic = f"run-{run.pk}"
    what = {"after": after, "seq": seq, "points": [list(point) for point in points], "progress": dict(progress)}
    _send(topic, {"type": "points", "topic": topic, **what})


def completed(run: TrainingRun) -> None:
    """The run has ended."""
    for topic in (f"run-{run.pk}", f"experiment-{run.experiment_id}"):
        _send(topic, {"type": "completed", "topic": topic, "run": run.pk, "state": run.state, "metrics": run.final_metrics})


def access_changed(user_id: int) -> None:
    """The person may hear of less than before: their pages' sockets ask again at once. No page is sent this."""
    _send(f"access-{user_id}", {"type": "access"})


def nudge_schedule() -> None:
    """Ask for a plan soon."""
    _task(Task("experiments.tasks.schedule", (), "control", expires=30, once=SCHEDULE))


def nudge_node(name: str) -> None:
    """Have the machine told what should run there: whoever holds its stream hears of it."""
    _send(stream(name), {"type": "apply"})


def stream(node: str) -> str:
    """The topic of the stream of a machine, which no page is let in to."""
    return f"stream-{node}"


def nudge_ingest(run_id: int) -> None:
    """Ask for the new lines of a run's journal to be read."""
    _task(Task("experiments.tasks.ingest_run", (run_id,), "ingest", expires=60, once=ingesting(run_id)))


def nudge_prune() -> None:
    """Ask for the files and rows of what was deleted to be removed."""
    _task(Task("experiments.tasks.clear", (), "control", expires=60))


def nudge_store() -> None:
    """Ask for what is due with the object store."""
    _task(Task("experiments.tasks.use_store", (), "control", expires=60, once=STORE))


def nudge_deliveries() -> None:
    """Ask for e-mails and webhooks to be sent."""
    _task(Task("experiments.tasks.deliver", (), "control", expires=60))


def nudge_triggers() -> None:
    """Ask for what came in by triggers to be acted on."""
    _task(Task("experiments.tasks.pull_triggers", (), "control", expires=60, once=TRIGGERS))


def nudge_searches() -> None:
    """Ask for the next trials of searches for hyperparameters."""
    _task(Task("experiments.tasks.advance_searches", (), "control", expires=60, once=SEARCHES))


def nudge_imports() -> None:
    """Ask for projects that have arrived as archives to be taken in."""
    _task(Task("experiments.tasks.import_projects", (), "control", expires=60, once=IMPORTS))


def ingesting(run_id: int) -> str:
    """What the task that reads the run's journal is called while it waits."""
    return f"ingest-{run_id}"


def begun(once: str) -> None:
    """A task has begun: from now on it may be asked for again. Called before it looks at anything, so that it sees whatever was committed
    by those who were told that one is waiting already."""
    _outward("broker", cache.delete, f"waits-{once}")


def _send(topic: str, message: dict[str, Any]) -> None:
    def say() -> None:
        if _thread.outbox is not None:
            _thread.outbox.messages.append((topic, message))
        else:
            _publish([(topic, message)])

    _after_commit(say)


def _publish(messages: Sequence[Message]) -> None:
    _outward("layer", _publish_now, [(group(topic), {"type": "push", "message": message}) for topic, message in messages])


def _publish_now(events: Sequence[tuple[str, dict[str, Any]]]) -> None:
    layer = get_channel_layer()
    if isinstance(layer, PageLayer):
        layer.publish(events)
    elif layer is not None:  # a layer in memory, as tests have it
        for name, event in events:
            async_to_sync(layer.group_send)(name, event)


def _task(task: Task) -> None:
    def say() -> None:
        if _thread.outbox is not None:
            _thread.outbox.tasks[task] = None
        else:
            _send_task(task)

    _after_commit(say)


def _send_task(task: Task) -> None:
    _outward("broker", _send_once, task)


def _send_once(task: Task) -> None:
    """Unless the same is waiting. If its message is lost the next one goes out once it has expired, or beat's is first."""
    if task.once and not cache.add(f"waits-{task.once}", 1, timeout=task.expires):
        return
    # Whether a message has expired is judged by the clock of whoever takes it in, which may be another's: where a mark keeps messages from
    # piling up, none is sent with it.
    app.send_task(task.name, task.args, queue=task.queue, expires=None if task.once else task.expires, retry=False)


def _after_commit(say: Callable[[], None]) -> None:
    """Call it after the commit; at once outside a transaction, without touching the database, which may be down."""
    if connection.in_atomic_block:
        transaction.on_commit(say, robust=True)
    else:
        say()


def _outward(where: str, call: Any, /, *args: Any, **kwargs: Any) -> None:
    failed_at = _failed_at.get(where)
    if failed_at is not None and time.monotonic() - failed_at < PAUSE_S:
        return
    try:
        call(*args, **kwargs)
    except Exception as error:  # the edge to another server: whatever it raises, the writer's work is done
        if failed_at is None:
            log.warning("The %s cannot be reached, pages and nodes will hear of changes later: %s", where, error)
        _failed_at[where] = time.monotonic()
    else:
        if _failed_at.pop(where, None) is not None:
            log.info("The %s can be reached again.", where)
