"""Buffers of model and loss (batch-norm statistics and the like) follow engine 0, as they follow rank 0 in DistributedDataParallel; so do
the numbers that the script's own modules keep as attributes (a counter in `forward`). Each keeps its shape and its dtype.

All engines of a step start from the same buffers. What engine 0 made of them goes through shared memory to everyone; what the other engines
made of them is dropped. The shared copy is double (by the parity of the step), so that a slow reader of one step never meets the writer of
the next. A worker on a GPU packs and unpacks them there, so that one copy goes to or from the shared memory, and none while it is alone.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from training_runtime.elastic.comm.segment import Segment
from training_runtime.elastic.state.capture import Buffers
from training_runtime.errors import UserError

OTHER_SHAPE = (
    "the buffer {} of {} was {} when the training began and is {} now: workers share buffers, so all must be there from the start, in one "
    "shape. Make it before train(), as large as it gets (where forward makes it, show the model a batch there), or keep what is a cache "
    "only as a plain attribute"
)
_WORD = 8
_KINDS: dict[type, tuple[int, str]] = {bool: (0, "q"), int: (1, "q"), float: (2, "d")}
_NONE = (-1, "q")  # not a number any more, or one that is too large: each keeps its own
_MOST = 1 << 63


class Numbers:
    """Numbers that modules have as attributes. `shared`: those of modules that are not torch's, whose `forward` may change them."""

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        kept = [
            (module, name) for module in modules for name, value in vars(module).items() if name != "training" and type(value) in _KINDS
        ]
        self._places = [(vars(module), name) for module, name in kept]
        self._shared = [(vars(module), name) for module, name in kept if not type(module).__module__.startswith("torch.")]
        self.size = (1 + 2 * len(self._shared)) * _WORD if self._shared else 0

    def values(self) -> list[Any]:
        return [attributes.get(name) for attributes, name in self._places]

    def now(self) -> list[Any]:
        """Of the shared ones."""
        return [attributes.get(name) for attributes, name in self._shared]

    def become(self, values: Sequence[Any]) -> None:
        for (attributes, name), value in zip(self._shared, values, strict=True):
            attributes[name] = value

    def write(self, memory: memoryview, start: Sequence[Any]) -> None:
        """For others; a word alone where they are what they were."""
        values = self.now()
        changed = any(a is not b and a != b for a, b in zip(values, start, strict=True))
        struct.pack_into("<q", memory, 0, changed)
        if changed:
            for i, value in enumerate(values):
                kind, code = _KINDS.get(type(value), _NONE) if not isinstance(value, int) or -_MOST <= value < _MOST else _NONE
                struct.pack_into(f"<q{code}", memory, (1 + 2 * i) * _WORD, kind, value if kind >= 0 else 0)

    def read(self, memory: memoryview, start: Sequence[Any]) -> list[Any]:
        """What `write` has written."""
        if not struct.unpack_from("<q", memory, 0)[0]:
            return list(start)
        found: list[Any] = []
        for i, own in enumerate(self.now()):
            (kind,) = struct.unpack_from("<q", memory, (1 + 2 * i) * _WORD)
            (value,) = struct.unpack_from("<d" if kind == _KINDS[float][0] else "<q", memory, (2 + 2 * i) * _WORD)
            found.append(own if kind < 0 else bool(value) if kind == _KINDS[bool][0] else value)
        return found


