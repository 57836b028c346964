"""What a step that is shared out changes, where and when. In one process."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from training_runtime.elastic.comm import all_reduce, banks, give_back
from training_runtime.elastic.comm.group import Group
from training_runtime.elastic.comm.segment import GenerationRecord, Layout, Segment
from training_runtime.elastic.state import elementwise
from training_runtime.elastic.worker.sharding import ShardedOptimizer


class Member:
    """A worker's own model and optimizer, in a process with the others: `size` of them, as many on each of `machines`. `fd`: the shared
    memory of its own one."""

    def __init__(
        self, fd: int, rank: int, size: int, machines: int = 1, *, kind: Any = torch.optim.Adam, large: int = 70, rows: int = 2
    ) -> None:
        generator = torch.Generator().manual_seed(2)
        self.parameters = [torch.randn(shape, generator=generator).requires_grad_() for shape in ((large, 30), (9,), (31, large))]
        self.optimizer = kind(self.parameters, lr=0.01)
        flats = all_reduce.flat_buffers(self.parameters)
        layout = Layout(size, 1, 1, len(self.parameters), 0, 0, flats, machines, banks.bank_bytes(self.parameters), rows)
        segment = Segment(fd, layout, create=rank == layout.worker_ids_of(layout.machine(rank)).start)
        self.group = Group(segment, GenerationRecord(1, tuple(range(size)), ()), rank, -1)
        self.sharding = ShardedOptimizer(segment, self.optimizer, self.parameters, on=True)

    def set_grads(self, step: int) -> None:
        generator = torch.Generator().manual_seed(step)
        for p in self.parameters:
            p.grad = torch.randn(p.shape, generator=generator) if p.requires_grad else None

    def step_alone(self, step: int) -> None:
        self.set_grads(step)
        self.optimizer.step()

    def offer(self, step: int) -> None:
        self.set_grads(step)
        self.sharding.offer(self.group, step)

    def step(self, step: int) -> None:
        assert self.applies(step, tuple(int(p.grad is not None) for p in self.parameters))
        self.sharding.step(self.group, step)

    def applies(self, step: int, used: tuple[int, ...] = (1, 1, 1)) -> bool:
        return self.sharding.applies(self.group, step, used)

    def tensors(self) -> list[torch.Tensor]:
        return [*self.parameters, *(t for p in self.parameters for t in self.optimizer.state[p].values())]

    def copies(self) -> list[torch.Tensor]:
        return [t.detach().clone() for t in self.tensors()]

    def where(self) -> list[int]:
        return [t.data_ptr() for t in self.tensors()]


@pytest.fixture(params=[1, 2], ids=["parameters of their own", "parameters in common"])
def members(request):
    """Two that have done their first step, which makes the state; the third is not of them, and does all steps alone."""
    fds = [os.memfd_create("segment"), os.memfd_create("segment of its own")]
    made = [Member(fds[i // 2], i % 2, 2 - i // 2, rows=request.param) for i in range(3)]
    for each in made:
        each.step_alone(1)
    yield made
    for fd in fds:
        os.close(fd)


def equal(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def share(two: list[Member], step: int) -> None:
    """Up to the third barrier."""
    for each in two:
        each.offer(step)
    for each in two:
        each.step(step)


def loaded(two: list[Member], step: int) -> None:
    share(two, step)
    for each in two:
        each.sharding.load_step(step)


def test_two_share_steps_out_and_what_they_hold_stays_where_it_is(members):
    *two, alone = members
    where = []
    for step in (2, 3, 4, 5):
        alone.step_alone(step)
        loaded(two, step)
        assert all(equal(each.copies(), alone.copies()) for each in two)
        where.append([each.where() for each in two])
    assert where[0] == where[1] == where[2] == where[3]
    for each in two:  # so torch.save() of one writes one
        assert all(t.untyped_storage().nbytes() == t.numel() * t.element_size() for t in each.tensors())


def pages_of(tensors: list[torch.Tensor], field: str) -> int:
    """Kilobytes of the memory of these that /proc says so of."""
    found, counts = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if (head := line.split()[0]) and "-" in head and not head.endswith(":"):
            start, stop = (int(part, 16) for part in head.split("-"))
            counts = any(start <= t.data_ptr() < stop for t in tensors)
        elif counts and head == f"{field}:":
            found += int(line.split()[1])
    return found


@pytest.mark.parametrize("kind", elementwise.KINDS)
def test_workers_hold_parameters_and_state_once_for_all_of_them_from_the_first_step_on(kind):
    """So each optimizer's first step is shared out, of whose kind of state nobody has seen any yet."""
    fds = [os.memfd_create("segment"), os.memfd_create("segment of its own")]
    *two, alone = [Member(fds[i // 2], i % 2, 2 - i // 2, kind=kind, large=3000) for i in range(3)]
    for step in (1, 2, 3):
        alone.step_alone(step)
        loaded(two, step)
        assert all(equal(each.copies(), alone.copies()) for each in two)
        assert all(list(each.optimizer.state_dict()["state"]) == list(alone.optimizer.state_dict()["state"]) for each in two)
    assert pages_of(two[0].tensors(), "Anonymous") == pages_of(two[1].tensors(), "Anonymous") == 0
    assert pages_of(alone.tensors(), "Anonymous") > 1000
    for fd in fds:
        os.close(fd)


def test_what_one_of_them_writes_is_its_own_and_what_the_next_step_begins_from(members):
    """A callback does so on all workers alike."""
    *two, alone = members
    alone.step_alone(2)
    loaded(two, 2)
    kept = two[1].copies()
    for each in (two[0], alone):
        each.tensors()[3].add_(1)
        with torch.no_grad():
            each.parameters[0].mul_(2)
    assert equal(two[1].copies(), kept)
    two[1].tensors()[3].add_(1)
    with torch.no_grad():
        two[1].parameters[0].mul_(2)
    for step in (3, 4):
        alone.step_alone(step)
        loaded(two, step)
        assert all(equal(each.copies(), alone.copies()) for each in two)


def test_a_parameter_that_somebody_else_looks_at_stays_where_it_is(members):
    *two, alone = members
    seen = two[0].parameters[0].detach().numpy()
    for step in (2, 3):
        alone.step_alone(step)
        loaded(two, step)
        assert all(equal(each.copies(), alone.copies()) for each in two)
        assert (seen == alone.parameters[0].detach().numpy()).all()


@pytest.mark.parametrize("stepped", [(0,), (1,), (0, 1)])
def test_a_step_that_not_all_have_done_has_changed_nothing(members, stepped):
    *two, alone = members
    for step in (2, 3):
        before = [each.copies() for each in two]
        for each in two:
            each.offer(step)
        for rank in stepped:
            two[rank].step(step)
        for each, held in zip(two, before, strict=True):
            assert equal(each.copies(), held)
            assert all(p.grad is not None for p in each.parameters)
        alone.step_alone(step)
        loaded(two, step)
        assert all(equal(each.copies(), alone.copies()) for each in two)


@pytest.mark.parametrize("stepped", [(0,), (1,), (0, 1)])
def test_who_has_lost_the_other_over_a_step_does_it_alone_from_its_own_gradients(members, stepped):
    *two, alone = members
    for step in (2, 3, 4, 5):
        alone.step_alone(step)
        for each in two:
            each.offer(step)
        for rank in stepped if step % 2 else ():
            two[rank].step(step)
        for each in two:
            if step % 2:
                each.optimizer.step()
            else:
                each.step(step)
        for each in () if step % 2 else two:
            each.sharding.load_step(step)
        assert all(equal(each.copies(), alone.copies()) for each in two)


def test_who_is_behind_when_both_banks_are_written_to_keeps_what_it_has(members):
    """After a step that each did alone, the next one that is shared out goes to the bank that they still read."""
    *two, alone = members
    alone.step_alone(2)
    loaded(two, 2)
    for each in (alone, *two):
        each.set_grads(3)
        each.parameters[0].grad = each.parameters[2].grad = None  # stay what they were, in the memory that is shared
        each.optimizer.step()
    for each in two:
        each.offer(4)
    two[0].step(4)
    assert equal(two[1].copies(), alone.copies())
    two[1].step(4)
    alone.step_alone(4)
    for each in two:
        each.sharding.load_step(4)
        assert equal(each.copies(), alone.copies())


def test_each_of_two_machines_shares_a_step_out_whatever_the_other_does(members):
    fds = [os.memfd_create("segment of one machine"), os.memfd_create("segment of another")]
    here, there = [[Member(fds[i], 2 * i + k, 4, machines=2, rows=2 - i) for k in range(2)] for i in range(2)]
    alone = members[-1]
    for each in (*here, *there):
        each.step_alone(1)
    for step in (2, 3):
        alone.step_alone(step)
        share(here, step)
        for each in here:
            each.sharding.load_step(step)
        for each in there:
            each.step_alone(step)
        assert all(equal(each.copies(), alone.copies()) for each in (*here, *there))
    alone.step_alone(4)
    share(there, 4)
    for each in there:
        each.sharding.load_step(4)
        assert equal(each.copies(), alone.copies())
    there[0].optimizer.register_step_pre_hook(lambda *_: None)
    for each in (*here, *there):
        each.offer(5)
    assert [each.applies(5) for each in (*here, *there)] == [True, True, False, False]
    for fd in fds:
        os.close(fd)


def test_who_is_alone_on_its_machine_keeps_what_it_has(members):
    two, fd = members[:2], members[0].group.segment.fd
    loaded(two, 2)
    kept = two[1].copies()
    alone = Group(two[1].group.segment, GenerationRecord(2, (1,), ()), 1, -1)
    two[1].sharding.enter(alone)
    layout = alone.segment.layout
    give_back.punch(fd, layout.offsets["state"], layout.offsets["rows"] - layout.offsets["state"])
    assert equal(two[1].copies(), kept)
    assert not equal(two[0].copies(), kept), "the memory was not given back"


def test_all_share_a_step_out_or_nobody_does(members):
    one, other, _ = members
    one.offer(2)
    assert not one.applies(2), "the other has not said so"
    other.optimizer.register_step_pre_hook(lambda *_: None)
    other.offer(2)
    assert not one.applies(2)
    assert not other.applies(2)


def test_a_parameter_that_gets_a_state_later_or_loses_it_is_shared_out_too(members):
    *two, alone = members
    for each in (*two, alone):
        each.optimizer.state.pop(each.parameters[1])
    for step, frozen in ((2, False), (3, True), (4, False)):
        for each in (*two, alone):
            each.parameters[1].requires_grad_(not frozen)
        alone.step_alone(step)
        loaded(two, step)
        assert all(equal(each.copies(), alone.copies()) for each in two)


def test_a_choice_of_the_optimizers_that_brings_another_kind_of_state_may_be_made_at_any_time():
    fds = [os.memfd_create("segment"), os.memfd_create("segment of its own")]
    *two, alone = [Member(fds[i // 2], i % 2, 2 - i // 2, kind=torch.optim.SGD) for i in range(3)]
    for step, momentum in ((1, 0.0), (2, 0.9), (3, 0.9), (4, 0.0)):
        for each in (*two, alone):
            each.optimizer.param_groups[0]["momentum"] = momentum
        alone.step_alone(step)
        loaded(two, step)
        assert all(equal(each.copies(), alone.copies()) for each in two)
    for fd in fds:
        os.close(fd)


def test_a_parameter_that_is_a_part_of_another_or_that_none_can_foresee_is_not_shared_out(members):
    one, other, _ = members
    for each in (one, other):
        each.parameters[1].requires_grad_(False)
        del each.optimizer.state[each.parameters[1]]
        each.offer(2)
    assert not one.applies(2), "a gradient of one that is frozen"
    assert one.applies(2, (1, 0, 1))
    for each in (one, other):
        each.parameters[2].data = each.parameters[0].data
        each.parameters[2].grad = None
        each.offer(4)
    assert not one.applies(4, (1, 0, 1))


def test_a_parameter_that_lies_in_another_way_than_it_did_is_not_shared_out(members):
    *two, _ = members
    loaded(two, 2)
    two[0].parameters[0].data = two[0].parameters[0].data.view(30, 70).t()
    for each in two:
        each.offer(3)
    assert not two[0].applies(3)
