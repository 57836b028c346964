"""A tree of plain values and tensors as bytes: how the state gets to newcomers, through a memfd, and into a checkpoint. Written and read in
parts; what goes through a memfd never touches a disk.
"""

from __future__ import annotations

import ctypes
import io
import os
import pickle
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from training_runtime.elastic.state.window import Window
from training_runtime.elastic.worker import heartbeat

_ALIGN = 64
_HEAD = 16  # bytes: where the index lies, and how long it is


@dataclass(frozen=True)
class Placed:
    """A tensor of a packed tree: where it lies, in row-major order. `strides`: how its elements lay in memory, where that was in another
    order; sums over them depend on it."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    offset: int
    strides: tuple[int, ...] = ()


class Source(Protocol):
    """Where the tensors of a tree come from. `leaf` is the type that stands for a tensor in it."""

    leaf: type[Any]

    def fill(self, target: torch.Tensor, leaf: Any) -> None:
        """Write the tensor into `target`."""

    def make(self, leaf: Any) -> torch.Tensor:
        """The tensor on the CPU, in memory that nobody else uses."""


def replace(value: Any, tensor: Callable[[Any], Any], kind: type[Any] = torch.Tensor) -> Any:
    """`value` with every leaf of type `kind` replaced, through dicts, lists and tuples."""
    if isinstance(value, kind):
        return tensor(value)
    if isinstance(value, dict):
        return {k: replace(v, tensor, kind) for k, v in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):  # a named one takes its items one by one
        return type(value)(*(replace(v, tensor, kind) for v in value))
    if isinstance(value, (list, tuple)):
        return type(value)(replace(v, tensor, kind) for v in value)
    return value


@dataclass(frozen=True)
class Plan:
    """Where everything of a tree goes: (tensor, offset) pairs, and the pickled index at `end`. What lies before `common` is the same for
    all workers; what callbacks hold may not be."""

    tensors: list[tuple[torch.Tensor, int]]
    index: bytes
    common: int
    end: int


def plan_layout(tree: Mapping[str, Any]) -> Plan:
    """Lay a captured tree out."""
    tensors: list[tuple[torch.Tensor, int]] = []
    at = _HEAD

    def put(t: torch.Tensor) -> Placed:
        nonlocal at
        at = -(-at // _ALIGN) * _ALIGN
        tensors.append((t, at))
        at += t.numel() * t.element_size()
        return placed(t, tensors[-1][1])

    index = pickle.dumps(replace(tree, put))
    count = len(tree["parameters"]) + len(tree["buffers"]) + tree["common"]
    return Plan(tensors, index, tensors[count][1] if count < len(tensors) else at, at)


def placed(t: torch.Tensor, offset: int) -> Placed:
    """What stands for a tensor that lies there."""
    return Placed(t.dtype, tuple(t.shape), offset, _strides(t))


def _strides(t: torch.Tensor) -> tuple[int, ...]:
    return () if t.is_contiguous() else torch.empty_like(t, device="meta").stride()  # those of a copy: dense, in the same order


def pack(file: int | Window, tree: Mapping[str, Any], part: int, parts: int) -> None:
    """Write the tree into a file; of `parts` writers with equal states, number `part` writes its share of bytes. Part 0 writes the index,
    and what need not be equal. Where none of its pages is mapped, plain writes: mapping them now would cost more than the copy."""
    to = file if isinstance(file, Window) else Window(file)
    plan = plan_layout(tree)
    shares = [range(plan.common * part // parts, plan.common * (part + 1) // parts)]
    if part == 0:
        shares.append(range(plan.common, plan.end))
        write_all(to.fd, memoryview(plan.end.to_bytes(8, "little") + len(plan.index).to_bytes(8, "little")), 0)
        write_all(to.fd, memoryview(plan.index), plan.end)
    for t, offset in plan.tensors:
        for share in shares:
            first, last = max(share.start, offset), min(share.stop, offset + t.numel() * t.element_size())
            if first < last:
                flat = t.detach().contiguous().cpu()
                data = memoryview(bytes_of(flat))[first - offset : last - offset]
                done = to.write(data, first)
                write_all(to.fd, data[done:], first + done)


def packed_bytes(tree: Mapping[str, Any]) -> int:
    """The size of the file that `pack` writes."""
    plan = plan_layout(tree)
    return plan.end + len(plan.index)


def index_of(fd: int) -> Any:
    """The packed tree, with `Placed` where its tensors are."""
    head = os.pread(fd, _HEAD, 0)
    end, length = int.from_bytes(head[:8], "little"), int.from_bytes(head[8:], "little")
    return _Index(io.BytesIO(os.pread(fd, length, end))).load()


def size_of(fd: int) -> int:
    """Of the packed tree in a file, which may be longer."""
    head = os.pread(fd, _HEAD, 0)
    return int.from_bytes(head[:8], "little") + int.from_bytes(head[8:], "little")


def index_bytes(fd: int, size: int) -> bytes:
    """The head and the index of a packed tree of `size` bytes as they stand there; nothing where they cannot be."""
    head = os.pread(fd, _HEAD, 0)
    end, length = int.from_bytes(head[:8], "little"), int.from_bytes(head[8:], "little")
    return head + os.pread(fd, length, end) if end + length <= size else b""


class _Index(pickle.Unpickler):
    """Reads an index, which holds nothing but plain values and places."""

    def find_class(self, module: str, name: str) -> Any:
        if module == __name__ and name in (Placed.__name__, "_Placed"):  # the latter in checkpoints that are older
            return Placed
        if module == "torch" and isinstance(found := getattr(torch, name, None), torch.dtype):
            return found
        raise pickle.UnpicklingError(f"{module}.{name} does not belong into a packed state")


class Landing:
    """Source of the tree that lies in a file. Prepared before the tree is there: room for `expected_bytes` in the file, mapped, and so much
    touched memory for new tensors as is left of that without what goes into `live` ones."""

    leaf = Placed

    def __init__(self, file: int | Window, expected_bytes: int, live: Iterable[torch.Tensor] = ()) -> None:
        self._from = file if isinstance(file, Window) else Window(file)
        if expected_bytes:
            self._from.make(expected_bytes)  # first of all: members map it meanwhile
        room = expected_bytes - sum(t.numel() * t.element_size() for t in live)
        self._room = torch.zeros(-(-max(0, room) // _ALIGN) * _ALIGN, dtype=torch.uint8)
        self._used = 0

    def fill(self, target: torch.Tensor, leaf: Placed) -> None:
        if target.device.type == "cpu" and target.is_contiguous():
            self._read(target, leaf)
        else:
            target.copy_(self.make(leaf))

    def make(self, leaf: Placed) -> torch.Tensor:
        made = self._allocate(leaf)
        self._read(made, leaf)
        return torch.empty_strided(leaf.shape, leaf.strides, dtype=leaf.dtype).copy_(made) if leaf.strides else made

    def _read(self, into: torch.Tensor, leaf: Placed) -> None:
        data = memoryview(bytes_of(into))
        done = self._from.read(data, leaf.offset)
        read_all(self._from.fd, data[done:], leaf.offset + done)

    def _allocate(self, leaf: Placed) -> torch.Tensor:
        size = count_of(leaf.shape) * leaf.dtype.itemsize
        start = -(-self._used // _ALIGN) * _ALIGN
        if start + size > len(self._room):
            return torch.empty(leaf.shape, dtype=leaf.dtype)
        self._used = start + size
        return self._room[start : start + size].view(leaf.dtype).view(leaf.shape)


def count_of(shape: Iterable[int]) -> int:
    """Elements of a tensor of this shape."""
    count = 1
    for n in shape:
        count *= n
    return count


def bytes_of(t: torch.Tensor) -> ctypes.Array[ctypes.c_char]:
    """The memory of a contiguous CPU tensor."""
    return (ctypes.c_char * (t.numel() * t.element_size())).from_address(t.data_ptr())


def write_all(fd: int, data: memoryview, offset: int) -> None:
    """Write all of `data` from byte `offset` of a file on."""
    for piece in heartbeat.pieces(data):
        while piece:
            written = os.pwrite(fd, piece, offset)
            piece, offset = piece[written:], offset + written


def read_all(fd: int, into: memoryview, offset: int) -> None:
    """Fill `into` from byte `offset` of a file on. Raises EOFError where the file ends before."""
    for piece in heartbeat.pieces(into):
        while piece:
            read = os.preadv(fd, [piece], offset)
            if not read:
                raise EOFError("the packed state ends before its last tensor")
            piece, offset = piece[read:], offset + read
