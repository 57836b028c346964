"""Scripts written for torchrun and torchelastic, on slots that come and go."""

from __future__ import annotations

import json
import os
import select
import signal
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest

from tests.engine.harness import Run, until_gone
from tests.engine.scripts import TORCHELASTIC
from training_runtime.elastic.torchrun.decide import GATHER_S

SAMPLES = 480


def allow(run: Run, samples: int) -> None:
    path = run.result_dir / "allowed"
    path.with_suffix(".new").write_text(str(samples))
    path.with_suffix(".new").replace(path)


def until_shown(run: Run, samples: int) -> None:
    def shown() -> int:
        path = run.result_dir / "checkpoint.pt.count"
        return int(path.read_text() or 0) if path.exists() else 0

    run.until(lambda: shown() >= samples, what=f"{samples} samples were shown")


def until_started(run: Run, times: int) -> None:
    run.until(lambda: len(run.events("generation")) >= times, what=f"{times} starts")


def test_it_grows_and_shrinks_and_loses_a_worker_and_shows_every_sample_once(start):
    import torch

    run = start(TORCHELASTIC, "--batch-size", "4", torchrun="elastic", max_restarts=2)
    allow(run, 16)
    run.members(0, reason="first")
    until_shown(run, 16)
    assert run.holding == (0,)

    run.members(0, 1, 2, reason="two more are free")
    until_started(run, 2)
    allow(run, 50)
    until_shown(run, 50)
    assert run.holding == (0, 1, 2)

    run.kill(1)
    until_started(run, 3)
    allow(run, 100)
    until_shown(run, 100)

    run.members(0, 2, reason="bob needs one")
    run.until(lambda: run.holding == (0, 2) and len(run.events("generation")) == 4, what="two workers")
    allow(run, SAMPLES)
    assert run.wait() == 0, run.tail()

    kept = torch.load(run.result_dir / "checkpoint.pt")
    assert Counter(kept["shown"]) == Counter(range(SAMPLES))
    assert (run.result_dir / "final.pt").exists()
    first, more, again, fewer = run.events("generation")
    assert [len(each.members) for each in (first, more, again, fewer)] == [1, 3, 3, 2]
    assert [each.workers_before for each in (first, more, again, fewer)] == [0, 1, 3, 3]
    assert [each.generation for each in (first, more, again, fewer)] == [1, 2, 3, 4]
    assert (first.reason, more.reason, fewer.reason) == ("first", "two more are free", "bob needs one")
    assert again.reason == "worker 1 (slot 1) was killed by SIGKILL; restart 1 of 2".replace("worker", "the worker")
    assert first.pause_ms == 0
    assert all(each.pause_ms > 0 for each in (more, again, fewer))
    assert {event.metrics["rank"] for event in run.events("logged")} == {0.0}, "figures of the first rank alone are the run's"
    assert run.events("finished")[0].outcome == "completed"
    assert run.events("finished")[0].metrics["train loss"] > 0


def test_a_fixed_number_of_slots_starts_whole_is_suspended_whole_and_goes_on(start):
    run = start(TORCHELASTIC, torchrun="fixed", max_slots=2)
    allow(run, 16)
    run.members(0, 1)
    until_shown(run, 16)
    run.members(0, reason="carol needs one")
    run.until(lambda: run.events("suspended"), what="it is suspended")
    run.until(lambda: run.holding == (), what="it holds nothing")
    assert run.events("suspended")[0].reason == "carol needs one"
    run.members()
    run.members(3, reason="one is free")
    run.members(2, 3, reason="two are free")
    allow(run, SAMPLES)
    assert run.wait() == 0, run.tail()
    assert [[member.slot for member in each.members] for each in run.events("generation")] == [[0, 1], [2, 3]]
    assert [(each.step > 0, each.reason) for each in run.events("resumed")] == [(True, "two are free")]


FAILS = """
import os
print("started", os.environ["TORCHELASTIC_RESTART_COUNT"], os.environ["TORCHELASTIC_MAX_RESTARTS"], flush=True)
import torch.distributed as dist
dist.init_process_group("gloo")
dist.barrier()
if dist.get_rank() == 1:
    raise ValueError("no such column: age")
dist.barrier()
"""


def test_a_script_that_fails_is_started_again_so_often_and_fails_with_its_own_traceback(start):
    run = start(FAILS, torchrun="elastic", max_restarts=1)
    run.members(5, 6)
    assert run.wait() == 1, run.tail()
    (failed,) = run.events("error")
    assert failed.message == "worker 1 (slot 6) failed: ValueError: no such column: age (started again 1 time before)"
    assert failed.where == "worker on slot 6"
    assert "main.py" in failed.traceback
    assert 'raise ValueError("no such column: age")' in failed.traceback
    assert "torchrun/worker.py" not in failed.traceback
    assert run.events("finished")[0].outcome == "failed"
    log = (run.result_dir / "log" / "worker-6" / "console.log").read_text()
    assert [line for line in log.splitlines() if line.startswith("started")] == ["started 0 1", "started 1 1"]


