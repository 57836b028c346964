"""Buffers of a model (batch-norm statistics and the like) follow engine 0, as they follow rank 0 in DistributedDataParallel.

All engines of a step start from the same buffers. What engine 0 made of them goes through shared memory to everyone; what the other engines
made of them is dropped. The shared copy is double (by the parity of the step), so that a slow reader of one step never meets the writer of
the next. A worker on a GPU packs and unpacks them there, so that one copy goes to or from the shared memory, and none while it is alone.
"""

from __future__ import annotations

import torch
from torch import nn

from training_runtime.elastic.arena import Arena
from training_runtime.elastic.state import Buffers


class SharedBuffers:
    """`apart`: they are on `device`, away from the shared memory."""

    def __init__(self, arena: Arena, model: nn.Module, device: torch.device, *, apart: bool) -> None:
        self._found, self._apart = Buffers(model), apart
        size = arena.layout.buffer_bytes
        self._shared = [arena.tensor("buffers", torch.uint8, size, parity * size) for parity in (0, 1)]
        self._packed = torch.empty(size, dtype=torch.uint8, device=device) if apart else torch.empty(0, dtype=torch.uint8)
        self._views = [self._shaped(self._packed)] * 2 if apart else [self._shaped(flat) for flat in self._shared]
        self._start: list[torch.Tensor] = []
        self._kept = False
        self.keep()

    def _shaped(self, flat: torch.Tensor) -> list[torch.Tensor]:
        """The buffers as they lie in `flat`."""
        views, at = [], 0
        for b in self._found.live():
            size = b.numel() * b.element_size()
            views.append(flat[at : at + size].view(b.dtype).view(b.shape))
            at += -(-size // 64) * 64
        return views

    def keep(self) -> None:
        """What the buffers hold now is what every engine of the next step starts from."""
        self._start = [b.clone() for b in self._found.live()]
        self._kept = True

    def advance_alone(self) -> None:
        """One worker did a step of one engine: what the buffers hold now is right, and nobody else needs it. It is kept when it has to
        be: before something that may have to be rewound (`ensure_kept`)."""
        self._kept = False

    def ensure_kept(self) -> None:
        """Before a step that may be dropped, or that has several engines, and before anything else that may touch the buffers."""
        if not self._kept:
            self.keep()

    def rewind(self) -> None:
        """Before each engine: back to the start of the step."""
        _copy(self._found.live(), self._start)

    def publish(self, parity: int, *, alone: bool) -> None:
        """After engine 0. `alone`: there are no other workers."""
        _copy(self._views[parity], self._found.live())
        if self._apart and not alone:
            self._shared[parity].copy_(self._packed)

    def adopt(self, parity: int, *, alone: bool) -> None:
        """At the end of the step: everyone takes those of engine 0."""
        if self._apart and not alone:
            self._packed.copy_(self._shared[parity])
        _copy(self._found.live(), self._views[parity])
        _copy(self._start, self._views[parity])


def _copy(targets: list[torch.Tensor], sources: list[torch.Tensor]) -> None:
    if targets:
        with torch.no_grad():
            torch._foreach_copy_(targets, sources)
