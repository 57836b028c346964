"""The optimizer's step, shared out over the workers of one machine: each steps its parameters, once, for all (ZeRO-1, with the state in
memory that they share). Of several machines each does the whole step for itself: after the sum all have the same gradients.

A step has a third barrier, of the workers of one machine. Before it each copies the state of its parameters from where it is to the other
bank (see `comm.banks`) and steps it there, its parameters in the row beside; behind it everybody takes all parameters from the row, and the
other bank is the state. So until the barrier a step has changed nothing, and who waits there for somebody who has died does the whole step
alone, from the state and the gradients that it still has: once the gradients are summed every worker that lives comes to the state after
the step, as everywhere, and the state never depends on one process. Neither bank is written to before all have met again: so where somebody
leaves its machine after a step, that one is not shared out.

Each worker has all parameters for itself, and reads the state of all of them as if it were its own (`optimizer.state`). Where the script
may change the state, at the beginning and end of epochs, each gets a copy first, which the next step begins from. Whoever enters a
generation has one, too: nothing is handed over in another way than without this.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch

from training_runtime.elastic.comm.banks import Banks, State, fits
from training_runtime.elastic.comm.group import Group
from training_runtime.elastic.comm.segment import SHARES, STATE_BANKS, Segment
from training_runtime.elastic.comm.strides import is_dense
from training_runtime.elastic.processes.worker_context import return_freed_memory
from training_runtime.elastic.state import elementwise
from training_runtime.errors import UserError

CHANGED = (
    "the state of the optimizer was changed while a step was computed, which shard_optimizer=True does not allow, because workers share "
    "it: change it in on_epoch_begin or on_epoch_end, or leave shard_optimizer out"
)
ON_DEVICE = "shard_optimizer: each worker keeps the whole state of the optimizer, which is shared out on processor slots only so far"
PLAN_BITS = 32
_owners = lru_cache(maxsize=64)(elementwise.owners)


class ShardedOptimizer:
    """The step of `optimizer` over `parameters` (its own, in its order). `on`: it is to be shared out; else nothing is ever done here."""

    def __init__(self, segment: Segment, optimizer: torch.optim.Optimizer, parameters: Sequence[torch.Tensor], *, on: bool) -> None:
        self.on = on
        self._optimizer, self._parameters = optimizer, tuple(parameters)
        self._on_device = any(p.device.type != "cpu" for p in self._parameters)
        self._sizes = tuple(p.numel() for p in self._parameters)
        self._banks = Banks(segment, self._parameters) if on else None
        self._states: list[dict[int, State]] = [{} for _ in range(STATE_BANKS)]  # of the parameters that have any, by their number
        self._views: list[dict[int, State]] = [{} for _ in range(STATE_BANKS)]  # the same, which nobody else has in hands
        self._current = -1  # the bank that the optimizer's state is in, -1: it is this process's own
        self._plan = 0  # a sum over what the state is made of, by which members see that they mean the same places
        self._version = 0
        self._said = False
        self._before: list[tuple[torch.Tensor, Any]] = []  # parameters of the step under way, and their state before it
        self._unused: list[tuple[torch.Tensor, torch.Tensor]] = []  # parameters that others step, and their gradients

    def offer(self, group: Group, step: int) -> None:
        """Tell the others of this machine whether this worker could share `step` out. Before the first barrier. UserError where the script
        has written to what workers share."""
        if self.on:
            word = step << PLAN_BITS | self._plan if self._is_ready(group, step % STATE_BANKS) else 0
            group.segment.set(group.worker_id, SHARES + step % 2, word)

    def applies(self, group: Group, step: int, used: Sequence[int]) -> bool:
        """Whether the members on this machine share `step` out: the same answer on each, whatever it thinks itself. `used`: for each
        parameter, whether any engine has used it. Between the second barrier and the third, or the next step's first one."""
        if not self.on:
            return False
        words = {group.segment.get(worker_id, SHARES + step % 2) for worker_id in group.local}
        if len(words) > 1 or words.pop() >> PLAN_BITS != step:
            return False
        return all(i in self._states[0] for i, some in enumerate(used) if some)

    def _is_ready(self, group: Group, target: int) -> bool:
        if len(group.local) == 1 or self._on_device or elementwise.reason_against(self._optimizer):
            return False
        current = self._current
        if current >= 0 and self._banks is not None and self._banks.version != self._version:
            raise UserError(CHANGED)
        state = self._optimizer.state
        if current == target or any(state.get(self._parameters[i]) is not held for i, held in self._states[current].items()):
            self.release()
        return self._current >= 0 or self._lay_out()

    def complain(self, warn: Callable[[str], None]) -> None:
        """Say once that what was asked for is not done here."""
        if self.on and self._on_device and not self._said:
            self._said = True
            warn(ON_DEVICE)

    def _lay_out(self) -> bool:
        """Find a place for the state, which is this process's own. False where it cannot be shared."""
        assert self._banks is not None
        states = {i: found for i, p in enumerate(self._parameters) if (found := self._optimizer.state.get(p))}
        held = [self._parameters[i] for i in states]
        if not all(map(fits, states.values())) or not _are_plain(held):
            return False
        placed = self._banks.allocate_states(states)
        if placed is None:
            return False
        made_of = [(i, name, t.dtype, tuple(t.shape), t.stride()) for i, state in states.items() for name, t in state.items()]
        self._plan = zlib.crc32(repr(made_of).encode())
        self._views = placed
        self._states = [{i: dict(views) for i, views in bank.items()} for bank in placed]
        return True

    def step(self, group: Group, step: int) -> None:
        """Step this worker's parameters, in the memory that workers share. Nothing else has changed afterwards."""
        assert self._banks is not None
        optimizer, target = self._optimizer, step % STATE_BANKS
        owners, own = _owners(self._sizes, len(group.local)), group.local.index(group.worker_id)
        mine: list[tuple[int, torch.Tensor, torch.Tensor]] = []
        with torch.no_grad():
            for i, p in enumerate(self._parameters):
                if owners[i] != own or i not in self._states[target]:
                    if p.grad is not None:
                        self._unused.append((p, p.grad))
                        p.grad = None
                    continue
                before, views = optimizer.state[p], self._views[target][i]
                for name, view in views.items():
                    view.copy_(before[name])
                mine.append((i, p, p.data))
                self._before.append((p, before))
                optimizer.state[p] = stepped = self._states[target][i]
                stepped.update(views)
                self._banks.row[i].copy_(p)
                p.data = self._banks.row[i]
            try:
                optimizer.step()
            finally:
                for _, p, data in mine:
                    p.data = data
            for i, _, _ in mine:
                self._settle(self._states[target][i], self._views[target][i])

    def _settle(self, state: State, views: State) -> None:
        """What the step has put into the state in the place of what was there goes to where that was."""
        assert state.keys() == views.keys(), "the optimizer's step has made another kind of state"
        for name, view in views.items():
            if state[name] is not view:
                view.copy_(state[name])
                state[name] = view

    def load_step(self, step: int) -> None:
        """All parameters and the state as they are after the step. Behind the third barrier."""
        assert self._banks is not None
        target, was_own = step % STATE_BANKS, self._current < 0
        self._current, self._before, self._unused = target, [], []
        with torch.no_grad():
            for i, held in self._states[target].items():
                p = self._parameters[i]
                held.update(self._views[target][i])
                p.copy_(self._banks.row[i])
                self._optimizer.state[p] = held
        self._version = self._banks.version
        if was_own:
            return_freed_memory()  # that of the whole state

    def release(self) -> None:
        """The state is this process's own from now on: others are to write to it, or to read it while steps are done that it has no part
        in. A share of a step that was not loaded was not done, and all gradients are where they were before it."""
        for p, state in self._before:
            self._optimizer.state[p] = state
        for p, grad in self._unused:
            p.grad = grad
        self._before, self._unused = [], []
        for i, held in self._states[self._current].items() if self._current >= 0 else ():
            p = self._parameters[i]
            if self._optimizer.state.get(p) is held:
                self._optimizer.state[p] = {name: t.clone() for name, t in held.items()}
        self._current = -1


def _are_plain(parameters: Sequence[torch.Tensor]) -> bool:
    """Each a dense tensor on the processor, in memory of its own: so it can be stepped somewhere else."""
    where = {p.untyped_storage().data_ptr() for p in parameters}
    return len(where) == len(parameters) and all(
        type(p) in (torch.nn.Parameter, torch.Tensor) and p.device.type == "cpu" and p.layout == torch.strided and is_dense(p)
        for p in parameters
    )
