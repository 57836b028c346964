"""How the members of a generation get their group: the first one serves a store, and says in its words where. Nothing else is needed.

It is made on a thread, while the workers do what has to be done before the first step: hand over the state, or end the last step of the
generation before. A member that has died in between is noticed by the barriers, and the next generation makes a group of its own.
"""

from __future__ import annotations

import ipaddress
import socket
import struct
import threading
import time

import torch

from training_runtime.elastic.comm import process_groups
from training_runtime.elastic.comm.bucket_exchange import BucketExchange, Link, Way
from training_runtime.elastic.comm.segment import STORE, GenerationRecord, Segment

LOOK_S = 0.002
_PORT_BITS = 16


class Meeting:
    """The group of `record` as `worker_id` makes it, from now on. `address`: under which the other members reach this process."""

    def __init__(
        self,
        segment: Segment,
        record: GenerationRecord,
        worker_id: int,
        *,
        device: torch.device,
        address: str,
        way: type[Way] | None = None,
    ) -> None:
        self.number, self._segment, self._record, self._worker_id = record.number, segment, record, worker_id
        self._rank, self._device, self._address, self._way = record.members.index(worker_id), device, address, way
        self._ended = threading.Event()
        self.forming = process_groups.Forming(self._form)

    def _form(self) -> BucketExchange:
        store = self._serve() if self._rank == 0 else self._find()
        workers = len(self._record.members)
        group = process_groups.form(
            store, generation=self.number, rank=self._rank, workers=workers, device=self._device, host=self._address
        )
        return BucketExchange(Link(group, self._rank, workers, store), self._way)

    def _serve(self) -> process_groups.Store:
        store = process_groups.serve(self._address)
        number = socket.getaddrinfo(self._address, None, type=socket.SOCK_STREAM)[0][4][0]
        for i, word in enumerate(struct.unpack("=2q", _packed(str(number)))):
            self._segment.set(self._worker_id, STORE + 1 + i, word)
        self._segment.set(self._worker_id, STORE, self.number << _PORT_BITS | store.port)
        self._segment.stir()
        return store

    def _find(self) -> process_groups.Store:
        first, end = self._record.members[0], time.monotonic() + process_groups.FORM_S
        while (word := self._segment.get(first, STORE)) >> _PORT_BITS != self.number:
            if self._ended.wait(LOOK_S) or time.monotonic() > end:
                raise TimeoutError("the first member has not said where it can be found")
        host = _unpacked(struct.pack("=2q", *(self._segment.get(first, STORE + 1 + i) for i in range(2))))
        return process_groups.reach(host, word & (1 << _PORT_BITS) - 1)

    def end(self) -> None:
        """Nobody waits for it any more."""
        self._ended.set()


def _packed(number: str) -> bytes:
    """An address as sixteen bytes; one of IPv4 as IPv6 writes it."""
    found = ipaddress.ip_address(number)
    return found.packed if found.version == 6 else bytes(10) + b"\xff\xff" + found.packed


def _unpacked(packed: bytes) -> str:
    found = ipaddress.IPv6Address(packed)
    return str(found.ipv4_mapped or found)
