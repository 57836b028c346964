"""The memory of an optimizer whose step is shared out: two banks for its state, of which one is always whole, and a row for parameters that
are stepped; or two of these, where workers read the parameters there too. All workers of a machine have it in common.

What lies where follows from what the state is made of, so everybody who holds the same state comes to the same places.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from training_runtime.elastic.comm.all_reduce import padded
from training_runtime.elastic.comm.private_view import PAGE, PrivateView
from training_runtime.elastic.comm.segment import STATE_BANKS, Segment
from training_runtime.elastic.comm.strides import is_dense, laid_out_as

TENSORS = 4  # as large as their parameter, of one parameter's state at most
SCALARS = 8
LINE = 64

State = dict[str, Any]
Memory = Callable[[torch.dtype, int, int], torch.Tensor]  # makes flat tensors: so many elements, from a byte on


def bank_bytes(parameters: Sequence[torch.Tensor]) -> int:
    """Room for the state of these, whole pages. Only what is written to becomes memory."""
    return whole_pages(sum(TENSORS * padded(p) * p.element_size() + SCALARS * LINE for p in parameters))


def whole_pages(size: int) -> int:
    return -(-size // PAGE) * PAGE


def fits(state: Mapping[str, Any]) -> bool:
    """Whether the state of a parameter is nothing but tensors that can be kept in a bank."""
    return all(
        isinstance(t, torch.Tensor) and t.device.type in ("cpu", "meta") and t.layout == torch.strided and is_dense(t)
        for t in state.values()
    )


class Banks:
    """This process's view of them. `rows`, `states`: to write to, a step uses those of its parity. `own_parameters`, `own_states`: at
    addresses of their own, what this process sees as the newest ones, and may write to without anybody seeing it."""

    def __init__(self, segment: Segment, parameters: Sequence[torch.Tensor]) -> None:
        layout = segment.layout
        self._layout, self._at = layout, layout.offsets["state"]
        self._used = 0
        rows = [self._row(partial(self._shared, segment, i * layout.row_bytes), parameters) for i in range(layout.parameter_rows)]
        self.rows = [rows[i % len(rows)] for i in range(STATE_BANKS)]
        self.states: list[dict[int, State]] = [{} for _ in range(STATE_BANKS)]
        self.own_states: dict[int, State] = {}
        self._memories: list[Memory] = [partial(self._shared, segment, self._bank(i)) for i in range(STATE_BANKS)]
        self._states_view = PrivateView(segment.fd, layout.bank_bytes)
        self._parameters_view = PrivateView(segment.fd, layout.row_bytes) if layout.parameter_rows > 1 else None
        self.own_parameters = self._row(self._parameters_view.tensor, parameters) if self._parameters_view is not None else []
        self.shows = -1  # which bank; -1: neither, what is at these addresses is this process's own

    def _bank(self, number: int) -> int:
        return self._layout.parameter_rows * self._layout.row_bytes + number * self._layout.bank_bytes

    @staticmethod
    def _shared(segment: Segment, first: int, dtype: torch.dtype, count: int, at: int) -> torch.Tensor:
        return segment.tensor("state", dtype, count, first + at)

    def _row(self, memory: Memory, parameters: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """A tensor for each parameter."""
        at, found = {flat.dtype: flat.offset for flat in self._layout.flat_buffers}, []
        for p in parameters:
            found.append(_like(p, memory, at[p.dtype]))
            at[p.dtype] += padded(p) * p.element_size()
        return found

    def allocate(self, states: Mapping[int, Mapping[str, torch.Tensor]]) -> bool:
        """Have tensors like those of these parameters (by their number). False where there is no room."""
        kinds = [(i, name, t, t.numel() * t.element_size()) for i, state in states.items() for name, t in state.items()]
        at, places = 0, []
        for *_, size in kinds:
            places.append(at)
            at += -(-size // LINE) * LINE
        self._used = whole_pages(at)
        if self._used > self._layout.bank_bytes:
            return False
        made: list[dict[int, State]] = [{i: {} for i in states} for _ in range(STATE_BANKS + 1)]
        for of, memory in zip(made, (*self._memories, self._states_view.tensor), strict=True):
            for (i, name, t, _), place in zip(kinds, places, strict=True):
                of[i][name] = _like(t, memory, place)
        *self.states, self.own_states = made
        return True

    def show(self, number: int) -> None:
        """Have what is in a bank, in the place of what was there."""
        self._states_view.show(self._at + self._bank(number), self._used)
        if self._parameters_view is not None:
            self._parameters_view.show(self._at + number * self._layout.row_bytes, self._layout.row_bytes, read=True)
        self.shows = number

    def detach(self) -> None:
        """What is seen becomes this process's own: somebody is to write to the bank, or to give its memory back."""
        if self.shows >= 0:
            self._states_view.detach()
            if self._parameters_view is not None:
                self._parameters_view.detach()
            self.shows = -1


def _like(t: torch.Tensor, memory: Memory, at: int) -> torch.Tensor:
    return laid_out_as(t, memory(t.dtype, t.numel(), at))
