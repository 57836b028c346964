"""The process at each end of a wire: it keeps this machine's segment equal to the other one where it matters (see `replication`), and
passes on what driver and remote agent say to each other.

A process of its own, because it has threads, and driver and remote agent must be free to fork. It knows nothing of the training, and goes
when the one goes that has started it, or when its only wire is cut. What a worker has done is passed on before what is said about it
afterwards.
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
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from training_runtime.elastic.comm.segment import BRIDGED, Layout, Segment
from training_runtime.elastic.multinode import admission
from training_runtime.elastic.multinode.admission import Admission
from training_runtime.elastic.multinode.replication import HEAD_NODE, Piece, Replication
from training_runtime.elastic.multinode.travelling_files import TravellingFiles
from training_runtime.elastic.multinode.wire import Wire
from training_runtime.elastic.processes import commands, json_object, reports
from training_runtime.elastic.processes.commands import Command
from training_runtime.elastic.processes.process_handles import die_with_parent
from training_runtime.elastic.processes.report_socket import Inbox
from training_runtime.elastic.processes.reports import Report
from training_runtime.errors import ProtocolError

LOOK_S = 0.1  # the safety net, and how old the words may be that nobody is woken for
START_S = 60.0  # how long the driver may take to lay out the state
LAST_S = 5.0  # for passing on what was said last
MAX_MESSAGE = 1 << 20


Message = Command | Report


def encode(message: Message) -> bytes:
    return reports.encode(message) if isinstance(message, Report) else commands.encode(message)


def decode(raw: bytes) -> Message:
    """A report, which goes to the driver, or a command, which comes from it. Raises ProtocolError."""
    found = json_object.parse(raw)
    return commands.read(found) if "do" in found else reports.read(found)


@dataclass(frozen=True)
class Ends:
    """What a bridge works with. `control`: the socket to driver or remote agent, a JSON object a datagram; its end is the bridge's.
    `result_dir`: the run's folder as this machine has it; `own_folder`: a remote agent's own."""

    layout: Layout
    segment_fd: int
    state_fd: int
    wake_fd: int
    control: socket.socket
    result_dir: Path
    own_folder: bool = False

    def replication(self, segment: Segment, *, here: int, there: int) -> Replication:
        return Replication(segment, here=here, there=there, state_fd=self.state_fd, wake_fd=self.wake_fd)


class Line:
    """One wire and what goes over it. `deliver` gets what the other side says, on the thread that takes it in. `inbox`: where the workers
    of a remote agent say what the driver has to hear."""

    def __init__(
        self, wire: Wire, replication: Replication, ends: Ends, deliver: Callable[[Message], None], inbox: Inbox | None = None
    ) -> None:
        self._wire, self._replication, self._state_fd, self._deliver, self._inbox = wire, replication, ends.state_fd, deliver, inbox
        self.files = TravellingFiles(ends.result_dir, replication.segment, wire, here=replication.here, own_folder=ends.own_folder)
        self._heard, self._read, self._gone = threading.Semaphore(0), threading.Event(), threading.Event()
        self._segment, self._bell = replication.segment, replication.segment.bridge_bells[replication.there]
        self._posted: deque[Message] = deque()
        self._ending = False
        self._sender = threading.Thread(target=self._send_all, name="bridge-sender", daemon=True)

    def begin(self) -> None:
        """Start to pass on this side's changes."""
        self._segment.words[BRIDGED] |= 1 << self._replication.there
        self._sender.start()

    def post(self, message: Message) -> None:
        """Send a message after everything that happened before it."""
        self._posted.append(message)
        self._bell.ring()

    def wake(self) -> None:
        """Workers have said something. Returns when it is passed on."""
        self._read.clear()
        self._bell.ring()
        self._read.wait()

    def finish(self) -> None:
        """Pass on what there is, then end. Returns when the other side has taken it: to leave before would throw away what is under way."""
        self.end()
        if self._sender.is_alive():
            self._sender.join(LAST_S)
            self._gone.wait(LAST_S)
        self._wire.close()

    def end(self) -> None:
        """Start the end: what is pending is still sent."""
        self._ending = True
        self._bell.ring()

    def cut(self) -> None:
        """Close the connection at once, without sending the rest."""
        self._wire.close()

    def _send_all(self) -> None:
        """The life of the sending thread. However it ends, nothing more goes over the wire, and the other thread notices that."""
        try:
            while self._send_what_is_new():
                self._bell.drain()
            self._wire.done()
        except (OSError, EOFError):
            self._wire.close()
        except Exception:
            traceback.print_exc()
            self._wire.close()

    def _send_what_is_new(self) -> bool:
        """False after the last of it."""
        ending, said = self._ending, [self._posted.popleft() for _ in range(len(self._posted))]
        made, arrived = self._replication.outgoing(self._replication.look())
        for piece in made:
            self._send(piece)
        self._report()
        for piece in arrived:
            self._send(piece)
        for message in said:
            self.files.send_before(message)
            self._wire.send_message(encode(message))
        if not made and not arrived and not said and not ending:
            self._bell.wait(LOOK_S)
        return not ending

    def _send(self, piece: Piece) -> None:
        if piece.what == "state":
            self._wire.send_file("state", self._state_fd, piece.length)
        else:
            self._wire.send(piece.what, piece.data or b"", at=piece.at)

    def _report(self) -> None:
        """What workers have said. It stays where it is until the driver has it, if it belongs into a journal: should this process end
        before that, somebody else finds it."""
        for report in self._inbox.handled() if self._inbox is not None else ():
            self.files.send_before(report)
            self._wire.send_message(encode(report))
            if isinstance(report, reports.Journaled):
                self._heard.acquire()
        self._read.set()

    def receive_all(self) -> None:
        """All that comes, until the wire is cut. Raises OSError or EOFError then, ProtocolError and others for what nobody should send."""
        try:
            self._receive_all()
        finally:
            self._gone.set()

    def _receive_all(self) -> None:
        wire, replication, segment = self._wire, self._replication, self._segment
        while True:
            kind, at, length = wire.header()
            if kind == "bytes":
                target = segment.memory(at, length)
                if at < 0 or len(target) != length:
                    raise ProtocolError("the other side's memory is laid out in another way")
                wire.into(target)
            elif kind == "words":
                replication.apply_words(wire.data(length))
            elif kind == "message":
                self._receive(decode(wire.read_message(length)))
            elif kind == "ring":
                replication.apply_ring(at)
            elif kind == "marks":
                replication.apply_marks(wire.data(length))
            elif kind == "state":
                wire.into_file(self._state_fd, length)
            elif kind == "name":
                self.files.expect(length)
            elif kind == "file":
                self.files.receive_file(length)
            else:
                raise ProtocolError(f"{kind!r} came when the training had begun")

    def _receive(self, message: Message) -> None:
        if isinstance(message, commands.Acknowledge):
            self._heard.release()
        else:
            self._deliver(message)


class HeadNode:
    """The bridge of the driver: takes in remote agents that know the `token` and keeps a line to each. `welcome` is what each of them is
    told first, `start_fd` holds the state that all workers begin with. What remote agents say goes to `to_driver`."""

    def __init__(self, ends: Ends, *, token: str, welcome: Admission, start_fd: int, to_driver: Callable[[Report], None]) -> None:
        self._ends, self._token, self._welcome, self._start_fd, self._to_driver = ends, token, welcome, start_fd, to_driver
        self._segment = Segment(ends.segment_fd, ends.layout)
        self._lines: dict[int, Line] = {}
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
                line = Line(wire, replication, self._ends, lambda message: self._deliver(machine, message))
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

    def _register(self, machine: int, line: Line) -> None:
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

    def _lose(self, machine: int, line: Line) -> None:
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
        line = Line(wire, replication, ends, lambda message: _hand(ends.control, message), inbox)

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


def _pass_on(control: socket.socket, inbox: Inbox, line: Line) -> None:
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
