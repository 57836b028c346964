"""The whole state of a training as a tree of plain values and tensors: parameters, buffers, optimizer, callbacks.

It is captured from and restored into the live objects in place (views and hooks that the user holds stay good). On its way to newcomers it
goes through a memfd, written and read in parts, so the pages never touch a disk. Nothing here knows about steps or members.
"""

from __future__ import annotations

import ctypes
import os
import pickle
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch
from torch import nn

from training_runtime.elastic import heartbeat

_ALIGN = 64
_HEAD = 16  # bytes: where the index lies, and how long it is


@dataclass(frozen=True)
class _Placed:
    """A tensor of a packed tree: where it lies."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    offset: int


class Source(Protocol):
    """Where the tensors of a tree come from. `leaf` is the type that stands for a tensor in it."""

    leaf: type[Any]

    def fill(self, target: torch.Tensor, leaf: Any) -> None:
        """Write the tensor into `target`."""

    def make(self, leaf: Any) -> torch.Tensor:
        """The tensor on the CPU, in memory that nobody else uses."""


class Buffers:
    """All buffers of a model (batch-norm statistics and the like), found anew each time: a module may replace them."""

    def __init__(self, model: nn.Module) -> None:
        self._places = [(module, name) for module in model.modules() for name, b in module._buffers.items() if b is not None]

    def live(self) -> list[torch.Tensor]:
        return [b for module, name in self._places if (b := module._buffers[name]) is not None]


def all_parameters(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """Every parameter of the optimizer, then those of the model that it does not hold; each once."""
    seen: dict[int, torch.Tensor] = {id(p): p for p in trained_parameters(optimizer)}
    for p in model.parameters():
        seen.setdefault(id(p), p)
    return list(seen.values())


def trained_parameters(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return list({id(p): p for group in optimizer.param_groups for p in group["params"]}.values())


def capture(model: nn.Module, optimizer: torch.optim.Optimizer, callbacks: Sequence[object]) -> dict[str, Any]:
    """The state as a tree that refers to the live tensors; nothing is copied."""
    return {
        "parameters": [p.detach() for p in all_parameters(model, optimizer)],
        "grads": [p.requires_grad for p in all_parameters(model, optimizer)],
        "modes": [module.training for module in model.modules()],
        "buffers": Buffers(model).live(),
        "optimizer": [optimizer.state.get(p, {}) for p in trained_parameters(optimizer)],
        "groups": [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups],
        "callbacks": [_callback_state(c) for c in callbacks],
    }


def restore(tree: dict[str, Any], source: Source, model: nn.Module, optimizer: torch.optim.Optimizer, callbacks: Sequence[object]) -> None:
    """Make the live objects equal to `tree`, whose tensors come from `source`."""
    with torch.no_grad():
        for p, leaf in zip(all_parameters(model, optimizer), tree["parameters"], strict=True):
            source.fill(p, leaf)
        for b, leaf in zip(Buffers(model).live(), tree["buffers"], strict=True):
            source.fill(b, leaf)
    for p, flag in zip(all_parameters(model, optimizer), tree["grads"], strict=True):
        p.requires_grad_(flag)
    for module, flag in zip(model.modules(), tree["modes"], strict=True):
        module.training = flag
    for p, value in zip(trained_parameters(optimizer), tree["optimizer"], strict=True):
        optimizer.state.pop(p, None)
        if value:
            optimizer.state[p] = replace(value, source.make, source.leaf)
    for group, values in zip(optimizer.param_groups, tree["groups"], strict=True):
        group.update(replace(values, source.make, source.leaf))
    follow(optimizer)
    for c, values in zip(callbacks, replace(tree["callbacks"], source.make, source.leaf), strict=True):
        _restore_callback(c, values)


def move(model: nn.Module, optimizer: torch.optim.Optimizer, device: torch.device) -> None:
    """Put model and optimizer on `device`: the same parameters, buffers and entries of the state, elsewhere."""
    model.to(device)
    for p in trained_parameters(optimizer):
        if p.device != device:  # one that is not the model's own
            p.data = p.data.to(device)
    follow(optimizer)


def follow(optimizer: torch.optim.Optimizer) -> None:
    """Have the optimizer's state where its parameters are. Scalars (Adam's step) stay on the CPU as torch has them, but for optimizers that
    count on the device."""
    for group in optimizer.param_groups:
        scalars = bool(group.get("capturable") or group.get("fused"))
        for p in group["params"]:
            if p.device.type != "cpu" and p in optimizer.state:
                optimizer.state[p] = replace(optimizer.state[p], partial(_to_device, p.device, scalars))


def _to_device(device: torch.device, scalars: bool, value: torch.Tensor) -> torch.Tensor:
    return value.to(device) if scalars or value.dim() else value


def replace(value: Any, tensor: Callable[[Any], Any], kind: type[Any] = torch.Tensor) -> Any:
    """`value` with every leaf of type `kind` replaced, through dicts, lists and tuples."""
    if isinstance(value, kind):
        return tensor(value)
    if isinstance(value, dict):
        return {k: replace(v, tensor, kind) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(replace(v, tensor, kind) for v in value)
    return value


def _callback_state(callback: object) -> dict[str, tuple[str, Any]]:
    """What a callback has learnt: state_dict of attributes that have one (schedulers), other attributes where they can be pickled."""
    found: dict[str, tuple[str, Any]] = {}
    for name, value in vars(callback).items() if hasattr(callback, "__dict__") else ():
        if name in ("params", "model") or isinstance(value, (nn.Module, torch.optim.Optimizer)):
            continue
        if hasattr(value, "state_dict") and hasattr(value, "load_state_dict"):
            found[name] = ("state", value.state_dict())
            continue
        try:
            found[name] = ("value", pickle.dumps(value))
        except Exception:  # noqa: S112 - a file, a lock, a lambda: stays each process's own
            continue
    return found


def _restore_callback(callback: object, values: dict[str, tuple[str, Any]]) -> None:
    for name, (how, value) in values.items():
        if how == "state":
            getattr(callback, name).load_state_dict(value)
        else:
            setattr(callback, name, pickle.loads(value))  # noqa: S301 - written by this run's own worker


class InMemory:
    """Source of a tree of tensors that is not used for anything else afterwards (one that was just loaded)."""

    leaf = torch.Tensor

    def fill(self, target: torch.Tensor, leaf: torch.Tensor) -> None:
        target.copy_(leaf)

    def make(self, leaf: torch.Tensor) -> torch.Tensor:
        return leaf


def place(tree: Any) -> tuple[list[tuple[torch.Tensor, int]], bytes, int]:
    """Lay a tree out: (tensor, offset) pairs, the pickled index, and the offset of the index. The same for equal states."""
    tensors: list[tuple[torch.Tensor, int]] = []
    at = _HEAD

    def put(t: torch.Tensor) -> _Placed:
        nonlocal at
        at = -(-at // _ALIGN) * _ALIGN
        tensors.append((t, at))
        at += t.numel() * t.element_size()
        return _Placed(t.dtype, tuple(t.shape), tensors[-1][1])

    index = pickle.dumps(replace(tree, put))
    return tensors, index, at


def pack(fd: int, tree: Any, part: int, parts: int) -> None:
    """Write the tree into memfd `fd`; of `parts` writers with equal trees, number `part` writes its share of bytes. Part 0 writes the
    index.

    Plain writes: they need no page of this process to be mapped, which would cost more than the copy.
    """
    tensors, index, end = place(tree)
    if part == 0:
        os.pwrite(fd, end.to_bytes(8, "little") + len(index).to_bytes(8, "little"), 0)
        os.pwrite(fd, index, end)
    low, high = end * part // parts, end * (part + 1) // parts
    for t, offset in tensors:
        first, last = max(low, offset), min(high, offset + t.numel() * t.element_size())
        if first < last:
            held = t.detach().contiguous().cpu()
            write_all(fd, memoryview(bytes_of(held))[first - offset : last - offset], first)


def packed_bytes(tree: Any) -> int:
    """The size of the memfd that `pack` writes."""
    _, index, end = place(tree)
    return end + len(index)


def index_of(fd: int) -> Any:
    """The packed tree, with `_Placed` where its tensors are."""
    head = os.pread(fd, _HEAD, 0)
    end, length = int.from_bytes(head[:8], "little"), int.from_bytes(head[8:], "little")
    return pickle.loads(os.pread(fd, length, end))  # noqa: S301 - written by this run's own worker


class Landing:
    """Source of the tree that lies in memfd `fd`. Prepared before the tree is there: `expected_bytes` of touched memory wait for new
    tensors."""

    leaf = _Placed

    def __init__(self, fd: int, expected_bytes: int) -> None:
        self._fd = fd
        self._room = torch.zeros(-(-expected_bytes // _ALIGN) * _ALIGN, dtype=torch.uint8)
        self._used = 0
        if expected_bytes and os.fstat(fd).st_size < expected_bytes:
            os.posix_fallocate(fd, 0, expected_bytes)  # its pages too

    def fill(self, target: torch.Tensor, leaf: _Placed) -> None:
        if target.device.type == "cpu" and target.is_contiguous():
            read_all(self._fd, target, leaf.offset)
        else:
            target.copy_(self.make(leaf))

    def make(self, leaf: _Placed) -> torch.Tensor:
        made = self._allocate(leaf)
        read_all(self._fd, made, leaf.offset)
        return made

    def _allocate(self, leaf: _Placed) -> torch.Tensor:
        count = 1
        for n in leaf.shape:
            count *= n
        size = count * leaf.dtype.itemsize
        start = -(-self._used // _ALIGN) * _ALIGN
        if start + size > len(self._room):
            return torch.empty(leaf.shape, dtype=leaf.dtype)
        self._used = start + size
        return self._room[start : start + size].view(leaf.dtype).view(leaf.shape)


def touch(tensors: Iterable[torch.Tensor]) -> None:
    """Write every page of these tensors without changing a bit: pages shared with the process this one was forked from become its own
    now, not in a step."""
    with torch.no_grad():
        for t in tensors:
            t.copy_(t.clone())


def bytes_of(t: torch.Tensor) -> ctypes.Array[ctypes.c_char]:
    """The memory of a contiguous CPU tensor."""
    return (ctypes.c_char * (t.numel() * t.element_size())).from_address(t.data_ptr())


def write_all(fd: int, data: memoryview, offset: int) -> None:
    """Write all of `data` from byte `offset` of a file on."""
    for piece in heartbeat.pieces(data):
        while piece:
            written = os.pwrite(fd, piece, offset)
            piece, offset = piece[written:], offset + written


def read_all(fd: int, into: torch.Tensor, offset: int) -> None:
    """Fill a contiguous CPU tensor from byte `offset` of a file on. Raises EOFError where the file ends before."""
    for piece in heartbeat.pieces(memoryview(bytes_of(into))):
        while piece:
            read = os.preadv(fd, [piece], offset)
            if not read:
                raise EOFError("the packed state ends before its last tensor")
            piece, offset = piece[read:], offset + read
