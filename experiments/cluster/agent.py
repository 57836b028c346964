"""The node agent: threads of the node's Celery worker that talk to the node host. They decide nothing and write through `fleet` only.

`HostListener` listens to what the host sees and sends tasks for journals that grew. `Heartbeat` makes what runs here equal to what the
database grants every few seconds, which is also how the studio knows that the node is there: it depends on neither the broker nor anybody's
nudge.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import close_old_connections, connection
from django.db.utils import Error as DatabaseError

from experiments.cluster import desired, fleet
from experiments.live import notify
from experiments.models import Node
from experiments.ops import clock
from experiments.ops.loops import Loop
from training_runtime.errors import HostUnavailable
from training_runtime.host import client
from training_runtime.host.client import OtherVersion
from training_runtime.news import news, packages
from training_runtime.protocol import Observation, spoken_by

log = logging.getLogger(__name__)
QUEUE_PREFIX = "node."
NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")  # as the host takes it
GREW_PAUSE_S = 0.1  # a run's journal is announced at most so often; its last growth always is
BACKOFF_S = (0.2, 0.5, 1.0, 2.0, 5.0)
HEARTBEAT_S = 4.0
APPLY_TIMEOUT_S = 10.0
_threads: list[HostListener] = []


def apply(home: Path, name: str) -> None:
    """Make what runs on the node equal to what the database grants, and record what its host sees then. Raises HostUnavailable."""
    node, _ = Node.objects.get_or_create(name=name)
    try:
        observation = client.apply(home, name, desired.desired_state(node, now=clock.now()), timeout_s=APPLY_TIMEOUT_S)
    except OtherVersion as error:
        fleet.note_version(node, error.spoken)
        raise
    fleet.note_version(node, spoken_by(observation))
    fleet.record(observation, now=clock.now())


class Heartbeat(Loop):
    """Applies the desired state every few seconds, so that a change whose nudge was lost takes effect too, and the node counts as
    online."""

    def __init__(self, home: Path, node: str) -> None:
        super().__init__(f"Heartbeat of node {node}", every_s=HEARTBEAT_S)
        self.home = home
        self.node = node

    def turn(self) -> None:
        apply(self.home, self.node)


class HostListener(threading.Thread):
    """Listens to the host of `node` until `stop` is set, through its restarts and those of the database. Wakes `heartbeat` whenever it
    reaches the host anew: what that missed while nobody was here."""

    def __init__(self, home: Path, node: str, heartbeat: Heartbeat) -> None:
        super().__init__(name=f"listener-{node}", daemon=True)
        self.home = home
        self.node = node
        self.heartbeat = heartbeat
        self.stop = threading.Event()
        self.journals = Journals(self.stop)
        self._seen: tuple[object, ...] = ()
        self._said: tuple[object, object] = (None, None)

    def run(self) -> None:
        self.journals.start()
        failures = 0
        while not self.stop.is_set():
            try:
                for number, observation in enumerate(client.subscribe(self.home, self.node, stop=self.stop)):
                    if number == 0:
                        self.heartbeat.wake()
                    self.take_in(observation)
                    failures = 0
            except HostUnavailable as error:
                log.log(logging.WARNING if failures == 0 else logging.DEBUG, "Node %s: %s", self.node, error)
            except DatabaseError as error:
                log.log(logging.WARNING if failures == 0 else logging.DEBUG, "Node %s: the database: %s", self.node, error)
                self._seen = ()
            except Exception:  # the edge of the thread: a row nobody thought of
                log.exception("Node %s: what its host said could not be taken in; it is asked again.", self.node)
                self._seen = ()
            finally:
                close_old_connections()
            self.stop.wait(BACKOFF_S[min(failures, len(BACKOFF_S) - 1)])
            failures += 1
        connection.close()

    def take_in(self, observation: Observation) -> None:
        """Journals that grew are announced; anything else that changed is recorded."""
        self.journals.grew((run.run, run.journal_bytes) for run in observation.runs)
        facts = (*news(observation), *self._packages(observation))
        if facts != self._seen:
            close_old_connections()
            fleet.record(observation, now=clock.now())
            self._seen = facts

    def _packages(self, observation: Observation) -> tuple[object, object]:
        """The environments and folders of the observation; the last known ones if it leaves them out, as one about journal growth does."""
        if observation.folders is not None:
            self._said = packages(observation)
        return self._said


class Journals(threading.Thread):
    """Announces journals that grew, each at most every GREW_PAUSE_S and never leaving out the last growth."""

    def __init__(self, stop: threading.Event) -> None:
        super().__init__(name="listener-journals", daemon=True)
        self.stop = stop
        self._known: dict[int, int] = {}
        self._waiting: set[int] = set()
        self._changed = threading.Condition()

    def grew(self, sizes: Iterable[tuple[int, int]]) -> None:
        """Record the journals' sizes, in bytes."""
        with self._changed:
            latest = dict(sizes)
            grown = {run for run, size in latest.items() if self._known.get(run) != size and size}
            self._known = latest
            if grown:
                self._waiting |= grown
                self._changed.notify()

    def run(self) -> None:
        while not self.stop.is_set():
            with self._changed:
                self._changed.wait_for(lambda: self._waiting, timeout=1.0)
                grown, self._waiting = self._waiting, set()
            for run in sorted(grown):
                notify.nudge_ingest(run)
            if grown:
                self.stop.wait(GREW_PAUSE_S)  # what grows meanwhile is announced after it, once


def nodes_of(queues: Iterable[str]) -> list[str]:
    """The nodes whose queues a worker consumes."""
    return [name.removeprefix(QUEUE_PREFIX) for name in queues if name.startswith(QUEUE_PREFIX)]


def listen(sender: Any, **_: object) -> None:
    """Start a listener and a heartbeat for each node whose queue this worker consumes."""
    for node in nodes_of(sender.app.amqp.queues.consume_from):
        with sender.app.connection_for_write() as broker:  # nudges from before: the heartbeat makes up for them
            broker.default_channel.queue_purge(QUEUE_PREFIX + node)
        listener = HostListener(settings.EDT_HOME, node, Heartbeat(settings.EDT_HOME, node))
        listener.heartbeat.start()
        listener.start()
        _threads.append(listener)
        log.info("Listening to the host of node %s.", node)


def leave(**_: object) -> None:
    """Tell the threads to stop. Does not wait for them."""
    for listener in _threads:
        listener.stop.set()
        listener.heartbeat.end()
