"""Batches that are loaded ahead: by whom and when changes nothing, and nothing is loaded in vain."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
import torch

from training_runtime.elastic.data.cpu_usage import Processors
from training_runtime.elastic.data.loader_processes import pack, unpack
from training_runtime.elastic.data.loading import another

SLOW = '''
"""A dataset that waits as a disk makes it wait, and draws from every generator there is."""
import os, random, sys, time
import numpy as np
import torch
from torch import nn
from fabric_model import FabricModel
loaders, epochs = int(sys.argv[1]), int(sys.argv[2])
class Slow(torch.utils.data.Dataset):
    def __init__(self, count, name):
        self.count, self.name = count, name
    def __len__(self):
        return self.count
    def __getitem__(self, i):
        time.sleep(0.001)
        fd = os.open(os.environ["RESULT_DIR"] + "/loaded", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.write(fd, f"{self.name} {i} {os.getpid()}\\n".encode())
        os.close(fd)
        x = torch.full((6,), i / 100) + 0.1 * torch.randn(6) + 0.1 * random.random() + 0.1 * float(np.random.rand())
        return x, i % 3
def data():
    return Slow(150, "train"), Slow(40, "test")
model = nn.Sequential(nn.Linear(6, 16), nn.Dropout(0.3), nn.Linear(16, 3))
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
FabricModel(model, data, nn.functional.cross_entropy, optimizer).train(epochs, 4, 4, num_dataloader_threads=loaders)
'''


def loaded(run) -> tuple[Counter, set[int]]:
    """How often each sample of each set was loaded, and the processes that did."""
    lines = [line.split() for line in (run.result_dir / "loaded").read_text().splitlines()]
    return Counter((name, int(i)) for name, i, _ in lines), {int(pid) for *_, pid in lines}


def finished(start, *args, slots=(0,)):
    run = start(SLOW, *map(str, args), env={"EDT_VERIFY": "0"})  # which would load the first batch twice more, in a child
    run.members(*slots)
    assert run.wait() == 0, run.tail()
    return run


def same(one, other) -> bool:
    return (one.weights(), one.train_lines(), one.test_lines()) == (other.weights(), other.train_lines(), other.test_lines())


def test_results_are_equal_with_0_1_and_4_loaders_and_each_sample_is_loaded_once_an_epoch(start):
    alone = finished(start, 0, 4)
    counts, processes = loaded(alone)
    assert set(counts.values()) == {4}
    assert len(processes) == 1
    for loaders, slots in ((1, (0,)), (4, (0, 1))):
        run = finished(start, loaders, 4, slots=slots)
        assert same(run, alone)
        counts, processes = loaded(run)
        assert set(counts.values()) == {4}
        assert len(processes) > len(slots)
        assert run.events("warning") == []


def test_a_change_of_members_uses_what_was_loaded_and_is_still_needed(start):
    alone = finished(start, 0, 6)
    run = start(SLOW, "4", "6")
    run.members(0)
    for at, slots in ((12, (0, 1)), (25, (1,)), (35, (1, 2, 3)), (45, (2,))):
        run.until_step(at)
        run.members(*slots)
    assert run.wait() == 0, run.tail()
    assert len(run.events("generation")) >= 4
    assert same(run, alone)
    counts, _ = loaded(run)
    assert min(counts.values()) == 6
    ahead = 2 * 4 + 1  # batches of 4 samples that a worker has asked for at most, when a change takes them from it
    assert sum(counts.values()) - 6 * 190 <= 4 * ahead * sum(len(g.members) for g in run.events("generation"))


def test_a_killed_worker_takes_its_loaders_with_it_and_leaves_none_unreaped(start):
    run = start(SLOW, "4", "1000")
    run.members(0)
    run.until(lambda: run.step() and len(loaded(run)[1]) > 1, what="a loader")
    worker, loaders = run.workers[0], loaded(run)[1] - {run.workers[0]}
    run.kill(0)
    run.until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in {worker, *loaders}), what="all of them gone")
    run.stop()
    assert run.wait() == 0, run.tail()


def test_a_loader_that_dies_costs_a_warning(start):
    text = SLOW.replace("time.sleep(0.001)", "time.sleep(0.001); os.getppid() != parent[0] and os.kill(os.getpid(), 9)")
    text = text.replace("def data():", "parent = [0]\ndef data():\n    parent[0] = os.getpid()")
    run = start(text, "4", "4")
    run.members(0)
    assert run.wait() == 0, run.tail()
    (warning,) = run.events("warning")
    assert "a loader died" in warning.message
    assert run.weights() == finished(start, 0, 4).weights()


def test_an_error_in_the_dataset_is_told_with_its_own_traceback(start):
    text = SLOW.replace("time.sleep(0.001)", "time.sleep(0.001)\n        if i == 77 and self.name == 'test': raise ValueError('sample 77')")
    text = text.replace('Slow(40, "test")', 'Slow(90, "test")')
    run = start(text, "4", "4")
    run.members(0)
    assert run.wait() == 1
    assert run.events("error")[0].message == "ValueError: sample 77"
    assert "__getitem__" in run.events("error")[0].traceback


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (dict(have=0, most=4, waited=0.5, computes=False, spare=0, workers=2), True),
        (dict(have=0, most=4, waited=0.01, computes=False, spare=8, workers=2), False),
        (dict(have=4, most=4, waited=0.5, computes=False, spare=8, workers=2), False),
        (dict(have=0, most=4, waited=0.5, computes=True, spare=1, workers=2), False),
        (dict(have=2, most=4, waited=0.5, computes=True, spare=6, workers=2), True),
        (dict(have=3, most=4, waited=0.5, computes=True, spare=6, workers=2), False),
    ],
)
def test_a_loader_is_added_where_waiting_costs_time_and_no_worker_loses_its_processor(facts, expected):
    assert another(facts.pop("have"), facts.pop("most"), **facts) is expected


def test_a_batch_keeps_values_strides_and_alignment_on_its_way(tmp_path):
    base = torch.randn(3, 4, 5, 5)
    batch = {"plain": base, "last": base.to(memory_format=torch.channels_last), "part": base.view(-1)[3:50], "none": torch.empty(0, 4)}
    with open(tmp_path / "room", "w+b") as room:
        pack(room.fileno(), (batch, ["a", 1.5]))
        back, rest = unpack(room.fileno())
    assert rest == ["a", 1.5]
    for name, t in batch.items():
        assert torch.equal(back[name], t)
        assert back[name].stride() == t.stride()
        assert back[name].data_ptr() % 64 == t.data_ptr() % 64


def test_how_busy_processors_are_is_told_for_those_that_may_be_used_since_the_last_look(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 2, 11})
    stat = tmp_path / "stat"
    # user nice system idle iowait irq softirq steal guest guest_nice
    stat.write_text("cpu 9 9 9 9\ncpu1 0 0 0 100 0 0 0 0 0 0\ncpu2 50 0 0 0 50 0 0 0 50 0\ncpu11 0 0 0 0 0 0 0 0 0 0\nintr 1 2\n")
    processors = Processors(stat)
    assert (processors.count, processors.busy()) == (3, 0.0)
    stat.write_text("cpu1 0 0 0 200 0 0 0 0 0 0\ncpu2 60 10 10 0 100 5 5 10 60 0\ncpu11 0 0 0 50 50 0 0 0 0 0\ncpu3 9 0 0 0 0 0 0 0\n")
    # of 3 x 100 ticks: cpu2 worked 50 and waited for a disk 50, the others had nothing to do
    assert processors.busy() == 0.5
    assert processors.busy() == 0.0
