"""Workers of torchrun are forked from a process that has torch imported, and find what they would find in an interpreter of their own."""

from __future__ import annotations

import json
import subprocess
import sys

import psutil
import pytest

from tests.engine.harness import Run
from training_runtime.elastic.torchrun.fork_server import read_early

FACTS = """
import json, os, random, signal, sys, threading
import numpy, torch
from pathlib import Path

facts = {
    "argv": sys.argv,
    "folder": os.getcwd(),
    "file": __file__,
    "name": __name__,
    "signals": {each.name: str(signal.getsignal(each)) for each in signal.valid_signals() if isinstance(each, signal.Signals)},
    "input": sys.stdin.read(),
    "threads": [threading.active_count(), len(list(Path("/proc/self/task").iterdir())), torch.get_num_threads()],
    "gradients": [torch.is_grad_enabled(), torch.is_inference_mode_enabled(), str(torch.get_default_dtype())],
}
drawn = [random.random(), numpy.random.rand(), torch.rand(1).item(), torch.initial_seed()]
links = [os.readlink(entry.path) for entry in os.scandir("/proc/self/fd") if int(entry.name) > 2 and os.path.lexists(entry.path)]
rank = os.environ.get("RANK", "alone")
where = Path(os.environ["RESULT_DIR"])
processes = [os.getpid(), os.getpgrp(), os.getsid(0), os.getppid()]
(where / f"{rank}.new").write_text(json.dumps([facts, drawn, links, dict(os.environ), processes]))
(where / f"{rank}.new").rename(where / f"{rank}.json")
"""


def told(run: Run, who: object) -> list:
    path = run.result_dir / f"{who}.json"
    run.until(path.exists, what=f"{who} has told what it finds")
    return json.loads(path.read_text())


def test_it_finds_what_it_would_find_in_an_interpreter_of_its_own(start):
    run = start(FACTS, "--epochs", "3", torchrun="elastic")
    run.members(0, 1)
    (facts, drawn, links, environment, (pid, group, session, parent)), (_, others, *_) = told(run, 0), told(run, 1)
    assert run.wait() == 0, run.tail()
    environment.pop("RANK")
    command = [sys.executable, str(run.code_dir / "main.py"), "--epochs", "3"]
    subprocess.run(command, cwd=run.code_dir, env=environment, stdin=subprocess.DEVNULL, check=True, timeout=60)
    assert facts == json.loads((run.result_dir / "alone.json").read_text())[0]
    assert pid == group
    assert (session, parent) == (run.pid, run.pid)
    assert set(drawn).isdisjoint(others), "each worker draws numbers of its own"
    own = {"/dev/null", "/dev/urandom", "/memfd:edt-imports (deleted)"}
    assert {link for link in links if not link.startswith("/proc/")} <= own, "nothing of the driver's is open"


SAYS = """
import atexit, os, sys, threading, torch.distributed
from pathlib import Path

where = Path(os.environ["RESULT_DIR"])
atexit.register(lambda: (where / "exit").touch())
if os.fork() == 0:
    os.setsid()
    os._exit(os.fork() and 0)
threading.Thread(target=lambda: (where / "thread").touch()).start()
(where / f"{os.environ['TORCHELASTIC_RESTART_COUNT']}.level").write_text(torch.distributed.get_debug_level().name)
import time
while not (where / "may end").exists():
    time.sleep(0.005)
sys.exit(None if (where / "good").exists() else "the data are missing")
"""


def level(run: Run, restarts: int) -> str:
    path = run.result_dir / f"{restarts}.level"
    run.until(lambda: path.exists() and path.read_text(), what=f"start {restarts}")
    return path.read_text()


def test_its_end_is_an_interpreters_end_and_so_is_its_word_on_why(start):
    run = start(SAYS, torchrun="elastic", max_restarts=1)
    run.members(0)
    (run.result_dir / "may end").touch()
    assert run.wait() == 1
    assert (run.result_dir / "exit").exists()
    assert (run.result_dir / "thread").exists()
    assert "the data are missing" in (run.result_dir / "log" / "worker-0" / "console.log").read_text()


def test_what_workers_leave_behind_is_reaped_and_who_kills_their_parent_gets_another(start):
    run = start(SAYS, torchrun="elastic", max_restarts=1)
    run.members(0)
    assert level(run, 0) == "OFF"

    def others() -> list[psutil.Process]:
        return [each for each in psutil.Process(run.pid).children() if each.pid not in run.workers.values()]

    run.until(lambda: len(others()) == 1, what="all that the worker has left to the driver is reaped")
    others()[0].kill()
    (run.result_dir / "good").touch()
    run.kill(0)
    assert level(run, 1) == "OFF"
    (run.result_dir / "may end").touch()
    assert run.wait() == 0, run.tail()


def test_a_variable_that_a_library_reads_as_it_is_loaded_reaches_it(start):
    run = start(SAYS, torchrun="elastic", said={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"})
    run.members(0)
    assert level(run, 0) == "DETAIL"
    for name in ("good", "may end"):
        (run.result_dir / name).touch()
    assert run.wait() == 0, run.tail()


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["PATH", "WANDB_MODE", "MY_OMP_NUM_THREADS", "EDT_GROW_AFTER_S", "CUDA_VISIBLE_DEVICES", "NCCL_DEBUG"], []),
        (["OMP_NUM_THREADS", "B"], ["OMP_NUM_THREADS"]),
        (["TORCH_LOGS", "PYTHONHASHSEED", "GLIBC_TUNABLES"], ["GLIBC_TUNABLES", "PYTHONHASHSEED", "TORCH_LOGS"]),
    ],
)
def test_variables_that_are_read_before_a_worker_is_forked_are_known(names, found):
    assert read_early(names) == found


CLOSES = """
import os, sys, torch.distributed as dist
from pathlib import Path

entries = [each for each in Path("/proc/self/fd").iterdir() if os.path.lexists(each)]
(number,) = (int(each.name) for each in entries if "edt-imports" in os.readlink(each))
with open(Path(os.environ["RESULT_DIR"], "own"), "w") as own:
    os.dup2(own.fileno(), number)
    own.write("a file of the script's")
    own.flush()
    import sklearn.linear_model
dist.init_process_group("gloo")
dist.destroy_process_group()
threads = [Path(task, "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
print("threads of gloo:", sum("gloo" in name for name in threads))
"""


def test_a_script_may_close_what_it_does_not_know_and_its_groups_stay_until_its_end(start):
    run = start(CLOSES, torchrun="elastic")
    run.members(0)
    assert run.wait() == 0, run.tail()
    assert (run.result_dir / "own").read_text() == "a file of the script's"
    assert "threads of gloo: 0" not in (run.result_dir / "log" / "worker-0" / "console.log").read_text()


def test_what_keeps_a_worker_from_its_script_is_in_its_log(start):
    run = start(SAYS, torchrun="elastic", max_restarts=1)
    run.members(0)
    assert level(run, 0) == "OFF"
    run.code_dir.rename(run.folder / "elsewhere")
    run.kill(0)
    assert run.wait() == 1
    assert "FileNotFoundError" in (run.result_dir / "log" / "worker-0" / "console.log").read_text()