ABORTS = """
import atexit, os, sys
import torch.distributed as dist
dist.init_process_group("gloo")
dist.barrier()
rank, late = dist.get_rank(), sys.argv[1] == "late"
if rank and late:
    atexit.register(os.abort)
elif rank:
    os.abort()
dist.destroy_process_group()
if len(sys.argv) > 2:
    sys.exit(0)
"""


@pytest.mark.parametrize("arguments", [("late",), ("late", "by exit")])
def test_a_process_that_is_killed_when_its_script_has_come_to_its_end_has_not_failed(start, arguments):
    run = start(ABORTS, *arguments, torchrun="fixed", max_slots=2, max_restarts=2)
    run.members(5, 6)
    assert run.wait() == 0, run.tail()
    assert len(run.events("generation")) == 1
    assert run.events("finished")[0].outcome == "completed"
    assert "worker 1 (slot 6) was killed by SIGABRT, after its script had come to its end: that counts as done" in run.tail()


def test_a_process_that_is_killed_before_its_scripts_end_has_failed(start):
    run = start(ABORTS, "early", torchrun="fixed", max_slots=2, max_restarts=1)
    run.members(5, 6)
    assert run.wait() == 1, run.tail()
    assert len(run.events("generation")) == 2
    (failed,) = run.events("error")
    assert "worker 1 (slot 6) was killed by SIGABRT" in failed.message
    assert 'main.py", line 10 in <module>' in failed.traceback


UNEVEN = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
count = 1 if dist.get_rank() else 4096
dist.barrier()
dist.all_gather([torch.zeros(count), torch.zeros(count)], torch.zeros(count))
"""


def test_ranks_that_do_not_do_the_same_steps_are_told_what_the_library_says_of_it(start):
    run = start(UNEVEN, torchrun="fixed", max_slots=2, max_restarts=0)
    run.members(5, 6)
    assert run.wait() == 1, run.tail()
    (failed,) = run.events("error")
    assert "Is there a distributed collective mismatch in your code?" in failed.message
    assert "in all_gather" in failed.traceback
    assert 'main.py", line' in failed.traceback
    assert "Extension modules" not in failed.traceback


SIGNALLED = """
import json, os, select, signal, subprocess, sys
rank, folder = int(os.environ["RANK"]), os.environ["RESULT_DIR"]

def told(*_):
    open(os.path.join(folder, f"told-{rank}"), "w").close()
    if rank == 0:
        sys.exit(0)

signal.signal(signal.SIGTERM, told)
subprocess.Popen([sys.executable, "-c", "import select; select.select([], [], [])"])
with open(os.path.join(folder, f"env-{rank}.new"), "w") as file:
    json.dump(dict(os.environ), file)
os.replace(os.path.join(folder, f"env-{rank}.new"), os.path.join(folder, f"env-{rank}"))
while True:
    select.select([], [], [])
