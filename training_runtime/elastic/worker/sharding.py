"""The optimizer's step, shared out over the workers of one machine: each steps its parameters, once, for all. The state is in memory that
they share, once for all of them (ZeRO-1), and so are the parameters where that is asked for (as with ZeRO-3). Of several machines each does
the whole step for itself: after the sum all have the same gradients.

A step has a third barrier, of the workers of one machine. Before it each copies the state of its parameters from where it is to the other
bank (see `comm.banks`) and steps it there, its parameters in a row beside; behind it everybody takes the parameters from there, and that
bank is the state. So until the barrier a step has changed nothing, and who waits there for somebody who has died does the whole step alone,
from the state and the gradients that it still has: once the gradients are summed every worker that lives comes to the state after the step,
as everywhere, and the state never depends on one process. Neither bank is written to before all have met again: so where somebody leaves
its machine after a step, that one is not shared out.

To each worker the state looks as if it were its own, and so do parameters that they share. What it writes there is (see
`comm.private_view`), and the next step begins from that: callbacks may change it, and whoever takes a state over does so as without this.
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

ON_DEVICE = (
    "train: shard_optimizer and shard_parameters are for processor slots only so far: here each worker keeps all parameters and the whole "
    "state of the optimizer"
)
PLAN_BITS = 32
_ALONE = 2  # uses of a storage that one tensor has, one of them the question
_owners = lru_cache(maxsize=64)(elementwise.owners)


class ShardedOptimizer:
    """The step of `optimizer` over `parameters` (its own, in its order). `on`: it is to be shared out; else nothing is ever done here."""

    def __init__(self, segment: Segment, optimizer: torch.optim.Optimizer, parameters: Sequence[torch.Tensor], *, on: bool) -> None:
        self.on = on
        self._optimizer, self._parameters = optimizer, tuple(parameters)
        self._on_device = any(p.device.type != "cpu" for p in self._parameters)
        self._sizes = tuple(p.numel() for p in self._parameters)
        self._banks = Banks(segment, self._parameters) if on and not self._on_device else None
        self._states: dict[int, State] = {}  # of the parameters that have a place in the banks, by their number; empty until one is read
        self._choices: tuple[Any, ...] = ()  # of the optimizer's groups, for which these places were found
        self._plan = 0  # a sum over what they are for, by which members see that they mean the same ones
        self._used: Sequence[int] = ()  # in the step under way, for each parameter
        self._plain: list[int] = []  # where parameters were when each had memory of its own
        self._version = -1  # of the state as it was in the bank that is shown; -1: it may be another one
        self._said = False

    def offer(self, group: Group, step: int) -> None:
        """Tell the others of this machine whether this worker could share `step` out. Before the first barrier."""
        if self._banks is not None:
            is_ready = len(group.local) > 1 and not elementwise.reason_against(self._optimizer) and self._find_places(self._banks)
            if is_ready and self._banks.shows == step % STATE_BANKS:
                self._detach(self._banks)
            group.segment.set(group.worker_id, SHARES + step % 2, step << PLAN_BITS | self._plan if is_ready else 0)

    def applies(self, group: Group, step: int, used: Sequence[int]) -> bool:
        """Whether the members on this machine share `step` out: the same answer on each, whatever it thinks itself. `used`: for each
        parameter, whether any engine has used it. Between the second barrier and the third, or the next step's first one."""
        if self._banks is None:
            return False
        words = {group.segment.get(worker_id, SHARES + step % 2) for worker_id in group.local}
        if len(words) > 1 or words.pop() >> PLAN_BITS != step:
            return False
        self._used = used
        return all(i in self._states for i, some in enumerate(used) if some)

    def complain(self, warn: Callable[[str], None]) -> None:
        """Say once that what was asked for is not done here."""
        if self.on and self._on_device and not self._said:
            self._said = True
            warn(ON_DEVICE)

    def _find_places(self, banks: Banks) -> bool:
        """Have a place in the banks for all that a step may change: what has a state, and what may get one. False where there is none."""
        optimizer = self._optimizer
        states = {i: s for i, p in enumerate(self._parameters) if (s := optimizer.state.get(p) or {}) or p.requires_grad}
        if not self._are_plain([(self._parameters[i], banks.rows[0][i]) for i in states]):
            return False
        choices = tuple(map(elementwise.choices, optimizer.param_groups))
        is_as_before = choices == self._choices and states.keys() == self._states.keys()
        if is_as_before and all(not state or _is_like(state, banks.own_states[i]) for i, state in states.items()):
            return True
        self._choices, self._states = (), {}
        groups = {id(p): group for group in optimizer.param_groups for p in group["params"]}
        for i, state in states.items():
            if not state:
                p = self._parameters[i]
                states[i] = elementwise.first_state(optimizer, groups[id(p)], p)
        if not all(map(fits, states.values())) or not banks.allocate(states):
            return False
        made_of = [(i, name, t.dtype, tuple(t.shape), t.stride()) for i, state in states.items() for name, t in state.items()]
        self._plan = zlib.crc32(repr((list(states), made_of)).encode())
        self._choices, self._states = choices, {i: {} for i in states}
        return True

    def _are_plain(self, pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> bool:
        """Whether each parameter is a dense tensor on the processor, in memory of its own, and like the one that is made for it: so it can
        be stepped there."""
        where = [p.data_ptr() for p, _ in pairs]
        if not all(p.shape == there.shape and p.stride() == there.stride() for p, there in pairs):
            return False
        if where == self._plain:
            return True
        storages = [p.untyped_storage().data_ptr() for p, _ in pairs if p.numel()]
        is_plain = len(set(storages)) == len(storages) and all(
            type(p) in (torch.nn.Parameter, torch.Tensor) and p.device.type == "cpu" and p.layout == torch.strided and is_dense(p)
            for p, _ in pairs
        )
        self._plain = where if is_plain else []
        return is_plain

    def step(self, group: Group, step: int) -> None:
        """Step this worker's parameters, in the memory that workers share. Nothing else has changed afterwards."""
        assert self._banks is not None
        optimizer, number = self._optimizer, step % STATE_BANKS
        row, states = self._banks.rows[number], self._banks.states[number]
        owners, own = _owners(self._sizes, len(group.local)), group.local.index(group.worker_id)
        mine = [(i, p, p.data, optimizer.state.get(p)) for i, p in enumerate(self._parameters) if owners[i] == own and i in self._states]
        numbers = {i for i, *_ in mine}
        others = [(p, p.grad) for i, p in enumerate(self._parameters) if i not in numbers]
        is_as_shown = self._version == self._version_of(self._banks)
        try:
            with torch.no_grad():
                for i, p, _, state in mine:
                    optimizer.state[p] = self._copied(i, state, states[i], is_as_shown=is_as_shown)
                    row[i].copy_(p)
                    p.data = row[i]
                for p, _ in others:
                    p.grad = None
                optimizer.step()
                for i, p, _, _ in mine:
                    _settle(optimizer.state[p], states[i])
        finally:
            for _, p, data, state in mine:
                p.data = data
                _put(optimizer, p, state)
            for p, grad in others:
                p.grad = grad

    def _copied(self, i: int, state: State | None, there: State, *, is_as_shown: bool) -> State:
        """`state` of parameter `i`, in the place of what is `there`. Of what this process has not written to since it was shown, the bank
        itself is read: so none of it comes into the page tables."""
        assert self._banks is not None
        if not state:
            return {}
        own = self._banks.own_states[i]
        is_in_bank = is_as_shown and all(t is own[name] for name, t in state.items())
        source = self._banks.states[self._banks.shows][i] if is_in_bank else state
        for name, view in there.items():
            view.copy_(source[name])
        return dict(there)

    def _version_of(self, banks: Banks) -> int:
        """Grows with every change in place that is made to the state through tensors that somebody sees."""
        return sum(t._version for own in banks.own_states.values() for t in own.values())

    def load_step(self, step: int) -> None:
        """All parameters and the state as they are after the step. Behind the third barrier."""
        assert self._banks is not None
        banks, state, number, frees = self._banks, self._optimizer.state, step % STATE_BANKS, False
        banks.show(number)
        with torch.no_grad():
            for i, held in self._states.items():
                p, own = self._parameters[i], banks.own_states[i]
                frees |= self._take_parameter(i, banks.rows[number][i])
                if own and (state.get(p) or self._used[i]):
                    frees |= state.get(p) is not held
                    held.update(own)
                    state[p] = held
        self._version = self._version_of(banks)
        if frees:
            return_freed_memory()

    def _take_parameter(self, i: int, stepped: torch.Tensor) -> bool:
        """What it is after the step. Whether memory was freed over that: it goes to where workers share it, unless somebody else looks at
        where it is, who would not notice."""
        assert self._banks is not None
        p = self._parameters[i]
        if self._banks.own_parameters:
            there = self._banks.own_parameters[i]
            if _is_there(p, there):
                return False
            if _kind(p) == _kind(there) and _is_nobody_elses(p):
                p.data = there
                return True
        p.copy_(stepped)
        return False

    def open(self) -> None:
        """Code of the script is going to run that may do with the state whatever it likes, also behind torch's back."""
        self._version = -1

    def enter(self, group: Group) -> None:
        """A generation begins. Who is alone on its machine shares nothing out, and the banks may be given back."""
        self._version = -1
        if self._banks is not None and len(group.local) <= 1:
            self._detach(self._banks)

    def _detach(self, banks: Banks) -> None:
        banks.detach()
        self._version = -1


def _is_like(state: State, views: State) -> bool:
    """Whether `state` can be where these are."""
    if state.keys() != views.keys():
        return False
    return all(t is views[name] or (fits({name: t}) and _kind(t) == _kind(views[name])) for name, t in state.items())


def _kind(t: torch.Tensor) -> tuple[Any, ...]:
    return t.dtype, t.shape, t.stride()


def _settle(stepped: State, views: State) -> None:
    """What the step has put into the state in the place of what was there, or anew, goes to where it belongs."""
    assert not stepped or stepped.keys() == views.keys(), "the optimizer's step has made another kind of state"
    for name, t in stepped.items():
        if t is not views[name]:
            views[name].copy_(t)


def _put(optimizer: torch.optim.Optimizer, p: torch.Tensor, state: State | None) -> None:
    """Let this be the state of `p`, if any."""
    if state is None:
        optimizer.state.pop(p, None)
    else:
        optimizer.state[p] = state


def _is_there(p: torch.Tensor, there: torch.Tensor) -> bool:
    return p.data_ptr() == there.data_ptr() and _kind(p) == _kind(there)


def _is_nobody_elses(p: torch.Tensor) -> bool:
    """Whether no other tensor, and so no array of numpy either, has the memory of `p`."""
    count = getattr(torch._C, "_storage_Use_Count", None)
    return count is not None and count(p.untyped_storage()._cdata) <= _ALONE
