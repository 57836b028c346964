"""The optimizer's step shared out over the workers: the bits of a run that does not, whatever happens in the midst of it."""

from __future__ import annotations

import json
import os

import pytest
import torch

from tests.engine.faults import FAULTS, SHARDED_PHASES
from tests.engine.harness import until_gone
from tests.engine.scripts import SMALL
from training_runtime.elastic.comm import all_reduce, banks
from training_runtime.elastic.comm.group import Group
from training_runtime.elastic.comm.segment import GenerationRecord, Layout, Segment
from training_runtime.elastic.state import elementwise
from training_runtime.elastic.worker.sharding import ShardedOptimizer

SHORT = ("--samples", "115")
LONG = ("--epochs", "24", "--samples", "115")
# Leaves a byte for each step that a worker has taken from what all of them share.
COUNTED = """
import os
from training_runtime.elastic.worker import sharding as _counted
def _count(inner):
    def take(self, step):
        with open(os.environ["RESULT_DIR"] + "/shared-out", "ab") as file:
            file.write(b".")
        return inner(self, step)
    return take
_counted.ShardedOptimizer.take = _count(_counted.ShardedOptimizer.take)
"""


def shared_out(run) -> int:
    """How many steps workers have taken from each other."""
    path = run.result_dir / "shared-out"
    return path.stat().st_size if path.exists() else 0


def same(run, one) -> None:
    assert run.weights() == one.weights()
    assert run.train_lines() == one.train_lines()
    assert run.test_lines() == one.test_lines()


# -- decisions


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


# -- the step, in this process


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
    """A worker's own model and optimizer, in a process with the others: `size` of them on one shared memory."""

    def __init__(self, fd: int, rank: int, size: int) -> None:
        generator = torch.Generator().manual_seed(2)
        self.parameters = [torch.randn(shape, generator=generator).requires_grad_() for shape in ((70, 30), (9,), (31, 5))]
        self.optimizer = torch.optim.Adam(self.parameters, lr=0.01)
        flats = all_reduce.flat_buffers(self.parameters)
        layout = Layout(size, 1, 1, len(self.parameters), 0, 0, flats, bank_bytes=banks.bank_bytes(self.parameters))
        segment = Segment(fd, layout, create=rank == 0)
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

    def begin(self, step: int) -> None:
        self.set_grads(step)
        assert self.sharding.applies(self.group, step, [1, 1, 1])
        self.sharding.step(self.group, step)

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


def test_two_share_steps_out_and_hold_the_state_in_common(members):
    *two, alone = members
    own = [each.where()[:3] for each in two]
    for step in (2, 3, 4):
        alone.step_alone(step)
        for each in two:
            each.begin(step)
        for each in two:
            each.sharding.take(step)
            assert equal(each.copies(), alone.copies())
    assert [each.where()[:3] for each in two] == own, "the parameters have gone elsewhere"
    two[0].optimizer.state[two[0].parameters[0]]["exp_avg"][0, 0] = 7.0
    assert two[1].optimizer.state[two[1].parameters[0]]["exp_avg"][0, 0] == 7.0


def test_a_step_that_not_all_have_done_has_changed_nothing(members):
    *two, alone = members
    for step in (2, 3):
        before = [each.copies() for each in two]
        for each in two if step == 3 else two[:1]:
            each.begin(step)
        assert equal([p.detach() for p in two[0].parameters], before[0][:3])
        for each, held in zip(two, before, strict=True):
            each.sharding.release()  # the next generation begins
            assert equal(each.copies(), held)
        alone.step_alone(step)
        for each in two:
            each.begin(step)
        for each in two:
            each.sharding.take(step)
            assert equal(each.copies(), alone.copies())


def test_who_takes_the_state_out_can_write_to_it_alone(members):
    two = members[:2]
    for each in two:
        each.begin(2)
    for each in two:
        each.sharding.take(2)
    kept = two[1].copies()
    two[0].sharding.release()
    for t in two[0].tensors()[3:]:
        t.zero_()
    assert equal(two[1].copies(), kept)


def test_a_parameter_without_a_state_or_one_that_is_a_part_of_another_is_not_shared_out(members):
    member, other = members[:2]
    member.set_grads(2)
    del member.optimizer.state[member.parameters[1]]
    assert not member.sharding.applies(member.group, 2, [1, 1, 1])
    assert member.sharding.applies(member.group, 2, [1, 0, 1])
    other.set_grads(2)
    other.parameters[1].data = other.parameters[0].data.view(-1)[:9]
    assert not other.sharding.applies(other.group, 2, [1, 1, 1])


# -- whole runs


@pytest.mark.parametrize("optimizer", ["Adam", "SGD", "Adadelta"])
def test_a_run_whose_step_is_shared_out_gives_the_same_bits(start, fixed, optimizer):
    one = fixed("--optimizer", optimizer, *SHORT)
    for workers in (2, 3):
        run = start(COUNTED + SMALL, "--optimizer", optimizer, *SHORT, "--sharded")
        run.members(*range(workers))
        assert run.wait() == 0, run.tail()
        same(run, one)
        assert shared_out(run) >= workers  # not the first steps, which one worker may do, or which make the state


def test_it_goes_4_2_3_1_4_and_is_suspended_in_between(start, fixed):
    one = fixed(*LONG)
    run = start(COUNTED + SMALL, *LONG, "--sharded")
    run.members(0, 1, 2, 3)
    for at, slots in ((20, (0, 2)), (60, (1, 2, 4)), (90, ()), (90, (3,)), (120, (0, 1, 2, 3))):
        run.until_step(at)
        run.members(*slots)
        if not slots:
            run.until(lambda: run.events("suspended"))
    assert run.wait() == 0, run.tail()
    same(run, one)
    assert shared_out(run) > 100


