"""Which optimizers' steps can be shared out, who steps what, and what a step that is shared out changes and when. In one process."""

from __future__ import annotations

import os

import pytest
import torch

from training_runtime.elastic.comm import all_reduce, banks
from training_runtime.elastic.comm.group import Group
from training_runtime.elastic.comm.segment import GenerationRecord, Layout, Segment
from training_runtime.elastic.state import elementwise
from training_runtime.elastic.worker.sharding import ShardedOptimizer
from training_runtime.errors import UserError


def test_the_largest_parameters_go_to_who_has_least_to_do():
    assert elementwise.owners((10, 2_000_000, 1_000_000, 900_000, 5), 2) == (1, 0, 1, 1, 1)
    assert elementwise.owners((1, 1, 1), 1) == (0, 0, 0)
    assert set(elementwise.owners((7,) * 9, 3)) == {0, 1, 2}
    assert elementwise.owners((), 4) == ()


@pytest.mark.parametrize("kind", elementwise.KINDS)
def test_torchs_own_optimizers_can_be_shared_out_also_with_a_scheduler(kind):
    optimizer = kind([torch.zeros(3, requires_grad=True)], lr=0.1)
    assert elementwise.reason_against(optimizer) == ""
    torch.optim.lr_scheduler.StepLR(optimizer, 1)
    assert elementwise.reason_against(optimizer) == ""


def test_whatever_else_could_look_at_all_parameters_is_refused():
    def adam(kind=torch.optim.Adam, **given):
        return kind([torch.zeros(3, requires_grad=True)], lr=0.1, **given)

    class Own(torch.optim.Adam):
        pass

    patched, hooked, told = adam(), adam(), adam()
    patched.step = lambda: None
    hooked.register_step_pre_hook(lambda *_: None)
    told.register_step_post_hook(lambda *_: None)
    refused = [adam(Own), adam(torch.optim.Adafactor), patched, hooked, told, adam(foreach=True), adam(fused=True)]
    assert all(elementwise.reason_against(each) for each in refused)


@pytest.mark.parametrize("kind", elementwise.KINDS)
def test_any_share_of_the_parameters_is_stepped_to_the_same_bits(kind):
    """What the whole rests on: torch's loops take each parameter by itself."""

    def made(shares: int):
        generator = torch.Generator().manual_seed(1)
        parameters = [torch.randn(shape, generator=generator).requires_grad_() for shape in ((17, 9), (5,), (), (64, 33), (3, 2, 7))]
        optimizer = kind(parameters, lr=0.01)
        for _ in range(4):
            grads = [torch.randn(p.shape, generator=generator) for p in parameters]
            for rank in range(shares):
                owners = elementwise.owners([p.numel() for p in parameters], shares)
                for p, grad, owner in zip(parameters, grads, owners, strict=True):
                    p.grad = grad if owner == rank else None
                optimizer.step()
        states = [optimizer.state[p] for p in parameters]
        return parameters, [t for state in states for t in state.values() if isinstance(t, torch.Tensor)]

    (parameters, states), (others, their_states) = made(1), made(3)
    assert all(torch.equal(a, b) for a, b in zip(parameters, others, strict=True))
    assert len(states) == len(their_states)
    assert all(torch.equal(a, b) for a, b in zip(states, their_states, strict=True))


class Member:
    """A worker's own model and optimizer, in a process with the others: `size` of them, as many on each of `machines`. `fd`: the shared
    memory of its own one."""

    def __init__(self, fd: int, rank: int, size: int, machines: int = 1) -> None:
        generator = torch.Generator().manual_seed(2)
        self.parameters = [torch.randn(shape, generator=generator).requires_grad_() for shape in ((70, 30), (9,), (31, 5))]
        self.optimizer = torch.optim.Adam(self.parameters, lr=0.01)
        flats = all_reduce.flat_buffers(self.parameters)
        layout = Layout(size, 1, 1, len(self.parameters), 0, 0, flats, machines, banks.bank_bytes(self.parameters))
        segment = Segment(fd, layout, create=rank == layout.worker_ids_of(layout.machine(rank)).start)
        self.group = Group(segment, GenerationRecord(1, tuple(range(size)), ()), rank, -1)
        self.sharding = ShardedOptimizer(segment, self.optimizer, self.parameters, on=True)

    def set_grads(self, step: int) -> None:
        generator = torch.Generator().manual_seed(step)
        for p in self.parameters:
            p.grad = torch.randn(p.shape, generator=generator)

    def step_alone(self, step: int) -> None:
        self.sharding.release()
        self.set_grads(step)
        self.optimizer.step()

    def offer(self, step: int) -> None:
        self.set_grads(step)
        self.sharding.offer(self.group, step)

    def step(self, step: int) -> None:
        assert self.applies(step)
        self.sharding.step(self.group, step)

    def applies(self, step: int, used: tuple[int, ...] = (1, 1, 1)) -> bool:
        return self.sharding.applies(self.group, step, used)

    def tensors(self) -> list[torch.Tensor]:
        return [*self.parameters, *(t for p in self.parameters for t in self.optimizer.state[p].values())]

    def copies(self) -> list[torch.Tensor]:
        return [t.detach().clone() for t in self.tensors()]

    def where(self) -> list[int]:
        return [t.data_ptr() for t in self.tensors()]


