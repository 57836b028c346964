"""The optimizer's step shared out over the workers: the bits of a run that does not, whatever happens in the midst of it."""

from __future__ import annotations

import itertools
import json

import pytest

from tests.engine.faults import FAULTS, SHARDED_PHASES
from tests.engine.harness import until_gone
from tests.engine.scripts import LONG, SMALL

SHORT = ("--samples", "115")
# Leaves a line for each step that a worker has taken from what all of its machine share: which session it is in, and so
# on which machine, and the step.
COUNTED = """
from training_runtime.elastic.worker import sharding as _counted
import os
def _count(inner):
    def load_step(self, step):
        with open(os.environ["RESULT_DIR"] + "/shared-out", "a") as file:
            file.write(f"{os.getsid(0)} {step}\\n")
        return inner(self, step)
    return load_step
_counted.ShardedOptimizer.load_step = _count(_counted.ShardedOptimizer.load_step)
"""
# Memory that nobody needs is given back at once.
SOON = "from training_runtime.elastic.comm import give_back as _give_back; _give_back.ROWS_REST_S = 0.0\n"


def shared_out(run, machine=None) -> int:
    """How many steps workers have taken from each other, on one machine of the run or on all."""
    found = steps_shared_out(run)
    return len(found) if machine is None else sum(session == machine.pid for session, _ in found)


def steps_shared_out(run) -> list[tuple[int, int]]:
    """For each worker that took one, the session of its machine and the step."""
    path = run.result_dir / "shared-out"
    lines = path.read_text().splitlines() if path.exists() else []
    return [(int(session), int(step)) for session, step in map(str.split, lines)]


def departures(run) -> list[int]:
    """The last steps that members took part in whom nobody has waited for since."""
    pairs = itertools.pairwise(run.events("generation"))
    return [after.step - 1 for before, after in pairs if {m.pid for m in after.members} < {m.pid for m in before.members}]


def same(run, one) -> None:
    assert run.weights() == one.weights()
    assert run.train_lines() == one.train_lines()
    assert run.test_lines() == one.test_lines()


@pytest.mark.parametrize(("optimizer", "what"), [("Adam", "optimizer"), ("SGD", "parameters"), ("Adadelta", "parameters")])
def test_a_run_whose_step_is_shared_out_gives_the_same_bits(start, fixed, optimizer, what):
    one = fixed("--optimizer", optimizer, *SHORT)
    for workers in (2, 3):
        run = start(COUNTED + SMALL, "--optimizer", optimizer, *SHORT, "--sharded", what)
        run.members(*range(workers))
        assert run.wait() == 0, run.tail()
        same(run, one)
        assert shared_out(run) >= workers  # the first steps may be one worker's


def test_it_goes_4_2_3_1_4_and_is_suspended_in_between(start, fixed):
    one = fixed(*LONG)
    run = start(SOON + COUNTED + SMALL, *LONG, "--sharded", "parameters")
    run.members(0, 1, 2, 3)
    for at, slots in ((20, (0, 2)), (60, (1, 2, 4)), (90, ()), (90, (3,)), (120, (0, 1, 2, 3))):
        run.until_step(at)
        run.members(*slots)
        if not slots:
            run.until(lambda: run.events("suspended"))
    assert run.wait() == 0, run.tail()
    same(run, one)
    assert shared_out(run) > 100


def test_a_step_after_which_somebody_leaves_is_not_shared_out(start):
    """Else one whom nobody waits for would still write to the memory that those who come after it use. In the middle of an epoch: at its
    end all meet once more."""
    run = start(COUNTED + SMALL, "--epochs", "2", "--samples", "2000", "--sharded", "optimizer")
    run.members(0, 1, 2, 3)
    for at, slots in ((20, (0, 1, 3)), (60, (1, 3))):
        run.until_step(at)
        run.members(*slots)
        run.until_workers(len(slots))
    assert run.wait() == 0, run.tail()
    left, shared = departures(run), {step for _, step in steps_shared_out(run)}
    assert len(left) == 2
    assert not shared & set(left)
    assert shared >= {step + i for step in left for i in (-1, 1)}


