"""The node agent's ear: a thread of the node's Celery worker that listens to the node host and passes on what it hears. Decides nothing.

It writes through fleet only, and sends tasks for journals that grew. Whatever it does is also done by beat, later: it may die at any time.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from celery.signals import worker_ready, worker_shutting_down
from django.conf import settings
from django.db import close_old_connections, connection
from django.utils import timezone

from experiments import fleet, notify
from training_runtime.errors import HostUnavailable
from training_runtime.host import client
from training_runtime.protocol import Observation, RunObservation

log = logging.getLogger(__name__)
QUEUE_PREFIX = "node."
GREW_PAUSE_S = 0.1  # a run's journal is announced at most so often; its last growth always is
BACKOFF_S = (0.2, 0.5, 1.0, 2.0, 5.0)
_threads: list[Ear] = []


class Ear(threading.Thread):
    """Listens to the host of `node` until `stop` is set, through its restarts and those of the database."""

    def __init__(self, home: Path, node: str) -> None:
        super().__init__(name=f"ear-{node}", daemon=True)
        self.home = home
        self.node = node
        self.stop = threading.Event()
        self.journals = Journals(self.stop)
        self._seen: tuple[object, ...] = ()

    def run(self) -> None:
        self.journals.start()
        failures = 0
        while not self.stop.is_set():
            try:
                for number, observation in enumerate(client.subscribe(self.home, self.node, stop=self.stop)):
                    if number == 0:
                        notify.nudge_node(self.node)  # what the host missed while nobody was here
                    failures = 0
                    self.hear(observation)
            except HostUnavailable as error:
                log.log(logging.WARNING if failures == 0 else logging.DEBUG, "Node %s: %s", self.node, error)
            except Exception:  # the edge of the thread: a database that is away, a row nobody thought of
                log.exception("Node %s: what its host said could not be taken in; it is asked again.", self.node)
                self._seen = ()
            finally:
                close_old_connections()
            self.stop.wait(BACKOFF_S[min(failures, len(BACKOFF_S) - 1)])
            failures += 1
        connection.close()

    def hear(self, observation: Observation) -> None:
        """Journals that grew are announced; anything else that changed is recorded."""
        self.journals.grew((run.run, run.journal_bytes) for run in observation.runs)
        facts = (observation.node, observation.revision, tuple(_without_journal(run) for run in observation.runs))
        if facts != self._seen:
            close_old_connections()
            fleet.record(observation, now=timezone.now())
            self._seen = facts


class Journals(threading.Thread):
    """Announces journals that grew, each at most every GREW_PAUSE_S and never leaving out the last growth."""

    def __init__(self, stop: threading.Event) -> None:
        super().__init__(name="ear-journals", daemon=True)
        self.stop = stop
        self._known: dict[int, int] = {}
        self._waiting: set[int] = set()
        self._changed = threading.Condition()

    def grew(self, sizes: Iterable[tuple[int, int]]) -> None:
        """Take note of the journals' sizes, in bytes."""
        with self._changed:
            latest = dict(sizes)
            news = {run for run, size in latest.items() if self._known.get(run) != size and size}
            self._known = latest
            if news:
                self._waiting |= news
                self._changed.notify()

    def run(self) -> None:
        while not self.stop.is_set():
            with self._changed:
                self._changed.wait_for(lambda: self._waiting, timeout=1.0)
                news, self._waiting = self._waiting, set()
            for run in sorted(news):
                notify.nudge_ingest(run)
            if news:
                self.stop.wait(GREW_PAUSE_S)  # what grows meanwhile is announced after it, once


def _without_journal(run: RunObservation) -> tuple[object, ...]:
    return (run.run, run.attempt, run.state, run.holding, run.exit_code, run.detail, run.station, run.gave_up)


def connect() -> None:
    """Have every Celery worker of this process start its ears when it is ready. Called once, by the app's configuration."""
    worker_ready.connect(listen, weak=False, dispatch_uid="experiments.agent.listen")
    worker_shutting_down.connect(leave, weak=False, dispatch_uid="experiments.agent.leave")


def nodes_of(queues: Iterable[str]) -> list[str]:
    """The nodes whose queues a worker consumes."""
    return [name.removeprefix(QUEUE_PREFIX) for name in queues if name.startswith(QUEUE_PREFIX)]


def listen(sender: Any, **_: object) -> None:
    """Start an ear for each node whose queue this worker consumes."""
    for node in nodes_of(sender.app.amqp.queues.consume_from):
        ear = Ear(settings.EDT_HOME, node)
        ear.start()
        _threads.append(ear)
        log.info("Listening to the host of node %s.", node)


def leave(**_: object) -> None:
    """Let the ears end by themselves."""
    for ear in _threads:
        ear.stop.set()
