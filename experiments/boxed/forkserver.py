"""The process that children are forked from: small, with one thread, with everything in memory that a child needs, and already without
rights. It never looks at what somebody wrote: it forks, hands on descriptors, and says how a child ended that did not answer.

It ends when the studio's process does, by whatever means: its socket is closed then, and the kernel says so of the process as well, in case
a fork of that holds the socket open. Its children end with it.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import socket
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pygments

from experiments.boxed import child, jobs, wire
from experiments.boxed.child import Origin
from experiments.boxed.wire import Ended, Order
from training_runtime.host.sandbox import file_box
from training_runtime.records import build

# What may be imported only when it is needed: lexers, and what they and the standard library import in functions.
LIBRARIES = (str(Path(os.__file__).parent), str(Path(pygments.__path__[0])))


@dataclass(frozen=True)
class _Forked:
    """A child that lives, or whose end has not been told; `channel` leads to who asked."""

    pid: int
    channel: socket.socket


def main(arguments: Sequence[str]) -> int:
    control, parent, home = socket.socket(fileno=int(arguments[0])), int(arguments[1]), Path(arguments[2])
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # meant for the studio, which may still want an answer
        signal.signal(number, signal.SIG_IGN)
    alive = os.pidfd_open(parent)
    if os.getppid() != parent:
        return 1
    os.chdir("/")
    jobs.load()
    walls = file_box.prepare(home=home, environment=os.environ, libraries=LIBRARIES)
    gc.collect()
    gc.freeze()
    os.dup2(0, 2)  # errors of the start were for the studio's log; children have nothing to say there
    wire.send(control, json.dumps(asdict(walls)).encode(), [])
    ruleset = file_box.rules(LIBRARIES) if walls.closed else None
    Server(control, Origin(os.getpid(), walls, LIBRARIES, ruleset)).serve(alive)
    return 0


class Server:
    def __init__(self, control: socket.socket, origin: Origin) -> None:
        self._control, self._origin = control, origin
        self._forked: dict[int, _Forked] = {}  # by pidfd
        self._poll = select.poll()

    def serve(self, alive: int) -> None:
        """Until nobody is there to be served."""
        self._poll.register(self._control, select.POLLIN)
        self._poll.register(alive, select.POLLIN)
        while True:
            for descriptor, _ in self._poll.poll():
                if descriptor == alive or (descriptor == self._control.fileno() and not self._serve_one()):
                    return
                if descriptor in self._forked:
                    self._reap(descriptor)

    def _serve_one(self) -> bool:
        """False where no more orders come."""
        data, descriptors = wire.receive(self._control, wire.ORDER_BYTES)
        if not data:
            return False
        order = build(Order, json.loads(data))
        channel, *files = descriptors
        try:
            pid = os.fork()
        except OSError:  # no room for another process
            pid = -1
        if pid == 0:
            child.become(order, self._origin, channel=channel, files=files)
        for each in files:
            os.close(each)
        self._follow(pid, socket.socket(fileno=channel))
        return True

    def _follow(self, pid: int, channel: socket.socket) -> None:
        if pid == -1:
            with channel, contextlib.suppress(OSError):
                wire.send(channel, wire.NOT_BEGUN, [])
            return
        pidfd = os.pidfd_open(pid)  # ours to wait for, so the number is its own until then
        self._forked[pidfd] = _Forked(pid, channel)
        self._poll.register(pidfd, select.POLLIN)
        with contextlib.suppress(OSError):  # who asked may be gone
            wire.send(channel, wire.BEGUN, [pidfd])

    def _reap(self, pidfd: int) -> None:
        self._poll.unregister(pidfd)
        forked = self._forked.pop(pidfd)
        _, status, used = os.wait4(forked.pid, 0)
        ended = Ended(os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0, used.ru_utime + used.ru_stime)
        with forked.channel as channel, contextlib.suppress(OSError):
            channel.send(wire.line({"ended": asdict(ended)}), socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        os.close(pidfd)
