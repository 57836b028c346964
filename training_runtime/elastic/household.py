"""The driver's end of the template: what both share is made here, the template is started, started again when it dies, and ended with
everything it has forked.

The driver is the subreaper of its run: workers whose template died become its children, so that it can tell when they are gone.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Collection, Iterable
from typing import Any

from training_runtime.elastic import kinship, orphans, reports, template, worker
from training_runtime.elastic.arena import Arena
from training_runtime.elastic.job import Job
from training_runtime.elastic.roster import Seated
from training_runtime.elastic.seat import Place


class Household:
    """The shared memory, the sockets and the template of one train(). `commands` is the template's socket; `leave` lets go, in the
    template, of what is the driver's own."""

    def __init__(self, job: Job, leave: Callable[[], None]) -> None:
        self._job, self.leave = job, leave
        self.arena_fd, self.state_fd = os.memfd_create("edt-arena"), os.memfd_create("edt-state")
        self.wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.driver = os.pidfd_open(os.getpid())
        kinship.adopt_orphans(True)
        self.start()

    def start(self) -> None:
        """A template, forked from this process as it is now, and a new socket for reports: the last one may have been shut down."""
        self.inbox, self._outbox = reports.pair(self.driver)
        self.pid, self.commands = template.start(self._job, self, self._outbox)
        self.handle = os.pidfd_open(self.pid)

    def __call__(self, command: dict[str, Any], lengths: tuple[int, int]) -> None:
        """A worker's process begins here, forked by the template."""
        fields = {name: command[name] for name in ("seat", "slot", "index", "kind", "resume", "after", "workers")}
        place = Place(
            **fields,
            arena_fd=self.arena_fd,
            state_fd=self.state_fd,
            wake_fd=self.wake_fd,
            driver=self.driver,
            reports=self._outbox,
            inbox=self.inbox,
        )
        worker.run(self._job, place, lengths)

    def bury(self, arena: Arena | None, workers: Iterable[Seated]) -> None:
        """The template has died, or nothing can be heard any more: the workers write down what they know and go; who does not is ended.
        Returns when all are gone."""
        if arena is not None:
            orphans.declare(arena)
        self._end_template()
        for seated in workers:
            with contextlib.suppress(ProcessLookupError):
                handle = os.pidfd_open(seated.pid)
                if kinship.start_ticks(seated.pid) == seated.ticks and not kinship.is_stopped(seated.pid):
                    kinship.wait(handle, template.LAST_WORDS_S)
                os.close(handle)
            kinship.end(seated.pid, seated.ticks)

    def hang_up(self) -> None:
        """Close the socket for reports, when all that was said has been read."""
        self.inbox.close()
        self._outbox.close()

    def end(self, workers: Collection[Seated]) -> None:
        """Leave nothing behind; `workers` are those that are still there, after an error."""
        for seated in workers:
            kinship.end(seated.pid, seated.ticks)
        if self.pid:
            self._end_template()
        for seated in workers:
            kinship.reap(seated.pid)  # its parent may have died before it could
        for fd in (self.arena_fd, self.state_fd, self.wake_fd, self.driver):
            os.close(fd)
        self.hang_up()
        kinship.adopt_orphans(False)

    def _end_template(self) -> None:
        signal.pidfd_send_signal(self.handle, signal.SIGKILL)  # not reaped yet, so this is it, alive or not
        os.waitpid(self.pid, 0)
        self.pid = 0
        os.close(self.handle)
        self.commands.close()
