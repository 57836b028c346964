"""The host's listener for the studio: takes Apply and Subscribe on the node's socket, sends Observations. Decides nothing.

A subscriber that reads slowly misses intermediate Observations, never the latest: each is the whole state, so an unsent one is replaced.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import logging
import os
import selectors
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass

from training_runtime.errors import ProtocolError, UnknownMessage
from training_runtime.host import processes, sockets
from training_runtime.host.node import Node
from training_runtime.host.sockets import LineSocket
from training_runtime.protocol import MAX_STUDIO_LINE_BYTES, SPOKEN, Apply, Observation, Subscribe, decode, encode, spoken_by
from training_runtime.unknown_messages import LeftOut
from training_runtime.version_skew import too_far_behind

log = logging.getLogger(__name__)
_MAX_CLIENTS = 256


@dataclass(eq=False)
class _Client:
    line_socket: LineSocket
    subscribed: bool = False
    waiting: Observation | None = None


class StudioServer:
    """`on_apply` carries an Apply out; `look` gives the present Observation."""

    def __init__(self, node: Node, *, on_apply: Callable[[Apply], None], look: Callable[[], Observation]) -> None:
        self._node = node
        self._on_apply = on_apply
        self._look = look
        self._clients: list[_Client] = []
        self._left_out = LeftOut(log)
        self._listen()

    def _listen(self) -> None:
        path = self._node.folder / "host.sock"
        self._listener = sockets.listen(path)
        self._inode = path.stat().st_ino
        self._listener.setblocking(False)
        self._node.watch(self._listener, self._on_newcomer)

    def renew(self) -> None:
        """Listen again where the socket's file was removed or replaced: a listener without its file cannot be reached by anybody."""
        path = self._node.folder / "host.sock"
        with contextlib.suppress(OSError):
            if path.stat().st_ino == self._inode:
                return
        log.warning("the socket of the host was removed, it is made again")
        self._node.unwatch(self._listener)
        self._listener.close()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._listen()

    def push(self, observation: Observation) -> None:
        """To every subscriber."""
        for client in tuple(self._clients):
            if client.subscribed:
                client.waiting = observation
                self._deliver(client)

    def close(self) -> None:
        for client in tuple(self._clients):
            self._drop(client)
        self._node.unwatch(self._listener)
        self._listener.close()
        (self._node.folder / "host.sock").unlink(missing_ok=True)

    def _on_newcomer(self, _mask: int) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                raise  # it would be reported again at once, for ever
            return
        pid, uid = _peer(connection)
        if uid not in (0, os.geteuid()) or self._is_user_code(pid) or len(self._clients) >= _MAX_CLIENTS:
            log.warning("a connection to the host was refused pid=%d uid=%d clients=%d", pid, uid, len(self._clients))
            connection.close()
            return
        limits = {"max_line_bytes": MAX_STUDIO_LINE_BYTES, "max_unsent_bytes": 2 * MAX_STUDIO_LINE_BYTES}
        client = _Client(LineSocket(connection, **limits))
        self._clients.append(client)
        self._node.watch(client.line_socket, functools.partial(self._on_client, client))

    def _is_user_code(self, pid: int) -> bool:
        """Where runs share the studio's user, the socket's mode does not keep them out: then it is whose descendant one is that counts.

        (A process that connects and ends before it is looked at has no ancestors any more, and is refused as well.)
        """
        runs = [run for run in self._node.runs.values() if run.phase != "ended"]  # the numbers of the others may be anybody's by now
        drivers = {run.pid for run in runs} - {0}
        ours = {os.getpid()} | {run.shim for run in runs} - {0} | drivers
        process = processes.look(pid) if pid else None
        if process is None:
            return pid != 0  # 0: it lives in another container
        while process is not None:
            if process.pid in ours or process.session in drivers:
                return True
            process = processes.look(process.parent) if process.parent else None
        return False

    def _on_client(self, client: _Client, mask: int) -> None:
        try:
            lines, is_open = client.line_socket.receive() if mask & selectors.EVENT_READ else ([], True)
            for line in lines:
                self._receive(client, line)
        except ProtocolError as error:
            log.warning("the studio sent something that is not a message, the connection is closed: %s", error)
            is_open = False
        if is_open:
            self._deliver(client)
        else:
            self._drop(client)

    def _receive(self, client: _Client, line: bytes) -> None:
        try:
            message = decode(line, limit_bytes=MAX_STUDIO_LINE_BYTES)
        except UnknownMessage as error:
            self._left_out.note(error, of="the studio")
            return
        if isinstance(message, Apply | Subscribe) and too_far_behind(SPOKEN, theirs := spoken_by(message)):
            log.warning("the studio speaks %s, this host %s: nothing that it says is done", theirs, SPOKEN)
        elif isinstance(message, Apply):
            self._on_apply(message)
        elif isinstance(message, Subscribe):
            client.subscribed = True
        else:
            raise ProtocolError(f"the studio does not send {message.type}")
        client.waiting = self._look()

    def _deliver(self, client: _Client) -> None:
        """What can be sent now; a new Observation only after the one before it has left."""
        try:
            client.line_socket.flush()
            if client.waiting is not None and not client.line_socket.has_unsent:
                observation, client.waiting = client.waiting, None
                client.line_socket.send(encode(observation))
        except OSError:
            self._drop(client)
            return
        self._node.watch(client.line_socket, functools.partial(self._on_client, client))

    def _drop(self, client: _Client) -> None:
        if client in self._clients:
            self._clients.remove(client)
            self._node.unwatch(client.line_socket)
            client.line_socket.close()


def _peer(connection: socket.socket) -> tuple[int, int]:
    """Process number and user of who has connected."""
    pid, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return int(pid), int(uid)
