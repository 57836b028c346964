"""Runs of a real studio on a GPU: where they compute, behind which wall, and whose memory is on it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from experiments.cluster.utilization import Entry
from tests.e2e.studio import wait_until
from tests.gpu.studio import Person
from training_runtime import processor
from training_runtime.gpu_memory import GpuMemoryHolder
from training_runtime.host.sandbox.cgroup_values import WALLED

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(150)]
GIB = 1 << 30
ELASTIC = """
import os, sys
import torch
from torch import nn
from fabric_model import FabricModel

torch.manual_seed(0)
whole = torch.utils.data.TensorDataset(torch.randn(640, 64), torch.randint(0, 10, (640,)))
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Dropout(0.1), nn.Linear(256, 10))
where = []
def loss(out, target):
    if not where:
        where.append(out.device)
        print("computes on", out.device, "of", torch.cuda.device_count(), os.environ["CUDA_VISIBLE_DEVICES"], flush=True)
    return nn.functional.cross_entropy(out, target)
FabricModel(model, lambda: (whole, whole), loss, torch.optim.Adam(model.parameters())).train(int(sys.argv[1]), 16, 4)
"""
FOR_BOTH = """
import torch, edt
from torch import nn

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
data = torch.utils.data.TensorDataset(torch.randn(640, 64).to(device), torch.randint(0, 10, (640,)).to(device))
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10)).to(device)
optimizer = torch.optim.Adam(model.parameters())
weights = torch.ones(10, device=device)

def main():
    fixed = torch.randn(4, 64).to(device)
    for step in edt.elastic(model, optimizer, data, batch_size=64, parts=4, epochs=20):
        for batch in step:
            x, y = batch.x.to(device), batch.y.to(device)
            step.backward(nn.functional.cross_entropy(model(x), y, weight=weights) + model(fixed).mean() * 0)
        step.update()
        if step.number == 3:
            print("computes on", x.device, weights.device, fixed.device, flush=True)

main()
x, y = next(iter(torch.utils.data.DataLoader(data, batch_size=64, pin_memory=True)))
with torch.no_grad():
    print("ends at", nn.functional.cross_entropy(model(x.to(device)), y.to(device), weight=weights).item(), flush=True)
"""
HOLDS = """
import os, sys, time
import torch

held = torch.ones(int(sys.argv[1]) << 28, device="cuda")  # GiB of float32
print("holds", held.numel() * 4, "of", torch.cuda.get_device_name(0), os.environ["CUDA_VISIBLE_DEVICES"], flush=True)
while not os.path.exists(os.environ["RESULT_DIR"] + "/enough"):
    held.add_(1)
    torch.cuda.synchronize()
    time.sleep(0.01)
"""


def holders(person: Person, run: int) -> set[GpuMemoryHolder]:
    """Who has memory of the GPU of a run's slots, by what its machine said last."""
    rows = person.studio.rows("SELECT slots FROM experiments_latestutilization WHERE run_id = ?", run)
    return {GpuMemoryHolder(*each) for (slots,) in rows for entry in json.loads(slots) for each in Entry(*entry).holders}


def test_workers_compute_on_the_gpu_of_their_slots(alice: Person) -> None:
    (gpu, *_) = processor.gpu_list()
    walled = alice.studio.settings["EDT_SANDBOX_DEVICES"] == "1"
    run = alice.run(ELASTIC, "40", slots=4, kind="elastic")
    alice.until(run, "completed")
    log = alice.log(run)
    assert f"computes on cuda:0 of 1 {gpu.uuid if walled else 0}\n" in log, log
    assert any(WALLED in notes for (notes,) in alice.studio.rows("SELECT sandbox_notes FROM experiments_node")) == walled
    assert alice.studio.rows("SELECT COUNT(DISTINCT slot_id) FROM experiments_grant WHERE run_id = ?", run) == [(4,)]


def test_a_script_that_chooses_its_device_itself_trains_on_the_gpus_of_its_slots(alice: Person) -> None:
    run = alice.run(FOR_BOTH, slots=2, kind="elastic")
    facts = alice.until(run, "completed")
    log = alice.log(run)
    assert "computes on cuda:0 cuda:0 cuda:0\n" in log, (facts, log)
    assert "ends at" in log, log
    assert "not forked" not in json.dumps(facts), "nothing has touched CUDA before the workers"


def test_whoever_has_memory_of_a_gpu_is_named_on_the_pages_of_those_who_share_it(alice: Person, bob: Person) -> None:
    first = alice.run(HOLDS, "3", slots=1, kind="single")
    alice.until(first, "running")
    second = bob.run(HOLDS, "2", slots=1, kind="single")
    bob.until(second, "running")
    stranger = subprocess.Popen(
        [sys.executable, "-c", "import torch, sys; x = torch.ones(1 << 28, device='cuda'); print('there', flush=True); sys.stdin.read()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "0"},
    )
    try:
        assert stranger.stdout is not None
        assert stranger.stdout.readline() == b"there\n"

        def all_named() -> bool:
            found = holders(bob, second)
            runs = {each.run: each.used_bytes for each in found}
            strangers = [each for each in found if each.pid == stranger.pid]
            return runs.get(first, 0) > 3 * GIB and runs.get(second, 0) > 2 * GIB and any(each.used_bytes > GIB for each in strangers)

        wait_until(all_named, lambda: f"all three are named: {holders(bob, second)}, {bob.log(second)}", deadline_s=40)
    finally:
        stranger.communicate()


def test_a_run_that_finds_too_little_memory_is_told_who_has_it(alice: Person, bob: Person) -> None:
    first = alice.run(HOLDS, "3", slots=1, kind="single")
    alice.until(first, "running")
    wait_until(lambda: "holds" in alice.log(first), "it holds what it is to hold")
    second = bob.run(HOLDS + "more = torch.ones(1 << 40, device='cuda')\n", "1", slots=1, kind="single")
    bob.until(second, "running")
    wait_until(lambda: any(each.run == first for each in holders(bob, second)), "its machine has seen who has memory", deadline_s=40)
    (bob.studio.folder(second) / "enough").touch()
    facts = bob.until(second, "failed")
    assert f"run {first} had" in json.dumps(facts), (facts, bob.log(second))
