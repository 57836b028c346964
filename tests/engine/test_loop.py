"""Law 1 where the script has a training step of its own: the weights, and whatever else it holds, do not depend on who ran the body."""

from __future__ import annotations

import json

import pytest

from tests.engine.faults import FAULTS
from tests.engine.harness import Run
from tests.engine.scripts import LOOP

LONG = ("--epochs", "12")  # 8 steps an epoch


@pytest.fixture(scope="module")
def alone(warm, tmp_path_factory):
    """alone(*args) -> the finished run of LOOP with one worker; computed once."""
    done: dict[tuple[str, ...], Run] = {}

    def run(*args: str) -> Run:
        if args not in done:
            one = done[args] = Run(warm, tmp_path_factory.mktemp("alone"), LOOP, *args)
            one.members(0)
            assert one.wait() == 0, one.tail()
        return done[args]

    yield run
    for one in done.values():
        one.close()


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
    assert len(one.train_lines()) == 96
    assert [name for name, _ in one.train_lines()[0][2]] == ["loss", "accuracy"]
    assert [line[0] for line in one.test_lines()] == list(range(8, 97, 8))
    assert sorted(logged(one)) == list(range(1, 97))
    assert len(one.events("logged")) == 96
    assert logged(one)[96]["steps"] == 96
    assert len(after(one)) == 1
    assert "'steps': 96" in after(one)[0]


def test_a_loop_that_goes_4_2_3_1_4_equals_a_fixed_one(start, alone):
    run = start(LOOP, *LONG)
    run.members(0, 1, 2, 3)
    for at, slots in ((14, (0, 1)), (30, (0, 1, 3)), (50, (3,)), (66, (0, 1, 2, 3))):
        run.until_step(at)
        run.members(*slots)
        run.until_workers(len(slots))
    assert run.wait() == 0, run.tail()
    assert [len(g.members) for g in run.events("generation")] == [4, 2, 3, 1, 4]
    assert len(run.events("logged")) == 96
    same(run, alone(*LONG))


def test_deaths_in_the_body_and_a_suspension_cost_no_bit(start, alone):
    faults = [
        {"phase": "backward", "step": 10, "rank": 1},
        {"phase": "exchange", "step": 20, "rank": 0},
        {"phase": "summed", "step": 30, "rank": 1},
        {"phase": "optimizer", "step": 40, "rank": 0},
        {"phase": "committed", "step": 50, "rank": 0},
        {"phase": "validation", "step": 60, "rank": 1},
    ]
    run = start(FAULTS + LOOP, *LONG, env={"FAULTS": json.dumps(faults)})
    run.members(0, 1, 2)
    run.until_step(66)
    run.members()
    run.until(lambda: run.events("suspended"), what="suspended")
    run.members(1, 2)
    assert run.wait() == 0, run.tail()
    assert all((run.result_dir / f"fault-{i}").exists() for i in range(len(faults)))
    same(run, alone(*LONG))


def test_workers_that_run_the_script_themselves_come_to_the_same(start, alone):
    args = ("--epochs", "2")
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
ENDLESS = """
class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(data)
"""
MISUSES = {
    "no update": (BODY.replace("    step.update()\n", ""), "step.update() was not called"),
    "update inside": (BODY.replace("    step.update()", "        step.update()"), "step.update() belongs behind the loop"),
    "inner loop left": (BODY.replace("loss(batch))", "loss(batch))\n        break"), "step.update() belongs behind the loop"),
    "backward outside": (
        BODY.replace("    step.update()", "    step.backward(loss(batch))"),
        "belongs into the loop over the step's batches",
    ),
    "own backward": (BODY.replace("step.backward(loss(batch))", "loss(batch).backward()"), "gradients came from elsewhere"),
    "no backward": (BODY.replace("step.backward(loss(batch))", "pass"), "no step.backward(loss) was called for a batch"),
    "no scalar": (
        BODY.replace("loss(batch)", "model(batch.x)"),
        "must be a tensor of one number, the mean over the batch, not one of shape (4, 2)",
    ),
    "break": (BODY + "    break\n", "the loop over the steps was left before its end"),
    "return": ("def main():" + BODY.replace("\n", "\n    ") + "    return 3\nmain()\n", "the loop over the steps was left before its end"),
    "caught": ("try:" + BODY.replace("\n", "\n    ") + "    1 / 0\nexcept ZeroDivisionError:\n    pass\n", "was caught outside of it"),
    "sys.exit": (BODY + "    raise SystemExit(3)\n", "the loop over the steps was left before its end"),
    "body raises": (BODY + "    raise KeyError('mine')\n", "KeyError: 'mine'"),
    "too early": (BODY.replace("    for", "    step.mean_loss\n    for"), "step.mean_loss belongs behind the loop"),
    "measured": (BODY.replace("train()", "train(metrics=['right'])"), "step.measure() must be called for each batch with right"),
    "grown": (BODY + "    model.late = nn.Linear(2, 2)\n", "the model got other modules while it was training"),
    "stream": (ENDLESS + BODY.replace("train()", "train(data=Stream())"), "give a map-style dataset"),
    "parts": (BODY.replace("train()", "train(parts=3)"), "a batch of 8 cannot be cut into 3 equal parts"),
    "state": (BODY.replace("train()", "train(state={'best': 0.5})"), "state: 'best' is of no mutable kind"),
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
