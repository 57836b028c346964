"""A torch.distributed group for each generation of members: made in the background, and given up at once when one of them dies.

No default group is made, so a script may have one of its own. A group that has once failed, or was given up, is never used again: the next
generation has one of its own, under a prefix of its own, so late messages of the old one cannot be taken for new ones.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

import torch
from torch._C import _distributed_c10d as distributed  # torch.distributed has them all, but its types do not say so

from training_runtime.errors import RuntimeFailure

FORM_S = 20.0  # for all members to be there
SAID_S = 20.0  # within which the driver has said that one of them has died, where they could not be connected
NEVER_S = 24 * 3600.0  # who waits is released by `abort`; how long a member may take is for the driver to say
_NOBODY_SENDS = (1 << 31) - 1  # a tag
_NCCL_ERRORS = "TORCH_NCCL_ASYNC_ERROR_HANDLING"

Backend = Any  # ProcessGroupGloo or ProcessGroupNCCL, as torch has them
Store = distributed.Store
T = TypeVar("T")


class NoGroup(RuntimeFailure):
    """The members of a generation could not be connected."""


def serve(host: str) -> distributed.TCPStore:
    """A store in which the members of one generation find each other, on a port of its own (`.port`). Goes with its last reference."""
    return distributed.TCPStore(host, 0, is_master=True, wait_for_workers=False, timeout=_span(FORM_S))


def reach(host: str, port: int) -> distributed.TCPStore:
    """The store that another member serves. Raises torch.distributed.DistError where nobody answers there."""
    return distributed.TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=_span(FORM_S))


def form(store: Store, *, generation: int, rank: int, workers: int, device: torch.device, host: str) -> Backend:
    """The group of `generation`. Returns when all are connected. `host`: the address under which the others reach this process."""
    named = distributed.PrefixStore(f"generation-{generation}", store)
    if device.type == "cuda":
        options = distributed.ProcessGroupNCCL.Options()
        options._timeout = _span(NEVER_S)
        with _errors_left_to_us():
            group: Backend = distributed.ProcessGroupNCCL(named, rank, workers, options)
        group.eager_connect_single_device(device)
        return group
    options = distributed.ProcessGroupGloo._Options()  # type: ignore[attr-defined]
    options._timeout = _span(FORM_S)
    options._devices = [distributed.ProcessGroupGloo.create_device(hostname=host)]
    group = distributed.ProcessGroupGloo(named, rank, workers, options)
    group._set_default_timeout(_span(NEVER_S))
    return group


@contextlib.contextmanager
def _errors_left_to_us() -> Iterator[None]:
    """A group of NCCL that is made meanwhile does nothing about a member that is gone. By default it would end this process, which is
    needed: the driver's word releases it."""
    before = os.environ.get(_NCCL_ERRORS)
    os.environ[_NCCL_ERRORS] = "0"
    try:
        yield
    finally:
        os.environ.pop(_NCCL_ERRORS)
        if before is not None:
            os.environ[_NCCL_ERRORS] = before


def abort(group: Backend, *, rank: int, workers: int) -> None:
    """Release whoever waits in `group`, here and now, with an error. It is of no use after that."""
    if group.name() != "gloo":
        group.abort()
        return
    for i in range(1, workers):
        # Gloo has nothing for it, but a wait that ends for lack of time closes all connections of its group. Not one on a connection that
        # is closed already: that one ends at once, and the others stay.
        with contextlib.suppress(RuntimeError):
            group.recv([torch.empty(1)], (rank + i) % workers, _NOBODY_SENDS).wait(dt.timedelta(milliseconds=1))


class Forming(Generic[T]):
    """A group under way, on a thread of its own. `make` returns it, or what uses it, or raises."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._made: T | None = None
        self._error: BaseException | None = None
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(make,), name="process-group", daemon=True)
        self._thread.start()

    def _run(self, make: Callable[[], T]) -> None:
        try:
            self._made = make()
        except Exception as error:  # raised where it is waited for
            self._error = error
        finally:
            self._done.set()

    def result(self, look: Callable[[], None], slice_s: float = 0.05, *, said_s: float = SAID_S) -> T:
        """The group, when it is there. `look` is called while it is not, and may raise: also for a while when it could not be made, since
        who dies in between resets connections before the driver has said so. Raises NoGroup where nothing is said."""
        while not self._done.wait(slice_s):
            look()
        if self._error is not None:
            end = time.monotonic() + said_s
            while time.monotonic() < end:
                look()
                time.sleep(slice_s)
            raise NoGroup(f"the workers could not connect to each other: {self._error}") from self._error
        assert self._made is not None
        return self._made


def _span(seconds: float) -> dt.timedelta:
    return dt.timedelta(seconds=seconds)
