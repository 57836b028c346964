"""Law 1 where the script has a training step of its own: the weights, and whatever else it holds, do not depend on who ran the body."""

from __future__ import annotations

import json
import re
from functools import partial

import pytest
import torch

from benchmarks._stage import HOLD
from tests.engine.faults import FAULTS
from tests.engine.harness import Run
from tests.engine.scripts import LOOP
from training_runtime.elastic.state.combined_optimizer import CombinedOptimizer
from training_runtime.elastic.state.registered import Registered
from training_runtime.errors import UserError
from training_runtime.fabric.native import elastic

LONG = ("--epochs", "6")  # 8 steps an epoch


@pytest.fixture
def alone(fixed):
    """alone(*args) -> the finished run of LOOP with one worker; computed once."""
    return partial(fixed, script=LOOP)


def logged(run: Run) -> dict[int, dict[str, float]]:
    return {event.step: event.metrics for event in run.events("logged")}


def after(run: Run) -> list[str]:
    return (run.result_dir / "after").read_text().splitlines()


def same(run: Run, one: Run) -> None:
    assert run.weights() == one.weights()
    assert run.train_lines() == one.train_lines()
    assert run.test_lines() == one.test_lines()
    assert logged(run) == logged(one)
    assert after(run) == after(one)


def test_the_loop_is_run_once_a_step_and_what_follows_it_once(alone):
    one = alone(*LONG)
    assert len(one.train_lines()) == 48
    assert [name for name, _ in one.train_lines()[0][2]] == ["loss", "accuracy"]
    assert [line[0] for line in one.test_lines()] == list(range(8, 49, 8))
    assert sorted(logged(one)) == list(range(1, 49))
    assert len(one.events("logged")) == 48
    assert logged(one)[48]["steps"] == 48
    assert len(after(one)) == 1
    assert "'steps': 48" in after(one)[0]


@pytest.mark.usefixtures("either_way")
def test_a_loop_that_goes_4_2_3_1_4_equals_a_fixed_one(start, alone):
    changes = ((6, (0, 1)), (14, (0, 1, 3)), (22, (3,)), (30, (0, 1, 2, 3)))
    run = start(HOLD + LOOP, *LONG, env={"HOLDS": json.dumps([at + 1 for at, _ in changes])})
    run.members(0, 1, 2, 3)
    for at, slots in changes:
        run.until_step(at)
        run.members(*slots)
    assert run.wait() == 0, run.tail()
    assert [len(g.members) for g in run.events("generation")] == [4, 2, 3, 1, 4]
    assert len(run.events("logged")) == 48
    same(run, alone(*LONG))


@pytest.mark.usefixtures("either_way")
def test_deaths_in_the_body_and_a_suspension_cost_no_bit(start, alone):
    faults = [
        {"phase": "backward", "step": 3, "rank": 1},
        {"phase": "exchange", "step": 9, "rank": 0},
        {"phase": "summed", "step": 15, "rank": 1},
        {"phase": "optimizer", "step": 21, "rank": 0},
        {"phase": "committed", "step": 27, "rank": 0},
        {"phase": "validation", "step": 32, "rank": 1},
    ]
    holds = [faults[i]["step"] + 3 for i in range(5)]  # until another worker has taken the place of the one that died
    run = start(FAULTS + HOLD + LOOP, *LONG, env={"FAULTS": json.dumps(faults), "HOLDS": json.dumps([*holds, 39])})
    run.members(0, 1, 2)
    run.until_step(38)
    run.members()
    run.until(lambda: run.events("suspended"), what="suspended")
    run.members(1, 2)
    assert run.wait() == 0, run.tail()
    assert all((run.result_dir / f"fault-{i}").exists() for i in range(len(faults)))
    same(run, alone(*LONG))


