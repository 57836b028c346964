"""The studio's processes as one thing: start, watch, restart, stop. Signals only enqueue; one loop acts (`turn`), called by its owner.

Starting goes down the list of programs; stopping goes by their `stops`: first what makes new work, then the node host (which suspends its
runs and waits for that), the broker last.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from webapp.studio import log, programs
from webapp.studio.checks import Refusal
from webapp.studio.log import Terminal
from webapp.studio.processes import Child, Program
from webapp.studio.watchdog import SILENT_S, Watchdog

TURN_S = 0.25
STEADY_S = 30.0
MOST_BACKOFF_S = 30.0
FIRST_PAGE_S = 60.0
NOT_STARTED = math.inf
MOST_WEB_DEATHS = 3  # until the first page
ROTATE_EVERY_S = 60.0
PROBE_EVERY_S = 5.0
LEAVE = signal.SIGUSR1


def backoff_s(deaths: int) -> float:
    """How long to wait before a child is started again that has died `deaths` times in a row, each time soon after its start."""
    return 0.0 if deaths <= 1 else min(MOST_BACKOFF_S, 0.5 * 2.0 ** (deaths - 2))


@dataclass
class Watched:
    """A child and what the supervisor remembers of it; times are of the monotonic clock."""

    child: Child
    started_at: float = 0.0
    deaths: int = 0  # in a row
    due_at: float | None = NOT_STARTED  # it does not run, and is started then


@dataclass
class Supervisor:
    """`ready` is called once for each name after which the next program may start (the broker must answer first). `probes`: whether a
    program that does not say by itself that it is alive does answer."""

    home: Path
    programs: Sequence[Program]
    terminal: Terminal
    ready: dict[str, Callable[[], None]] = field(default_factory=dict)
    probes: dict[str, Callable[[], bool]] = field(default_factory=dict)
    silent_s: float = SILENT_S

    def __post_init__(self) -> None:
        self.watched = {p.name: Watched(Child(p, self.home)) for p in self.programs}
        self.asked_to_stop = 0
        self.keeps_host = False
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._rotated_at = self._probed_at = 0.0
        self.watchdog = Watchdog(programs.notify_socket(self.home), silent_s=self.silent_s)

    def catch_signals(self) -> None:
        """From now on Ctrl-C, SIGTERM and a closed terminal ask the loop to stop, LEAVE asks it to stop all but the node host, whose runs
        train on; a child's death wakes it."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, LEAVE):
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # nohup means what it says
                signal.signal(number, self._enqueue)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)

    def _enqueue(self, number: int, _frame: FrameType | None) -> None:
        if number == LEAVE:
            self.keeps_host = True
            self.asked_to_stop = max(1, self.asked_to_stop)  # asking again is no hurry: there is nothing to wait for
            return
        self.asked_to_stop += 1

    def start(self, *, until: str = "") -> None:
        """What has not been started yet, in order; up to and with the program named `until`, all without it."""
        for name, watched in self.watched.items():
            if self.asked_to_stop:
                return
            if watched.due_at == NOT_STARTED:
                self._start(watched)
            if name == until:
                return

    def _start(self, watched: Watched) -> None:
        child = watched.child
        watched.started_at, watched.due_at = time.monotonic(), None
        if not child.program.tied and child.take_over():
            assert child.process is not None
            self.terminal.say(f"{child.name} (process {child.process.pid}) was left running by an earlier studio and goes on")
            return
        child.start()
        if child.process is not None:
            self.watchdog.forget(child.process.pid)  # its number may have been another's
        if check := self.ready.get(child.name):
            check()

    def turn(self, timeout_s: float = TURN_S, *, also: Sequence[socket.socket] = ()) -> bool:
        """One round: wait for something to happen, start again what has died, show new log lines. False once it was asked to stop."""
        self._wait(timeout_s, also=also)
        if not self.asked_to_stop:
            self._replace_hung(time.monotonic())
            self._revive(time.monotonic())
        self.terminal.show_new()
        if time.monotonic() > self._rotated_at + ROTATE_EVERY_S:
            self._rotated_at = time.monotonic()
            self.terminal.rotate()
        return not self.asked_to_stop

    def _replace_hung(self, now: float) -> None:
        """Kill what hangs; it is started again like whatever else has died. The node host alone: its runs outlive it."""
        self.watchdog.listen(now)
        if now > self._probed_at + PROBE_EVERY_S:
            self._probed_at = now
            for name, probe in self.probes.items():
                if (process := self.watched[name].child.process) is not None and probe():
                    self.watchdog.note_alive(process.pid, now)
        for watched in self.watched.values():
            process = watched.child.process
            if (
                process is None
                or watched.due_at is not None
                or not self.watchdog.hangs(process.pid, started_at=watched.started_at, now=now)
            ):
                continue
            self.terminal.say(f"{watched.child.name} has not answered for {self.silent_s:.0f} s; it is killed and started again")
            self.watchdog.forget(process.pid)
            watched.child.kill_alone()

    def _revive(self, now: float) -> None:
        for watched in self.watched.values():
            if watched.due_at is None and not watched.child.alive():
                watched.deaths = 1 if now - watched.started_at > STEADY_S else watched.deaths + 1
                wait_s = backoff_s(watched.deaths)
                watched.due_at = now + wait_s
                when = f" in {wait_s:g} s" if wait_s else ""
                self.terminal.say(f"{watched.child.name} has ended unexpectedly; it is started again{when}")
            if watched.due_at is not None and now >= watched.due_at:
                try:
                    self._start(watched)
                except (OSError, Refusal) as error:
                    self.terminal.say(f"{watched.child.name} could not be started: {error}")

    def await_first_page(self, listener: socket.socket, path: str) -> bool:
        """Until the web process has answered a request; False when asked to stop before. Raises Refusal with its last words otherwise."""
        end = time.monotonic() + FIRST_PAGE_S
        while not self.asked_to_stop:
            with _connect(listener) as page:  # the listening socket is the studio's own: it queues this until the web process is up
                page.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
                if answer := self._answer(page, end=end):
                    if answer >= b"HTTP/1.1 5":
                        self.terminal.say("The first page answers with an error; see EDT_HOME/log/web.log.")
                    return True
        return False

    def _answer(self, page: socket.socket, *, end: float) -> bytes:
        """The beginning of the answer; empty when asked to stop, or when the process that had the connection died."""
        while self.turn(TURN_S, also=[page]):
            if select.select([page.fileno()], [], [], 0)[0]:
                with contextlib.suppress(ConnectionError):
                    return page.recv(12)
                return b""
            if self.watched["web"].deaths >= MOST_WEB_DEATHS or time.monotonic() > end:
                raise Refusal("The web process does not start. Its last lines:\n  " + "\n  ".join(log.last_lines(self.home, "web")))
        return b""

    def stop(self) -> None:
        """Everything, in order, each within its time; asking again (a second Ctrl-C) cuts the waiting short."""
        for wave in sorted({program.stops for program in self.programs}):
            names = [program.name for program in self.programs if program.stops == wave]
            children = [self.watched[name].child for name in names if not self._is_left(name)]
            for child in children:
                child.ask_to_stop()
            self._await_end(children, now=time.monotonic())
        self.watchdog.close()
        self.terminal.show_new()

    def _is_left(self, name: str) -> bool:
        child = self.watched[name].child
        if child.program.tied or not self.keeps_host or child.process is None:
            return False
        self.terminal.say(f"{name} (process {child.process.pid}) is left running, and its runs train on: the next start takes it over")
        return True

    def _await_end(self, children: Sequence[Child], *, now: float) -> None:
        """Until all are gone: on their own, or killed when their time is over or someone is in a hurry."""
        ends = {child.name: now + child.program.stop_s for child in children}
        while waiting := [child for child in children if child.alive()]:
            hurried = self.asked_to_stop > 1
            for child in waiting:
                if child.name in ends and (hurried or time.monotonic() > ends[child.name]):
                    why = "you are in a hurry" if hurried else f"it did not end within {child.program.stop_s:.0f} s"
                    self.terminal.say(f"{child.name} is killed: {why}")
                    child.kill()
                    del ends[child.name]
            self.terminal.show_new()
            self._wait(0.02)

    def _wait(self, timeout_s: float, *, also: Sequence[socket.socket] = ()) -> None:
        """Until a signal, something to read from one of the sockets, or the time."""
        readable, _, _ = select.select([self._wake_read, *(s.fileno() for s in also)], [], [], timeout_s)
        if self._wake_read in readable:
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake_read, 4096)


def _connect(listener: socket.socket) -> socket.socket:
    """A connection to a listening socket, also where that listens on every address."""
    host, port = listener.getsockname()[:2]
    return socket.create_connection(({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port), timeout=5)  # noqa: S104
