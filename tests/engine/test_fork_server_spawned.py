"""Scripts whose process must not be forked: workers run them themselves, and everything else is as promised."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from types import ModuleType

from tests.engine.harness import until_gone
from tests.engine.scripts import SMALL
from training_runtime.elastic.processes import script
from training_runtime.elastic.state import checkpoint

LONG = ("--epochs", "24", "--samples", "115")  # 8 steps an epoch, 192 in all
# A thread from the import on; weights that are others in each process but the first; an epoch that lasts as long as there is a file.
ODD = """
import os, threading, time
threading.Thread(target=threading.Event().wait, name="ticker", daemon=True).start()
folder = os.environ["RESULT_DIR"]
first = not os.path.exists(folder + "/ran")
open(folder + "/ran", "a").write(f"{os.getpid()}\\n")
class Stay:
    def on_epoch_begin(self, epoch):
        while os.path.exists(folder + f"/stay-{epoch}"):
            time.sleep(0.005)
"""
TRAIN = "FabricModel(model, data, nn.functional.cross_entropy, optimizer)"
SCRIPT = ODD + SMALL.replace(
    TRAIN, "if not first:\n    torch.nn.init.zeros_(model[0].weight)\n" + TRAIN[:-1] + ", user_callbacks=[Stay()])"
)


def test_a_script_with_threads_is_run_by_each_worker_and_survives_what_others_survive(start, fixed):
    run = start(SCRIPT, *LONG)
    stays = [run.result_dir / f"stay-{epoch}" for epoch in (4, 10)]
    for stay in stays:
        stay.touch()
    run.members(0)
    run.until_step(32)
    run.members(0, 1, 2)
    run.until(lambda: len(run.workers) == 3, what="three workers")
    run.until(lambda: len((run.result_dir / "ran").read_text().split()) == 4, what="each has run the script")
    stays[0].unlink()
    run.until_step(80)
    engine = checkpoint.engine_path(run.result_dir)
    run.until(lambda: (checkpoint.position_of(engine) or 0) >= 10 * 10 - 1, what="its checkpoint is there")  # ten work items an epoch
    run.kill(0)
    os.kill(run.pid, signal.SIGKILL)
    assert run.wait() == -signal.SIGKILL
    until_gone(run.pid)
    stays[1].unlink()
    run.again()
    run.members(0, 1)
    assert run.wait() == 0, run.tail()
    told = [w.message for w in run.events("warning") if "it runs threads (ticker)" in w.message]
    assert len(told) == 2, "once an attempt"
    assert run.events("resumed")[-1].step == 80
    one = fixed(*LONG)
    assert run.train_lines() == one.train_lines()
    assert run.test_lines() == one.test_lines()
    assert run.weights() == one.weights()
    until_gone(run.pid)


def test_a_datasets_function_that_starts_a_thread_is_found_too(start, fixed):
    thread = "import threading\n    threading.Thread(target=threading.Event().wait, name='reader', daemon=True).start()\n    return Noisy(a"
    run = start(SMALL.replace("return Noisy(a", thread), *LONG)
    run.members(0, 1)
    assert run.wait() == 0, run.tail()
    (told,) = [w.message for w in run.events("warning")]
    assert "because after the datasets function it runs threads (reader)" in told
    assert run.train_lines() == fixed(*LONG).train_lines()
    assert run.weights() == fixed(*LONG).weights()
    until_gone(run.pid)


def test_a_thread_that_python_knows_nothing_of_is_found_where_there_should_be_none(start, fixed):
    thread = "import _thread, threading\n_thread.start_new_thread(threading.Event().wait, ())\n"
    run = start(SMALL.replace("parser = ", thread + "parser = ", 1), *LONG, env={"OMP_NUM_THREADS": "1"})
    run.members(0)
    assert run.wait() == 0, run.tail()
    (told,) = [w.message for w in run.events("warning")]
    assert "because compiled code in it runs " in told
    assert "EDT_START_METHOD=fork forks it all the same" in told
    assert run.weights() == fixed(*LONG).weights()
    until_gone(run.pid)


def test_a_script_with_no_thread_but_the_engines_own_is_forked(start):
    run = start(SMALL, *LONG, env={"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"})
    run.members(0)
    assert run.wait() == 0, run.tail()
    assert run.events("warning") == []


def test_a_worker_that_comes_to_another_model_is_refused(start):
    code = SMALL.replace("nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8)", "nn.Conv2d(1, width, 3), nn.BatchNorm2d(width)")
    code = code.replace("model = nn", "width = 9 if os.path.exists(os.environ['RESULT_DIR'] + '/ran') else 8\nmodel = nn", 1)
    code = code.replace("nn.Linear(288, 2)", "nn.Linear(36 * width, 2)").replace(
        TRAIN, "open(os.environ['RESULT_DIR'] + '/ran', 'w')\n" + TRAIN
    )
    run = start("import os\n" + code, env={"EDT_START_METHOD": "spawn"})
    run.members(0)
    assert run.wait() == 1
    (failed,) = run.events("error")
    assert "came to another model or dataset than the driver" in failed.message
    assert failed.where == "worker on slot 0"


def test_what_makes_a_process_unsafe_to_fork_is_named(monkeypatch):
    end = threading.Event()
    threads = [threading.Thread(target=end.wait, name=name) for name in ("host-link", "ticker")]
    for thread in threads:
        thread.start()
    try:
        monkeypatch.setattr(threading, "enumerate", lambda: [threading.main_thread(), *threads])  # this process has others too
        assert script.why_not_fork() == "it runs threads (ticker)", "the other is the driver's own and sleeps then"
        threads.pop()
        assert script.why_not_fork() == ""
    finally:
        end.set()
    monkeypatch.setitem(sys.modules, "tensorflow.python", ModuleType("tensorflow.python"))
    assert "TensorFlow" in script.why_not_fork()


PANDAS = """
import os, signal
from pathlib import Path
import pandas
from training_runtime.elastic.processes import script
names = [(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
assert "jemalloc_bg_thd" in names, names  # else this tests nothing
assert script.why_not_fork() == "", script.why_not_fork()
def work():
    frames = [pandas.DataFrame({"n": range(20_000), "s": [f"{n}" * 9 for n in range(20_000)]}) for _ in range(5)]
    return sum(int(frame.groupby("s").n.sum().sum()) for frame in frames)
expected = work()
for _ in range(8):
    if not (pid := os.fork()):
        signal.alarm(60)
        os._exit(work() != expected)
    assert os.waitpid(pid, 0)[1] == 0
"""


def test_a_process_that_has_imported_pandas_is_forked_and_its_children_work():
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", PANDAS], env=environment, check=True, timeout=120)


def test_files_of_the_script_do_not_hide_modules_from_the_interpreter(tmp_path):
    (tmp_path / "types.py").write_text("raise RuntimeError")
    found = script.Script(
        str(tmp_path / "main.py"), "", (), str(tmp_path), (str(tmp_path), *script.module_paths(), *sys.path)
    ).outside_path()
    assert str(tmp_path) not in found
    assert found == [path for path in sys.path if path not in ("", *script.module_paths())]