# The second worker hears of the third one's death at the last barrier of step 10, when the first one has done that step.
LATE = """
import os, signal, time
from training_runtime.elastic.worker import main as _worker
from training_runtime.elastic.comm.segment import COMMITTED
_results, _leave_before = os.environ["RESULT_DIR"], _worker.Worker._leave_before
def _late(self, agreed):
    if self.shape.step_at(self.position) + 1 == 10 and self.group.size == 3:
        open(f"{_results}/rank-{self.group.rank}", "w").write(str(os.getpid()))
        if self.group.rank == 1 and not os.path.exists(_results + "/late"):
            open(_results + "/late", "w").close()
            while self.segment.get(self.group.record.members[0], COMMITTED) <= self.position or not os.path.exists(_results + "/rank-2"):
                time.sleep(0.002)
            os.kill(int(open(_results + "/rank-2").read()), signal.SIGKILL)
            while True:
                self.group.check_abort()
                time.sleep(0.002)
    _leave_before(self, agreed)
_worker.Worker._leave_before = _late
from training_runtime.elastic.worker import loop as _loop
_go_on = _loop.LoopWorker._go_on
def _seen(self, step, moved):
    behind = _go_on(self, step, moved)
    if behind:
        open(_results + "/behind", "w").close()
    return behind
_loop.LoopWorker._go_on = _seen
"""


def test_who_learns_of_a_death_too_late_ends_its_body_and_has_the_state_of_the_others(start, alone):
    run = start(LATE + LOOP, *LONG)
    run.members(0, 1, 2)
    assert run.wait() == 0, run.tail()
    assert (run.result_dir / "behind").exists()
    same(run, alone(*LONG))


def test_workers_that_run_the_script_themselves_come_to_the_same(start, alone):
    args = ("--epochs", "1")
    run = start(LOOP, *args, env={"EDT_START_METHOD": "spawn"})
    run.members(0, 1)
    run.until_step(3)
    run.members(1, 2)
    assert run.wait() == 0, run.tail()
    assert any("workers are not forked" in event.message for event in run.events("warning"))
    same(run, alone(*args))


WRONG = """
import torch, edt
from torch import nn
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
data = torch.utils.data.TensorDataset(torch.ones(16, 4), torch.zeros(16, dtype=torch.int64))
def loss(batch):
    return nn.functional.cross_entropy(model(batch.x), batch.y)
def train(**changed):
    return edt.elastic(*[changed.pop(name, globals()[name]) for name in ("model", "optimizer", "data")],
                       **{"batch_size": 8, "parts": 2, "epochs": 2, **changed})
"""
BODY = """
for step in train():
    for batch in step:
        step.backward(loss(batch))
    step.update()
"""
MISUSES = {
    "no update": (BODY.replace("    step.update()\n", ""), "step.update() was not called"),
    "inner loop left": (BODY.replace("loss(batch))", "loss(batch))\n        break"), "step.update() belongs behind the loop"),
    "own backward": (BODY.replace("step.backward(loss(batch))", "loss(batch).backward()"), "gradients came from elsewhere"),
    "no backward": (BODY.replace("step.backward(loss(batch))", "pass"), "no step.backward(loss) was called for a batch"),
    "break": (BODY + "    break\n", "the loop over the steps was left before its end"),
    "return": ("def main():" + BODY.replace("\n", "\n    ") + "    return 3\nmain()\n", "the loop over the steps was left before its end"),
    "caught": ("try:" + BODY.replace("\n", "\n    ") + "    1 / 0\nexcept ZeroDivisionError:\n    pass\n", "was caught outside of it"),
    "sys.exit": (BODY + "    raise SystemExit(3)\n", "the loop over the steps was left before its end"),
    "body raises": (BODY + "    raise KeyError('mine')\n", "KeyError: 'mine'"),
    "too early": (BODY.replace("    for", "    step.mean_loss\n    for"), "step.mean_loss belongs behind the loop"),
    "measured": (BODY.replace("train()", "train(metrics=['right'])"), "step.measure() must be called for each batch with right"),
    "twice": (BODY + BODY, "train() can be called once in a run"),
}


@pytest.mark.parametrize("misuse", MISUSES)
def test_misuse_ends_the_run_with_a_sentence_that_says_what_to_do(start, misuse):
    body, sentence = MISUSES[misuse]
    run = start(WRONG + body)
    run.members(0)
    assert run.wait() == 1, run.tail()
    (error,) = run.events("error")
    assert sentence in error.message


