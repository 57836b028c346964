"""Training on streams: the same bits with workers that come, die and are suspended."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from functools import partial

import pytest

from benchmarks._stage import HOLD
from tests.engine.faults import FAULTS
from tests.engine.harness import Run
from tests.engine.scripts import LOOP
from tests.engine.test_loop import same
from training_runtime.elastic.worker.ledger import replay

CLASS = '''
class Drawn(torch.utils.data.IterableDataset):
    """What it draws depends on how often it was drawn from."""
    turn, at = -1, 0
    def set_epoch(self, epoch):
        self.turn = epoch
    def __iter__(self):
        for i in range(self.at, PASS):
            x = torch.randn(1, 8, 8) + 0.1 * random.random() + 0.01 * self.turn + 0.001 * i
            self.at = i + 1
            yield x, (x.mean() > 0).long()
        self.at = 0
'''
BEGINS_ANEW = CLASS.replace("        for i in range(self.at, PASS)", "        self.at = 0\n        for i in range(self.at, PASS)")
OWN = """    def state_dict(self):
        return {"at": self.at}
    def load_state_dict(self, state):
        self.at = state["at"]
"""


def streamed(made_by: str, said: str) -> str:
    script = LOOP.replace("def accuracy(", made_by + "\ndef accuracy(", 1)
    script = script.replace("data = Noisy(args.samples, 1)", "data = Drawn()")
    return script.replace("batch_size=4 * args.parts,", f"batch_size=4 * args.parts, {said}")


SCRIPTS = {
    "with a length": streamed(BEGINS_ANEW.replace("PASS", "115") + "    def __len__(self):\n        return 115\n", ""),
    "shorter than an epoch": streamed(BEGINS_ANEW.replace("PASS", "47"), "samples=115,"),
    "that says where it is": streamed((CLASS + OWN).replace("PASS", "200"), "samples=115,"),
}
LONG = ("--epochs", "6")  # 8 steps an epoch


@pytest.fixture
def alone(fixed: Callable[..., Run]) -> Callable[..., Run]:
    """alone(kind) -> the finished run with one worker; computed once."""
    return lambda kind: partial(fixed, script=SCRIPTS[kind])(*LONG)


@pytest.mark.parametrize("kind", SCRIPTS)
def test_a_training_on_a_stream_is_the_same_with_workers_that_come_die_and_are_suspended(start, alone, kind: str) -> None:
    faults = [
        {"phase": "backward", "step": 3, "rank": 1},
        {"phase": "summed", "step": 12, "rank": 0},
        {"phase": "committed", "step": 17, "rank": 0},
    ]
    holds = [*(fault["step"] + 3 for fault in faults), 31]
    env = {"FAULTS": json.dumps(faults), "HOLDS": json.dumps(holds), "EDT_LEDGER": "1", "EDT_DIGEST_STEPS": "3"}
    run = start(FAULTS + HOLD + SCRIPTS[kind], *LONG, env=env)
    run.members(0, 1, 2)
    run.until_step(30)
    run.members()
    run.until(lambda: run.events("suspended"), what="suspended")
    run.members(1, 2)
    assert run.wait() == 0, run.tail()
    assert all((run.result_dir / f"fault-{i}").exists() for i in range(len(faults)))
    same(run, alone(kind))
    assert not replay(run.result_dir).problems


def test_a_driver_that_dies_in_the_midst_of_a_stream_costs_no_bit(start, alone) -> None:
    """All of its processes with it: the position comes from the disk."""
    script = SCRIPTS["shorter than an epoch"]
    run = start(HOLD + script, *LONG, env={"HOLDS": "[21]", "EDT_CHECKPOINT_MINUTES": "0.0001"})
    run.members(0, 1)
    run.until_step(20)
    os.killpg(run.pid, signal.SIGKILL)
    run.wait()
    run.again()
    run.members(2)
    assert run.wait() == 0, run.tail()
    assert run.events("resumed")[0].step > 8
    same(run, alone("shorter than an epoch"))


def test_workers_that_run_the_script_themselves_go_through_the_same_stream(start, alone) -> None:
    run = start(SCRIPTS["shorter than an epoch"], *LONG, env={"EDT_START_METHOD": "spawn"})
    run.members(0, 1)
    run.until_step(11)
    run.members(1, 2)
    assert run.wait() == 0, run.tail()
    same(run, alone("shorter than an epoch"))


def test_workers_whose_streams_differ_end_the_run(start) -> None:
    differs = SCRIPTS["with a length"].replace("0.001 * i", "0.001 * i * (os.getpid() if i > 20 else 1)")
    run = start(differs, *LONG, env={"EDT_DIGEST_STEPS": "3"})
    run.members(0, 1)
    assert run.wait() == 1
    (error,) = run.events("error")
    assert "after step 3 the workers do not hold the same state any more: samples differ between slot 0 and slot 1" in error.message