"""


def environment(run: Run, rank: int) -> dict:
    path = run.result_dir / f"env-{rank}"
    run.until(lambda: path.exists() and rank < len(run.holding), what=f"rank {rank} runs, and its driver has said so")
    return json.loads(path.read_text())


def test_a_stop_tells_the_workers_and_kills_who_does_not_end_with_all_that_they_started(start):
    run = start(SIGNALLED, torchrun="elastic", env={"EDT_WORKER_GRACE_S": "0.5"})
    run.members(0, 1)
    for rank in (0, 1):
        environment(run, rank)
    run.stop()
    assert run.wait() == 0, run.tail()
    assert run.events("finished")[0].outcome == "stopped"
    assert {path.name for path in run.result_dir.glob("told-*")} == {"told-0", "told-1"}
    until_gone(run.pid)


def test_where_slots_come_and_go_the_second_growth_waits_and_what_is_asked_back_does_not(start):
    run = start(SIGNALLED, torchrun="elastic", env={"EDT_WORKER_GRACE_S": "0", "EDT_GROW_AFTER_S": "1800"})
    run.members(0, reason="first")
    until_started(run, 1)
    run.members(0, 1, reason="one more")
    until_started(run, 2)
    run.members(0, 1, 2, reason="another one")
    gathered = time.monotonic() + GATHER_S + 0.5
    run.until(lambda: time.monotonic() > gathered, what="slots would have been gathered")
    run.members(0, reason="bob needs two")
    until_started(run, 3)
    assert [(len(each.members), each.reason) for each in run.events("generation")] == [(1, "first"), (2, "one more"), (1, "bob needs two")]
    run.stop()
    assert run.wait() == 0


def test_a_slot_is_held_until_its_process_is_gone(start):
    run = start(SIGNALLED, torchrun="elastic", env={"EDT_WORKER_GRACE_S": "1"})
    run.members(0, 1)
    environment(run, 1)
    worker = run.workers[1]
    run.members(0)
    run.until((run.result_dir / "told-1").exists, what="the worker was told to end")
    run.until(lambda: 1 not in run.holding, what="the slot is given back")
    assert not _runs(worker), "the slot was given back while its process ran"
    until_started(run, 2)
    assert run.holding == (0,)


def test_workers_end_with_their_driver(start):
    run = start(SIGNALLED, torchrun="elastic")
    run.members(0, 1)
    for rank in (0, 1):
        environment(run, rank)
    handles = [os.pidfd_open(child.pid) for child in psutil.Process(run.pid).children()]
    assert len(handles) == 3, "with the fork server"
    os.kill(run.pid, signal.SIGKILL)
    for handle in handles:
        assert select.select([handle], [], [], 60)[0], "a worker outlived its driver"
        os.close(handle)


def test_each_worker_finds_what_torchrun_gives_it(start):
    run = start(SIGNALLED, torchrun="elastic", max_restarts=3, device="gpu", env={"EDT_WORKER_GRACE_S": "0.5"})
    run.members(1, 3)
    found = [environment(run, rank) for rank in (0, 1)]
    for rank, own in enumerate(found):
        assert (own["RANK"], own["LOCAL_RANK"], own["ROLE_RANK"], own["GROUP_RANK"]) == (str(rank), str(rank), str(rank), "0")
        assert (own["WORLD_SIZE"], own["LOCAL_WORLD_SIZE"], own["MASTER_ADDR"]) == ("2", "2", "127.0.0.1")
        assert (own["TORCHELASTIC_RESTART_COUNT"], own["TORCHELASTIC_MAX_RESTARTS"]) == ("0", "3")
        assert (own["NODE_RANK"], own["WMLA_NWORKER"], own["WMLA_WORKER_NDEVICE"]) == (str(rank), "2", "1")
        assert own["CUDA_VISIBLE_DEVICES"] == "1,3", "LOCAL_RANK is the place of its own among them"
        assert (own["TORCHELASTIC_RUN_ID"], own["PET_RDZV_ID"]) == ("test-7", "test-7")
        assert (own["PET_RDZV_BACKEND"], own["PET_RDZV_ENDPOINT"]) == ("c10d", f"127.0.0.1:{own['MASTER_PORT']}")
    assert found[0]["MASTER_PORT"] == found[1]["MASTER_PORT"]
    assert Path(found[1]["LOG_DIR"]).name == "worker-3"
    run.stop()
    assert run.wait() == 0


@pytest.mark.parametrize(
    ("device", "env", "found"),
    [("cpu", {}, "true 2"), ("cpu", {"PL_TRAINER_DEVICES": "1"}, "true 1"), ("gpu", {}, "None None")],
)
def test_trainers_are_told_to_use_all_workers_on_processor_slots(start, device, env, found):
    """By themselves those of Accelerate, Transformers and Lightning train all of it in each worker where there is no GPU."""
    script = "import os\nprint('told', os.environ.get('ACCELERATE_USE_CPU'), os.environ.get('PL_TRAINER_DEVICES'))"
    run = start(script, torchrun="fixed", max_slots=2, device=device, env=env)
    run.members(0, 1)
    assert run.wait() == 0, run.tail()
    logs = [(run.result_dir / "log" / f"worker-{slot}" / "console.log").read_text() for slot in (0, 1)]
    assert logs == [f"told {found}\n"] * 2


def test_slots_that_share_a_gpu_are_warned_of(start):
    run = start(SIGNALLED, torchrun="elastic", device="gpu", gpus=1, env={"EDT_WORKER_GRACE_S": "0"})
    run.members(1, 2)
    assert environment(run, 1)["CUDA_VISIBLE_DEVICES"] == "0"
    run.until(lambda: any("share a GPU" in warning.message for warning in run.events("warning")), what="a warning")
    run.stop()
    assert run.wait() == 0


NO_ROOM = """
import errno, os
if os.environ["RANK"] == "1":
    raise OSError(errno.ENOSPC, "No space left on device")
"""


def test_a_full_disk_is_no_failure_of_the_script(start):
    run = start(NO_ROOM, torchrun="elastic", max_restarts=3, env={"EDT_DISK_LOW_BYTES": str(2**60)})
    run.members(0, 1)
    assert run.wait() == 75, "the host starts it again when there is room"
    assert "no room on the disk" in run.events("warning")[0].message
    assert not run.events("error")
    assert not run.events("finished")


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