@pytest.mark.parametrize(("rank", "what"), [(0, "optimizer"), (2, "parameters")])
def test_deaths_at_every_phase_of_the_step_cost_the_step_alone(start, fixed, rank, what):
    one = fixed(*LONG)
    faults = [{"phase": phase, "step": 20 + 30 * i, "rank": rank} for i, phase in enumerate(SHARDED_PHASES)]
    run = start(FAULTS + COUNTED + SMALL, *LONG, "--sharded", what, env={"FAULTS": json.dumps(faults)})
    run.members(0, 1, 2)
    assert run.wait() == 0, run.tail()
    same(run, one)
    assert all((run.result_dir / f"fault-{i}").exists() for i in range(len(faults)))
    assert max(generation.redone for generation in run.events("generation")) == 1


def test_two_workers_die_over_one_step_then_all_of_them(start, fixed):
    one = fixed(*LONG)
    faults = [{"phase": "stepped", "step": 30, "rank": 0}, {"phase": "taking", "step": 30, "rank": 2}]
    faults += [{"phase": "stepping", "step": 80, "rank": rank} for rank in range(3)]
    run = start(FAULTS + SMALL, *LONG, "--sharded", "parameters", env={"FAULTS": json.dumps(faults)})
    run.members(0, 1, 2)
    assert run.wait() == 0, run.tail()
    same(run, one)
    assert all((run.result_dir / f"fault-{i}").exists() for i in range(len(faults)))


def test_a_driver_that_dies_in_the_midst_of_it_goes_on_with_the_next_step(start, fixed):
    one = fixed(*LONG)
    faults = [{"phase": "driver before steps", "step": 40}]
    run = start(FAULTS + COUNTED + SMALL, *LONG, "--sharded", "optimizer", env={"FAULTS": json.dumps(faults)})
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
IN_COMMON = CALLBACKS.replace("shard_optimizer=True", "shard_parameters=True")


@pytest.mark.parametrize("script", [CALLBACKS, IN_COMMON], ids=["the state", "parameters and state"])
def test_callbacks_have_the_whole_state_and_may_change_it(start, fixed, script):
    one = fixed(script=script)
    run = start(COUNTED + script)
    run.members(0, 1)
    for at, slots in ((20, (0, 1, 2)), (40, (2, 3))):
        run.until_step(at)
        run.members(*slots)
    assert run.wait() == 0, run.tail()
    same(run, one)
    assert shared_out(run) > 50


@pytest.mark.parametrize("what", ["optimizer", "parameters"])
def test_a_model_may_change_the_state_while_it_computes(start, fixed, what):
    """On all workers alike, as without sharing: each has a part of every step."""
    touched = SMALL.replace(
        "FabricModel(model",
        """def touch(*_):
    for state in optimizer.state.values() if model.training else ():
        state["exp_avg"].mul_(0.0)
model.register_forward_hook(touch)
FabricModel(model""",
    )
    full = ("--samples", "128")
    run = start(COUNTED + touched, *full, "--sharded", what)
    run.members(0, 1)
    assert run.wait() == 0, run.tail()
    same(run, fixed(*full, script=touched))
    assert shared_out(run)
    assert run.weights() != fixed(*full).weights()


@pytest.mark.parametrize(
    ("optimizer", "what", "said"),
    [
        ("Nesterov", "optimizer", "this optimizer (SGD) has foreach=True. Leave shard_optimizer out"),
        ("Clipped", "parameters", "hooks around its step, which look at all parameters. Leave shard_parameters out"),
    ],
)
def test_other_optimizers_are_refused_with_a_sentence(start, optimizer, what, said):
    run = start(SMALL, "--optimizer", optimizer, "--sharded", what)
    run.members(0)
    assert run.wait() != 0
    assert said in run.events("error")[-1].message
