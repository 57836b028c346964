"""Children that are forked from the studio's process: like new ones, whatever the parent was at."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.e2e.studio import REPOSITORY

# In a process of its own, since only one with a single thread may fork.
PARENT = """
import atexit, fcntl, json, os, random, signal, socket, sys, threading, time, warnings
from pathlib import Path
from webapp.studio import forked

FOLDER = Path(sys.argv[1])

def fork(main, **more):
    with open(FOLDER / "log", "ab") as output:
        environment = {"SAID": "to the child", "PATH": os.environ["PATH"], "PYTHONWARNINGS": "ignore:Nobody is told of this"}
        setting = forked.Setting("edt-studio: test", ("program", "--option"), environment, FOLDER, output, **more)
        return forked.fork(main, setting)

"""


def parent(folder: Path, code: str) -> str:
    """What a process prints that runs the code below PARENT."""
    command = [sys.executable, "-c", PARENT + code, str(folder)]
    try:
        done = subprocess.run(command, cwd=REPOSITORY, stdin=subprocess.PIPE, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout
    finally:
        end_children(folder)


def end_children(folder: Path) -> None:
    """What was forked and is still there, which works in this folder."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if Path(process.cwd()) == folder:
                process.kill()


def logged(folder: Path) -> str:
    return (folder / "log").read_text()


BEGUN = """
numbers = [signal.SIGTERM, signal.SIGALRM, signal.SIGUSR1, signal.SIGINT]
for number in numbers:
    signal.signal(number, lambda number, frame: print("the parent's handler"))
signal.signal(signal.SIGHUP, signal.SIG_IGN)
ours, theirs = socket.socketpair()
theirs.setblocking(False)
signal.set_wakeup_fd(theirs.fileno())
atexit.register(print, "the parent's exit work")
lock = open(FOLDER / "lock", "w")
fcntl.flock(lock, fcntl.LOCK_EX)
passed, kept = os.pipe()
random.seed(1)
print("not yet written", end=" ")

def main():
    open_ = {int(path.name): os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.exists()}
    heard = signal.set_wakeup_fd(-1)
    warnings.warn("Nobody is told of this, nor of this")
    warnings.warn("Everybody is told of that")
    said = {
        "leads its session": os.getsid(0) == os.getpid(),
        "handlers": [signal.getsignal(number) is signal.SIG_DFL for number in numbers[:3]],
        "interrupt": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
        "ignored": signal.getsignal(signal.SIGHUP) is signal.SIG_IGN,
        "wakeup": heard,
        "mask": len(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "files": sorted({where for number, where in open_.items() if number > 2 and number != passed and "/proc/" not in where}),
        "outputs": [open_[1], open_[2]],
        "input": sys.stdin.read(),
        "passed": os.fstat(passed).st_ino == inode,
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "argv": sys.argv,
        "random": random.random() == first,
        "title": Path("/proc/self/cmdline").read_bytes().strip(b"\\0").decode(),
    }
    print(json.dumps(said))

inode = os.fstat(passed).st_ino
first = random.Random(1).random()
child = fork(main, inherited=[passed])
print(child.wait())
"""


def test_a_child_begins_as_a_new_process_would(tmp_path: Path) -> None:
    printed = parent(tmp_path, BEGUN)
    log = str(tmp_path / "log")
    *warned, said = logged(tmp_path).splitlines()
    assert json.loads(said) == {
        "leads its session": True,
        "handlers": [True] * 3,
        "interrupt": True,
        "ignored": True,
        "wakeup": -1,
        "mask": 0,
        "files": ["/dev/null"],
        "outputs": [log, log],
        "input": "",
        "passed": True,
        "environment": {
            "SAID": "to the child",
            "PATH": json.loads(said)["environment"]["PATH"],
            "PYTHONWARNINGS": "ignore:Nobody is told of this",
        },
        "folder": str(tmp_path),
        "argv": ["program", "--option"],
        "random": False,
        "title": "edt-studio: test",
    }
    assert "Everybody is told of that" in "".join(warned)
    assert "Nobody" not in "".join(warned)
    assert printed == "not yet written 0\nthe parent's exit work\n", "once, and by the parent alone"


LOCKED = """
lock = open(FOLDER / "lock", "w")
fcntl.flock(lock, fcntl.LOCK_EX)
(go, may), (began, begins) = os.pipe(), os.pipe()
child = fork(lambda: (os.write(begins, b"x"), os.read(go, 1)), inherited=[go, begins])
os.read(began, 1)
lock.close()
with open(FOLDER / "lock", "w") as other:  # as the next studio does
    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
os.write(may, b"x")
print(child.wait())
"""


def test_a_child_does_not_keep_the_lock_of_its_studio(tmp_path: Path) -> None:
    assert parent(tmp_path, LOCKED) == "0\n"


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ("pass", 0, ""),
        ("sys.exit()", 0, ""),
        ("sys.exit(3)", 3, ""),
        ("sys.exit('why')", 1, "why\n"),
        ("raise ValueError('broken')", 1, "ValueError: broken\n"),
        ("os.kill(os.getpid(), signal.SIGTERM)", -15, ""),
        ("atexit.register(print, 'done')", 0, "done\n"),
        ("threading.Thread(target=lambda: (os.read(readable, 1), print('a thread'))).start(); os.write(writable, b'x')", 0, "a thread\n"),
    ],
)
def test_a_child_ends_as_a_program_does(tmp_path: Path, body: str, status: int, said: str) -> None:
    pipe = "readable, writable = os.pipe()\n"
    code = f"def main():\n    {body}\n{pipe}print(fork(main, inherited=[readable, writable]).wait())"
    assert parent(tmp_path, code) == f"{status}\n"
    assert logged(tmp_path).endswith(said)
    assert said or not logged(tmp_path)


def test_what_cannot_be_loaded_fails_in_the_child_whose_log_says_why(tmp_path: Path) -> None:
    code = "def load():\n    import nothing_of_this_name\nprint(fork(forked.loaded(load)).wait())"
    assert parent(tmp_path, code) == "1\n"
    assert "No module named 'nothing_of_this_name'" in logged(tmp_path)


def test_a_process_with_another_thread_does_not_fork(tmp_path: Path) -> None:
    code = """
wait = threading.Event()
threading.Thread(target=wait.wait).start()
try:
    fork(print)
except AssertionError as error:
    print(error)
wait.set()
"""
    assert parent(tmp_path, code).startswith("2 threads")


LOADED = """
import django, gc
os.environ["EDT_HOME"] = str(FOLDER)
os.environ["DJANGO_SETTINGS_MODULE"] = "webapp.settings"
django.setup()
import experiments.management.commands.studio
from django.db import connection
from webapp.studio import preload

opened = {path.name for path in Path("/proc/self/fd").iterdir()}
for load in (preload.web, preload.worker):
    connection.ensure_connection()
    load()
    assert connection.connection is None
print(json.dumps({
    "opened": sorted(os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.exists() and path.name not in opened),
    "threads": len(list(Path("/proc/self/task").iterdir())),
    "loaded": [name in sys.modules for name in ("experiments.api", "experiments.templatetags.studio", "experiments.tasks", "torch")],
}))
"""


def test_what_children_need_is_loaded_without_opening_anything_or_starting_a_thread(tmp_path: Path) -> None:
    said: dict[str, Any] = json.loads(parent(tmp_path, LOADED))
    assert said == {"opened": [], "threads": 1, "loaded": [True, True, True, False]}