def test_a_module_that_the_body_replaces_ends_the_run_in_that_step(start):
    """Not at the end of the epoch: who joins before would go on without it."""
    run = start(
        LOOP.replace("        scheduler.step()\n", "        scheduler.step()\n        if step.number == 3: body[2] = nn.Tanh()\n"), *LONG
    )
    run.members(0)
    assert run.wait() == 1
    assert "the model got other modules while it was training" in run.events("error")[0].message
    assert run.step() == 2


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"dataset": 3}, "dataset (int) must have items by number and a length (a map-style dataset), or be iterable (a stream)"),
        ({"parts": 3}, "a batch of 8 cannot be cut into 3 equal parts"),
        ({"epochs": 0}, "elastic: epochs must be a whole number of at least 1, not 0"),
        ({"state": {"best": 0.5}}, "state: 'best' is of no mutable kind"),
        ({"state": {"f": print}}, "'f' is a builtin_function_or_method, which cannot be carried"),
        ({"model": [3]}, "model must be a torch.nn.Module, or several in a list, not int"),
        ({"optimizer": []}, "there is no optimizer in the list"),
        ({"test_set": [1]}, "test_set and evaluate belong together"),
    ],
)
def test_arguments_that_cannot_work_are_refused_before_anything_begins(changed, sentence):
    model = torch.nn.Linear(2, 2)
    given = {"model": model, "optimizer": torch.optim.SGD(model.parameters(), 0.1), "dataset": [1, 2], "batch_size": 8, "parts": 2}
    with pytest.raises(UserError, match=re.escape(sentence)):
        elastic(**{**given, **changed})


def test_several_optimizers_are_one_and_two_of_the_same_parameter_are_refused():
    first, second = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    each = [torch.optim.SGD(first.parameters(), 0.1, momentum=0.9), torch.optim.Adam(second.parameters())]
    one = CombinedOptimizer(each)
    for p in (*first.parameters(), *second.parameters()):
        p.grad = torch.ones_like(p)
    one.step()
    assert set(one.state) == {*first.parameters(), *second.parameters()}
    assert one.state[first.weight] is each[0].state[first.weight]
    assert len(one.state_dict()["state"]) == 4
    with pytest.raises(UserError, match="two of the optimizers hold the same parameter"):
        CombinedOptimizer([each[0], torch.optim.SGD(first.parameters(), 0.1)])


def test_what_is_registered_is_put_back_in_place():
    kept = {"figures": {"best": 1.0}, "last": [1], "mean": torch.zeros(2), "seen": {1}}
    registered = Registered(kept)
    state = {"figures": {"best": 2.0}, "last": [1, 2], "mean": torch.ones(2), "seen": {2}}
    held = {name: id(value) for name, value in kept.items()}
    registered.load_state_dict(state)
    assert {name: id(value) for name, value in kept.items()} == held
    assert (kept["figures"], kept["last"], kept["mean"].tolist(), kept["seen"]) == ({"best": 2.0}, [1, 2], [1.0, 1.0], {2})


SCALED = """
import os
import edt, torch
from torch import nn

def main():
    torch.manual_seed(0)
    x = torch.randn(160, 8)
    data = torch.utils.data.TensorDataset(x, x[:, :2].argmax(1))
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2))
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=4)
    for step in edt.elastic(model, optimizer, data, batch_size=32, parts=4, epochs=6, state={"scaler": scaler}):
        for x, y in step:
            with torch.autocast("cpu", torch.bfloat16):
                loss = nn.functional.cross_entropy(model(x), y)
            step.backward(loss * (float("inf") if step.number == 7 and y[:2].sum() == 1 else 1.0), scaler=scaler)
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        step.update(scaler=scaler)
        edt.log(scale=scaler.get_scale())
    with open(os.environ["RESULT_DIR"] + "/after", "a") as file:
        print({name: value.tolist() for name, value in model.state_dict().items()}, scaler.state_dict(), file=file)

if __name__ == "__main__":
    main()
"""


def test_a_gradient_scaler_skips_and_grows_the_same_whoever_computes(start, fixed):
    alone = fixed(script=SCALED)
    run = start(HOLD + SCALED, env={"HOLDS": "[6, 20]"})
    run.members(0, 1, 2)
    run.until_step(5)
    run.members(1, 3)
    run.until_step(19)
    run.members(0, 1, 2, 3)
    assert run.wait() == 0, run.tail()
    scales = [values["scale"] for _, values in sorted(logged(alone).items())]
    assert scales[5:7] == [2048.0, 1024.0], "it has grown once, and one part of the seventh step overflows"
    assert scales[-1] > 2048.0
    assert logged(run) == logged(alone)
    assert after(run) == after(alone)
    assert "nan" not in after(run)[0]
