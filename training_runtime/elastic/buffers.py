"""Buffers of a model (batch-norm statistics and the like) follow engine 0, as they follow rank 0 in DistributedDataParallel.

All engines of a step start from the same buffers. What engine 0 made of them goes through shared memory to everyone; what the other engines
made of them is dropped. The shared copy is double (by the parity of the step), so that a slow reader of one step never meets the writer of
the next.
"""

from __future__ import annotations

import torch
from torch import nn

from training_runtime.elastic.arena import Arena
from training_runtime.elastic.state import Buffers


class SharedBuffers:
    def __init__(self, arena: Arena, model: nn.Module) -> None:
        self._found = Buffers(model)
        self._shared: tuple[list[torch.Tensor], list[torch.Tensor]] = ([], [])
        at = 0
        for b in self._found.live():
            for parity in (0, 1):
                flat = arena.tensor("buffers", b.dtype, b.numel(), parity * arena.layout.buffer_bytes + at)
                self._shared[parity].append(flat.view(b.shape))
            at += -(-b.numel() * b.element_size() // 64) * 64
        self._start: list[torch.Tensor] = []
        self._kept = False
        self.keep()

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

    def publish(self, parity: int) -> None:
        """After engine 0."""
        _copy(self._shared[parity], self._found.live())

    def adopt(self, parity: int) -> None:
        """At the end of the step: everyone takes those of engine 0."""
        _copy(self._found.live(), self._shared[parity])
        _copy(self._start, self._shared[parity])


def _copy(targets: list[torch.Tensor], sources: list[torch.Tensor]) -> None:
    if targets:
        with torch.no_grad():
            torch._foreach_copy_(targets, sources)
