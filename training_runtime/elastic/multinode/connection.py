"""One connection of two bridges: what goes over it, and in which order. What a worker has done is sent before what is said about it
afterwards. Two threads of the bridge: one sends what is new here, one takes in what comes (see `replication` and `travelling_files`).
"""

from __future__ import annotations

import socket
import threading
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from training_runtime import json_object
from training_runtime.elastic.comm.segment import BRIDGED, Layout, Segment
from training_runtime.elastic.multinode.replication import Piece, Replication
from training_runtime.elastic.multinode.travelling_files import TravellingFiles
from training_runtime.elastic.multinode.wire import Wire
from training_runtime.elastic.processes import commands, reports
from training_runtime.elastic.processes.commands import Command
from training_runtime.elastic.processes.report_socket import Inbox
from training_runtime.elastic.processes.reports import Report
from training_runtime.errors import ProtocolError

LOOK_S = 0.1  # the safety net, and how old the words may be that nobody is woken for
LAST_S = 5.0  # for passing on what was said last

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


class Connection:
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
