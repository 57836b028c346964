"""The memory of an optimizer whose step is shared out: two banks for its state, of which one is always whole, and a row for parameters that
are stepped. All workers of a machine have it in common.

What lies where follows from what the state is made of, so everybody who holds the same state comes to the same places.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from training_runtime.elastic.comm.all_reduce import padded
from training_runtime.elastic.comm.segment import STATE_BANKS, Segment
from training_runtime.elastic.comm.strides import is_dense, laid_out_as

TENSORS = 4  # as large as their parameter, of one parameter's state at most
SCALARS = 8
LINE = 64

State = dict[str, Any]


def bank_bytes(parameters: Sequence[torch.Tensor]) -> int:
    """Room for the state of these. Only what is written to becomes memory."""
    return sum(TENSORS * padded(p) * p.element_size() + SCALARS * LINE for p in parameters)


def fits(state: Mapping[str, Any]) -> bool:
    """Whether the state of a parameter is nothing but tensors that can be kept in a bank."""
    return all(isinstance(t, torch.Tensor) and t.device.type == "cpu" and t.layout == torch.strided and is_dense(t) for t in state.values())


class Banks:
    """This process's view of them."""

    def __init__(self, segment: Segment, parameters: Sequence[torch.Tensor]) -> None:
        layout = segment.layout
        self._size = layout.bank_bytes
        self._memory = segment.tensor("state", torch.uint8, STATE_BANKS * self._size + layout.row_bytes)
        self.row = self._row(layout.flat_buffers, parameters)

    def _row(self, flat_buffers: Sequence[Any], parameters: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """A view for each parameter, behind the banks."""
        at = {flat.dtype: STATE_BANKS * self._size + flat.offset for flat in flat_buffers}
        views = []
        for p in parameters:
            views.append(self._view(p, at[p.dtype]))
            at[p.dtype] += padded(p) * p.element_size()
        return views

    def _view(self, like: torch.Tensor, at: int) -> torch.Tensor:
        return laid_out_as(like, self._memory[at : at + like.numel() * like.element_size()].view(like.dtype))

    @property
    def version(self) -> int:
        """Grows with every change that this process makes in place to what is there."""
        return self._memory._version

    def allocate_states(self, states: Mapping[int, Mapping[str, torch.Tensor]]) -> list[dict[int, State]] | None:
        """For each bank, views for the states of these parameters (by their number). None where there is no room."""
        banks: list[dict[int, State]] = [{} for _ in range(STATE_BANKS)]
        at = 0
        for i, state in states.items():
            for name, t in state.items():
                size = t.numel() * t.element_size()
                if at + size > self._size:
                    return None
                for number, bank in enumerate(banks):
                    bank.setdefault(i, {})[name] = self._view(t, number * self._size + at)
                at += -(-size // LINE) * LINE
        return banks
