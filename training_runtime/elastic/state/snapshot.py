"""A state as it was at a position, in a memfd that all workers of a machine have: what is written to the disk while the training goes on,
and what another worker can still write when the one that did has died or left.

The memfd holds a packed state (see `transfer`), which is what an engine checkpoint is made of; behind it tensors that the files for people
have besides; then an order that says which files those are. Their tensors stand in it by place.
"""

from __future__ import annotations

import mmap
import os
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from training_runtime.elastic.state import capture, transfer
from training_runtime.elastic.state.model_files import on_cpu, without_numpy

_TAIL = 16  # bytes at the end: where the order begins, and how long it is
_ALIGN = 64


@dataclass(frozen=True)
class Order:
    """What is to be written of a snapshot. `shape`: see `checkpoint.vars_of`. `files`: relative paths of files for people, and what is in
    each; `others`: those that are written already, `others_bytes` long. `engine`: the engine checkpoint too. `patient`: until there is room
    for it on the disk."""

    position: int
    step: int
    epoch: int
    shape: dict[str, int]
    files: tuple[tuple[str, Any], ...] = ()
    others: tuple[str, ...] = ()
    others_bytes: int = 0
    engine: bool = True
    patient: bool = True


def take_snapshot(fd: int, live: capture.Live, order: Order, contents: Mapping[str, Any]) -> None:
    """Put the state into memfd `fd`, and `order` for it, whose files are to have `contents` (state dicts, by relative path). Raises what an
    object raises that cannot be pickled."""
    tree = capture.capture(live)
    plan = transfer.plan_layout(tree)
    os.ftruncate(fd, 0)
    transfer.pack(fd, tree, 0, 1)
    capture.read_back(fd, tree, live)
    places = _Places(plan, transfer.size_of(fd))
    files = tuple((path, without_numpy(transfer.replace(content, places.of))) for path, content in contents.items())
    for t, at in places.more:
        transfer.write_all(fd, memoryview(transfer.bytes_of(t)), at)
    data = pickle.dumps(_with(order, files))
    transfer.write_all(fd, memoryview(data + places.end.to_bytes(8, "little") + len(data).to_bytes(8, "little")), places.end)


def _with(order: Order, files: tuple[tuple[str, Any], ...]) -> Order:
    return Order(**{**vars(order), "files": files})


class _Places:
    """Where tensors of files for people lie: most are the state's own, `more` are put behind it, from `end` on."""

    def __init__(self, plan: transfer.Plan, end: int) -> None:
        self._known = {_key(t): at for t, at in plan.tensors}
        self.end = end
        self.more: list[tuple[torch.Tensor, int]] = []

    def of(self, t: torch.Tensor) -> Any:
        if t.layout != torch.strided or t.is_quantized or t.is_conj() or t.is_neg():
            return on_cpu(t)  # in the order itself
        at = self._known.get(_key(t))
        if at is None:
            at = -(-self.end // _ALIGN) * _ALIGN
            self.more.append((t.detach().contiguous().cpu(), at))
            self.end = at + t.numel() * t.element_size()
        return transfer.placed(t, at)


def _key(t: torch.Tensor) -> tuple[Any, ...]:
    """The same for tensors that are the same elements of the same memory."""
    return t.data_ptr(), t.dtype, t.device, tuple(t.shape), t.stride()


class Snapshot:
    """What is in memfd `fd`. Its tensors are that memory: forget them before it is emptied."""

    def __init__(self, fd: int) -> None:
        size = os.fstat(fd).st_size
        tail = os.pread(fd, _TAIL, size - _TAIL)
        start, length = int.from_bytes(tail[:8], "little"), int.from_bytes(tail[8:], "little")
        self.order: Order = pickle.loads(os.pread(fd, length, start))  # noqa: S301 - written by a worker of this run
        self._map = mmap.mmap(fd, size)
        self.state = memoryview(self._map)[: transfer.size_of(fd)]

    def content(self, content: Any) -> Any:
        """What a file is to hold."""
        return transfer.replace(content, self._tensor, transfer.Placed)

    def _tensor(self, leaf: transfer.Placed) -> torch.Tensor:
        count = transfer.count_of(leaf.shape)
        if not count:
            return torch.empty(leaf.shape, dtype=leaf.dtype)
        flat = torch.frombuffer(self._map, dtype=leaf.dtype, count=count, offset=leaf.offset).view(leaf.shape)
        return torch.empty_strided(leaf.shape, leaf.strides, dtype=leaf.dtype).copy_(flat) if leaf.strides else flat
