"""The process at each end of a wire: it keeps this machine's segment equal to the other one where it matters (see `replication`), and
passes on what driver and remote agent say to each other: over a `connection`, of which the driver's bridge has one to each machine.

A process of its own, because it has threads, and driver and remote agent must be free to fork. It knows nothing of the training, and goes
when the one goes that has started it, or when its only wire is cut.
"""

from __future__ import annotations

import dataclasses
import os
import secrets
import select
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable

from training_runtime.elastic.comm.segment import BRIDGED, Segment
from training_runtime.elastic.multinode import admission
from training_runtime.elastic.multinode.admission import Admission
from training_runtime.elastic.multinode.connection import Connection, Ends, Message, encode
from training_runtime.elastic.multinode.replication import HEAD_NODE
from training_runtime.elastic.multinode.wire import Wire
from training_runtime.elastic.processes import commands, reports
from training_runtime.elastic.processes.process_handles import die_with_parent
from training_runtime.elastic.processes.report_socket import Inbox
from training_runtime.elastic.processes.reports import Report
from training_runtime.errors import ProtocolError

START_S = 60.0  # how long the driver may take to lay out the state
MAX_MESSAGE = 1 << 20


class HeadNode:
    """The bridge of the driver: takes in remote agents that know the `token` and keeps a line to each. `welcome` is what each of them is
    told first, `start_fd` holds the state that all workers begin with. What remote agents say goes to `to_driver`."""

    def __init__(self, ends: Ends, *, token: str, welcome: Admission, start_fd: int, to_driver: Callable[[Report], None]) -> None:
        self._ends, self._token, self._welcome, self._start_fd, self._to_driver = ends, token, welcome, start_fd, to_driver
        self._segment = Segment(ends.segment_fd, ends.layout)
        self._lines: dict[int, Connection] = {}
        self._start_is_there = threading.Event()
        self._lock = threading.Lock()
        self._last = 0

    def serve(self, listener: socket.socket) -> None:
        """Until the driver closes its end."""
        poll = select.poll()
        for fd in (listener.fileno(), self._ends.control.fileno()):
            poll.register(fd, select.POLLIN)
        while True:
            for fd, _ in poll.poll():
                if fd == listener.fileno():
                    connection, _ = listener.accept()
                    threading.Thread(target=self._attend, args=(connection,), name="bridge-receiver", daemon=True).start()
                elif not self._pass_on(self._ends.control.recv(MAX_MESSAGE)):
                    return

    def _pass_on(self, raw: bytes) -> bool:
        """What the driver says, to one machine or (HEAD_NODE) to all of them; False where it has closed its end."""
        with self._lock:
            lines = dict(self._lines)
        if not raw:
            for line in lines.values():
                line.end()
            for line in lines.values():
                line.finish()
            return False
        to, command = commands.decode_addressed(raw)
        if isinstance(command, commands.Start):
            self._start_is_there.set()
            return True
        for machine, line in lines.items():
            if to in (machine, HEAD_NODE):
                line.cut() if isinstance(command, commands.Cut) else line.post(command)
        return True

    def _attend(self, connection: socket.socket) -> None:
        """The life of one remote agent's line."""
        wire, machine, line = Wire(connection), 0, None
        try:
            wire.greet(self._token, listens=True)
            machine = self._number()
            refused = "" if machine else "no more machines can take part in this run"
            wire.send_message(admission.encode(self._welcome.answer(machine, refused)))
            if machine:
                self._to_driver(reports.StartAsked())
                if not self._start_is_there.wait(START_S):
                    raise OSError("the driver has not given the state to begin with")
                wire.send_file("start", self._start_fd, os.fstat(self._start_fd).st_size)
                replication = self._ends.replication(self._segment, here=HEAD_NODE, there=machine)
                line = Connection(wire, replication, self._ends, lambda message: self._deliver(machine, message))
                self._register(machine, line)
                line.receive_all()
        except (OSError, EOFError):
            wire.close()
        except Exception:  # whatever it is, nobody listens any more: the machine must not be waited for
            traceback.print_exc()
            wire.close()
        if line is not None:
            self._lose(machine, line)

    def _number(self) -> int:
        """For a new machine; 0 where there is none left. One that was used a while ago before one that was used just now."""
        count = self._ends.layout.machines
        with self._lock:
            free = (n for n in (self._last + i for i in range(1, count)) if (n - 1) % (count - 1) + 1 not in self._lines)
            found = next(free, None)
            if found is None:
                return 0
            self._last = (found - 1) % (count - 1) + 1
            return self._last

    def _register(self, machine: int, line: Connection) -> None:
        with self._lock:
            self._lines[machine] = line

    def _deliver(self, machine: int, message: Message) -> None:
        if not isinstance(message, Report):
            raise ProtocolError(f"a remote agent does not command: {message.do}")
        if isinstance(message, reports.Joined):
            with self._lock:
                line = self._lines[machine]
            line.files.own_folder = message.own_folder
            line.begin()
        if isinstance(message, reports.Joined | reports.Offered | reports.Journaled):
            message = dataclasses.replace(message, machine=machine)
        self._to_driver(message)

    def _lose(self, machine: int, line: Connection) -> None:
        with self._lock:
            self._segment.words[BRIDGED] &= ~(1 << machine)
        line.finish()
        self._to_driver(reports.MachineLost(machine))
        with self._lock:
            del self._lines[machine]