@pytest.mark.parametrize("rank", [0, 2])
def test_deaths_at_every_phase_of_the_step_cost_the_step_alone(start, fixed, rank):
    one = fixed(*LONG)
    faults = [{"phase": phase, "step": 20 + 30 * i, "rank": rank} for i, phase in enumerate(SHARDED_PHASES)]
    run = start(FAULTS + COUNTED + SMALL, *LONG, "--sharded", env={"FAULTS": json.dumps(faults)})
    run.members(0, 1, 2)
    assert run.wait() == 0, run.tail()
    same(run, one)
    assert all((run.result_dir / f"fault-{i}").exists() for i in range(len(faults)))
    assert max(generation.redone for generation in run.events("generation")) == 1


def test_two_workers_die_over_one_step_then_all_of_them(start, fixed):
    one = fixed(*LONG)
    faults = [{"phase": "stepped", "step": 30, "rank": 0}, {"phase": "taking", "step": 30, "rank": 2}]
    faults += [{"phase": "stepping", "step": 80, "rank": rank} for rank in range(3)]
    run = start(FAULTS + SMALL, *LONG, "--sharded", env={"FAULTS": json.dumps(faults)})
    run.members(0, 1, 2)
    assert run.wait() == 0, run.tail()
    same(run, one)
    assert all((run.result_dir / f"fault-{i}").exists() for i in range(len(faults)))


def test_a_driver_that_dies_in_the_midst_of_it_goes_on_with_the_next_step(start, fixed):
    one = fixed(*LONG)
    faults = [{"phase": "driver before steps", "step": 40}]
    run = start(FAULTS + COUNTED + SMALL, *LONG, "--sharded", env={"FAULTS": json.dumps(faults)})
    run.members(0, 1, 2)
    assert run.wait() != 0
    until_gone(run.pid)
    before = shared_out(run)
    run.again()
    run.members(0, 1)
    assert run.wait() == 0, run.tail()
    same(run, one)
    assert 0 < before < shared_out(run)


# What callbacks do with the state (look at it, change it, copy it), a parameter that is trained from an epoch on only, one that no engine
# uses, a hook that comes late.
CALLBACKS = """
import copy
import torch
from torch import nn
from fabric_model import FabricModel
from callbacks import Callback
torch.manual_seed(3)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.late, self.never, self.head = nn.Linear(8, 16), nn.Linear(16, 16), nn.Linear(2, 2), nn.Linear(16, 3)
        self.wide = nn.Linear(16, 16).double()
        self.late.requires_grad_(False)
    def forward(self, x):
        return self.head(torch.relu(self.late(self.wide(torch.relu(self.body(x)).double()).float())))
def data():
    x = torch.randn(130, 8, generator=torch.Generator().manual_seed(1))
    return torch.utils.data.TensorDataset(x, x[:, 0].gt(0).long() + x[:, 1].gt(0).long()), None
def clip(*_):
    nn.utils.clip_grad_norm_(model.parameters(), 0.1)
class Changes(Callback):
    def __init__(self):
        self.best, self.scheduler = None, torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9)
    def on_epoch_begin(self, epoch):
        if epoch == 2:
            model.late.requires_grad_(True)
        if epoch == 7:
            optimizer.register_step_pre_hook(clip)
    def on_epoch_end(self, epoch):
        self.scheduler.step()
        for p in optimizer.state:
            optimizer.state[p]["exp_avg"].mul_(0.5)
        with torch.no_grad():
            model.head.weight.mul_(0.99)
        if epoch == 3:
            self.best = copy.deepcopy(optimizer.state_dict())
        if epoch == 5:
            optimizer.load_state_dict(self.best)
model = Net()
optimizer = torch.optim.AdamW([{"params": model.body.parameters()}, {"params": [
    p for name, p in model.named_parameters() if not name.startswith("body")], "lr": 0.003}], 1e-2)
FabricModel(model, data, nn.functional.cross_entropy, optimizer, user_callback=[Changes()]).train(9, 4, 4, shard_optimizer=True)
"""


def test_callbacks_have_the_whole_state_and_may_change_it(start, fixed):
    one = fixed(script=CALLBACKS)
    run = start(COUNTED + CALLBACKS)
    run.members(0, 1)
    for at, slots in ((20, (0, 1, 2)), (40, (2, 3))):
        run.until_step(at)
        run.members(*slots)
    assert run.wait() == 0, run.tail()
    same(run, one)
    assert shared_out(run) > 50


def test_a_model_that_changes_the_state_while_it_computes_is_refused(start):
    touched = SMALL.replace(
        "FabricModel(model",
        """def touch(*_):
    for state in optimizer.state.values():
        state["exp_avg"].zero_()
model.register_forward_hook(touch)
FabricModel(model""",
    )
    run = start(touched, *SHORT, "--sharded")
    run.members(0, 1)
    assert run.wait() != 0
    assert "the state of the optimizer was changed while a step was computed" in run.tail()


@pytest.mark.parametrize(
    ("optimizer", "said"),
    [
        ("Nesterov", "this optimizer (SGD) has foreach=True. Leave shard_optimizer out"),
        ("Clipped", "this optimizer (AdamW) has hooks around its step, which look at all parameters"),
    ],
)
def test_other_optimizers_are_refused_with_a_sentence(start, optimizer, said):
    run = start(SMALL, "--optimizer", optimizer, "--sharded")
    run.members(0)
    assert run.wait() != 0
    assert said in run.events("error")[-1].message
