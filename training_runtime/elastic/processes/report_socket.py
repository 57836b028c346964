"""The way of reports (see `reports`) to the driver: small datagrams over one Unix socket that fork server and workers inherit.

Sender and reader are processes of the same user and run. Every process holds the reading end too, so that what a dead driver has not read
can still be read by who is left.
"""

from __future__ import annotations

import dataclasses
import select
import socket
from collections.abc import Iterator
from typing import Any

from training_runtime.elastic.processes import process_handles, reports
from training_runtime.elastic.processes.reports import Report
from training_runtime.errors import ProtocolError

MAX_BYTES = 64 * 1024


def pair(driver: int) -> tuple[Inbox, Outbox]:
    """(for the driver, for everybody else). Datagrams: whole messages, also from many writers. `driver` is its pidfd."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    ours.setblocking(False)
    return Inbox(ours), Outbox(theirs, driver)


class Inbox:
    """`closed`: the socket was shut down, by somebody who inherited it; nothing will ever arrive again."""

    def __init__(self, source: socket.socket) -> None:
        self._source = source
        self.closed = False

    def fileno(self) -> int:
        return self._source.fileno()

    def close(self) -> None:
        self._source.close()

    def handled(self) -> Iterator[Report]:
        """All that has arrived. Each report leaves the socket only when the next one is asked for: a driver that dies over one has not
        lost it. What is no report leaves it at once, for whoever reads after this one, and raises ProtocolError."""
        while True:
            try:
                raw = self._source.recv(4 * MAX_BYTES, socket.MSG_PEEK)
            except BlockingIOError:
                self.closed = self._is_shut_down()
                return
            try:
                report = reports.decode(raw)
            except ProtocolError:
                self._drop()
                raise
            yield report
            self._drop()

    def _drop(self) -> None:
        self._source.recv(1)  # the rest of a datagram goes with its first byte

    def _is_shut_down(self) -> bool:
        poll = select.poll()
        poll.register(self._source, 0)  # a hang-up is told unasked
        return bool(poll.poll(0))

    def receive(self) -> list[Report]:
        """All that has arrived, taken out."""
        return list(self.handled())


class Outbox:
    """`unsent`: reports for which there was no room and nobody left to make some, or no way to the driver any more."""

    def __init__(self, to: socket.socket, driver: int) -> None:
        self._to, self._driver = to, driver
        self.unsent: list[Report] = []

    def close(self) -> None:
        self._to.close()

    def fileno(self) -> int:
        return self._to.fileno()

    def send(self, report: Report) -> None:
        """Raises OSError where this end was closed under us."""
        report = _shortened(report)
        raw = reports.encode(report)
        while True:
            try:
                self._to.send(raw, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
                return
            except ConnectionError:  # the socket was shut down
                self.unsent.append(report)
                return
            except BlockingIOError:
                if process_handles.has_ended(self._driver):
                    self.unsent.append(report)
                    return
                poll = select.poll()
                poll.register(self._to, select.POLLOUT)
                poll.register(self._driver, select.POLLIN)
                poll.poll()


def _shortened(report: Report) -> Report:
    """With the middle of long texts left out, so that it fits into a datagram."""
    long = {name: value for name, value in vars(report).items() if isinstance(value, str) and len(value) > MAX_BYTES // 4}
    if not long:
        return report
    whole: Any = report
    cut: Report = dataclasses.replace(whole, **{name: f"{v[: MAX_BYTES // 16]}\n[...]\n{v[-MAX_BYTES // 8 :]}" for name, v in long.items()})
    return cut