@pytest.fixture
def members():
    """Two that have done their first step, which makes the state; the third is not of them, and does all steps alone."""
    fds = [os.memfd_create("segment"), os.memfd_create("segment of its own")]
    made = [Member(fds[0], 0, 2), Member(fds[0], 1, 2), Member(fds[1], 0, 1)]
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


def test_two_share_steps_out_and_hold_the_state_in_common(members):
    *two, alone = members
    own = [each.where()[:3] for each in two]
    for step in (2, 3, 4):
        alone.step_alone(step)
        share(two, step)
        for each in two:
            each.sharding.load_step(step)
            assert equal(each.copies(), alone.copies())
    assert [each.where()[:3] for each in two] == own, "the parameters have gone elsewhere"
    two[0].optimizer.state[two[0].parameters[0]]["exp_avg"][0, 0] = 7.0
    assert two[1].optimizer.state[two[1].parameters[0]]["exp_avg"][0, 0] == 7.0
    with pytest.raises(UserError, match="the state of the optimizer was changed while a step was computed"):
        two[0].offer(5)


@pytest.mark.parametrize("stepped", [(0,), (1,), (0, 1)])
def test_a_step_that_not_all_have_done_has_changed_nothing(members, stepped):
    *two, alone = members
    for step in (2, 3):
        before = [each.copies() for each in two]
        for each in two:
            each.offer(step)
        for rank in stepped:
            two[rank].step(step)
        assert all(equal([p.detach() for p in each.parameters], held[:3]) for each, held in zip(two, before, strict=True))
        for each, held in zip(two, before, strict=True):
            each.sharding.release()  # the next generation begins
            assert equal(each.copies(), held)
        alone.step_alone(step)
        share(two, step)
        for each in two:
            each.sharding.load_step(step)
            assert equal(each.copies(), alone.copies())


@pytest.mark.parametrize("stepped", [(0,), (1,), (0, 1)])
def test_who_has_lost_the_other_over_a_step_does_it_alone_from_its_own_gradients(members, stepped):
    *two, alone = members
    for step in (2, 3):
        alone.step_alone(step)
        for each in two:
            each.offer(step)
        for rank in stepped:
            two[rank].step(step)
        for each in two:
            each.sharding.release()
            each.optimizer.step()
            assert equal(each.copies(), alone.copies())


def test_each_of_two_machines_shares_a_step_out_whatever_the_other_does(members):
    fds = [os.memfd_create("segment of one machine"), os.memfd_create("segment of another")]
    here, there = [[Member(fds[i], 2 * i + k, 4, machines=2) for k in range(2)] for i in range(2)]
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


def test_who_takes_the_state_out_can_write_to_it_alone(members):
    two = members[:2]
    share(two, 2)
    for each in two:
        each.sharding.load_step(2)
    kept = two[1].copies()
    two[0].sharding.release()
    for t in two[0].tensors()[3:]:
        t.zero_()
    assert equal(two[1].copies(), kept)


def test_all_share_a_step_out_or_nobody_does(members):
    one, other, _ = members
    one.offer(2)
    assert not one.applies(2), "the other has not said so"
    other.optimizer.register_step_pre_hook(lambda *_: None)
    other.offer(2)
    assert not one.applies(2)
    assert not other.applies(2)


def test_a_parameter_without_a_state_or_one_that_is_a_part_of_another_is_not_shared_out(members):
    one, other, _ = members
    for each in (one, other):
        del each.optimizer.state[each.parameters[1]]
        each.offer(2)
    assert not one.applies(2)
    assert one.applies(2, (1, 0, 1))
    for each in (one, other):
        each.parameters[2].data = each.parameters[0].data.view(-1)[:155].view(31, 5)
        each.offer(4)
    assert not one.applies(4)