def _tensor_bytes(modules: Sequence[nn.Module]) -> int:
    return sum(-(-b.numel() * b.element_size() // 64) * 64 for b in Buffers(modules).live())


def shared_bytes(modules: Sequence[nn.Module]) -> int:
    """What one copy takes in the shared memory."""
    return _tensor_bytes(modules) + -(-Numbers(modules).size // 64) * 64


class SharedBuffers:
    """`on_device`: they are on `device`, away from the shared memory."""

    def __init__(self, segment: Segment, modules: Sequence[nn.Module], device: torch.device, *, on_device: bool) -> None:
        self._found, self._on_device, self.numbers = Buffers(modules), on_device, Numbers(modules)
        self._modules, self._shapes = tuple(modules), _shapes(modules)
        self._dtypes = [b.dtype for b in self._found.live()]
        size, all_bytes = _tensor_bytes(modules), segment.layout.buffer_bytes
        self._shared = [segment.tensor("buffers", torch.uint8, size, parity * all_bytes) for parity in (0, 1)]
        first = segment.layout.offsets["buffers"] + size
        self._words = [segment.memory(first + parity * all_bytes, self.numbers.size) for parity in (0, 1)]
        self._packed = torch.empty(size, dtype=torch.uint8, device=device) if on_device else torch.empty(0, dtype=torch.uint8)
        self._views = [self._shaped(self._packed)] * 2 if on_device else [self._shaped(flat) for flat in self._shared]
        self._start: list[torch.Tensor] = []
        self._numbers: list[Any] = []
        self._is_snapshot_fresh = False
        self.snapshot()

    def _shaped(self, flat: torch.Tensor) -> list[torch.Tensor]:
        """The buffers as they lie in `flat`."""
        views, at = [], 0
        for b in self._found.live():
            size = b.numel() * b.element_size()
            views.append(flat[at : at + size].view(b.dtype).view(b.shape))
            at += -(-size // 64) * 64
        return views

    def snapshot(self) -> None:
        """What the buffers hold now is what every engine of the next step starts from."""
        self._start, self._numbers = [b.clone() for b in self._found.live()], self.numbers.now()
        self._is_snapshot_fresh = True

    def advance_alone(self) -> None:
        """One worker did a step of one engine: what the buffers hold now is right, and nobody else needs it. A snapshot is taken when it
        has to be: before something that may have to be restored (`ensure_snapshot`)."""
        self._found.cast(self._dtypes)
        self._is_snapshot_fresh = False

    def outdate_snapshot(self) -> None:
        """The script may have changed buffers since they were taken, the same on every worker."""
        self._is_snapshot_fresh = False

    def ensure_snapshot(self) -> None:
        """Before a step that may be dropped, or that has several engines, and before anything else that may touch the buffers."""
        if not self._is_snapshot_fresh:
            self.snapshot()

    def restore(self) -> None:
        """Before each engine: back to the start of the step."""
        self._refuse_other_shapes()
        self._found.cast(self._dtypes)
        _copy(self._found.live(), self._start)
        self.numbers.become(self._numbers)

    def broadcast(self, parity: int, *, alone: bool) -> None:
        """After engine 0. `alone`: there are no other workers. UserError where forward has changed a buffer's shape, or made one."""
        self._refuse_other_shapes()
        _copy(self._views[parity], self._found.live())
        if self._on_device and not alone:
            self._shared[parity].copy_(self._packed)
        if self.numbers.size:
            self.numbers.write(self._words[parity], self._numbers)

    def _refuse_other_shapes(self) -> None:
        shapes = _shapes(self._modules)
        if shapes != self._shapes:
            i, name = next(key for key in {**shapes, **self._shapes} if shapes.get(key) != self._shapes.get(key))
            was, found = (_in_words(each.get((i, name))) for each in (self._shapes, shapes))
            raise UserError(OTHER_SHAPE.format(name, type(self._modules[i]).__name__, was, found))

    def receive_broadcast(self, parity: int, *, alone: bool) -> None:
        """When gradients are added up: everyone takes those of engine 0."""
        if self._on_device and not alone:
            self._packed.copy_(self._shared[parity])
        self._found.cast(self._dtypes)
        _copy(self._found.live(), self._views[parity])
        _copy(self._start, self._views[parity])
        if self.numbers.size:
            self._numbers = self.numbers.read(self._words[parity], self._numbers)
            self.numbers.become(self._numbers)


def _shapes(modules: Sequence[nn.Module]) -> dict[tuple[int, str], torch.Size]:
    """Of each buffer, by the place of its module and its name."""
    return {(i, name): b.shape for i, module in enumerate(modules) for name, b in module._buffers.items() if b is not None}


def _in_words(shape: torch.Size | None) -> str:
    return "not there" if shape is None else f"of shape {tuple(shape)}"


def _copy(targets: list[torch.Tensor], sources: list[torch.Tensor]) -> None:
    if targets:
        with torch.no_grad():
            torch._foreach_copy_(targets, sources)