def head_node(
    ends: Ends,
    listener: socket.socket,
    *,
    token: str,
    welcome: Admission,
    start_fd: int,
    to_driver: Callable[[Report], None],
    leave: Callable[[], None],
) -> int:
    """Fork the driver's bridge; its pid. `leave`, in the bridge, lets go of what is the driver's own."""

    def live() -> None:
        leave()
        HeadNode(ends, token=token, welcome=welcome, start_fd=start_fd, to_driver=to_driver).serve(listener)

    return _fork(live)


def remote_agent(ends: Ends, wire: Wire, machine: int, *, inbox: Inbox, leave: Callable[[], None]) -> int:
    """Fork a remote agent's bridge; its pid. It alone reads `inbox`, where the workers report, as long as it lives."""

    def live() -> None:
        leave()
        replication = ends.replication(Segment(ends.segment_fd, ends.layout), here=machine, there=HEAD_NODE)
        line = Connection(wire, replication, ends, lambda message: _hand(ends.control, message), inbox)

        def receive_all() -> None:
            try:
                line.receive_all()
            except (OSError, EOFError):
                os._exit(0)  # the remote agent sees it
            except BaseException:
                traceback.print_exc()
                sys.stderr.flush()
                os._exit(1)

        line.begin()
        threading.Thread(target=receive_all, name="bridge-receiver", daemon=True).start()
        _pass_on(ends.control, inbox, line)
        line.finish()

    return _fork(live)


def _pass_on(control: socket.socket, inbox: Inbox, line: Connection) -> None:
    """What the remote agent says, until it closes its end; and the line is woken for what its workers say."""
    poll = select.poll()
    for fd in (control.fileno(), inbox.fileno()):
        poll.register(fd, select.POLLIN)
    while True:
        for fd, _ in poll.poll():
            if fd == inbox.fileno():
                line.wake()
                continue
            raw = control.recv(MAX_MESSAGE)
            if not raw:
                return
            line.post(reports.decode(raw))


def _hand(control: socket.socket, message: Message) -> None:
    control.send(encode(message))


def _fork(live: Callable[[], None]) -> int:
    """A process that lives so, and no longer than this one."""
    sys.stdout.flush()
    sys.stderr.flush()
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        die_with_parent(parent)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal reaches everybody; the driver decides
        live()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def new_token() -> str:
    return secrets.token_hex(32)
