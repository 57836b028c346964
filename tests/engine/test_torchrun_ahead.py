"""What the workers of torchrun import is imported ahead of the next start, where none of them could tell."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.engine.harness import ROOT
from training_runtime.elastic.torchrun.workers import VARYING, variables
from training_runtime.protocol import RunSpec, SlotRef

SCRIPT = """
import json, os, sys, time
from pathlib import Path

there = "sklearn" in sys.modules
path = list(sys.path)
os.environ["SAID"] = "by the script"
import sklearn.linear_model
import getpass  # after which it is told
time.sleep(0.5)
import imaplib
where = Path(os.environ["RESULT_DIR"])
name = f"{os.environ['RANK']}-{os.environ['MASTER_PORT']}"
(where / f"{name}.new").write_text(json.dumps([there, path, sys.argv, os.environ["SAID"], "SAID" in sys.argv]))
(where / f"{name}.new").rename(where / f"{name}.json")
while True:
    time.sleep(0.01)
"""


def test_a_later_start_finds_imported_what_an_earlier_one_has_imported_and_nothing_else_has_changed(start):
    run = start(SCRIPT, "--epochs", "3", torchrun="elastic", env={"EDT_GROW_AFTER_S": "0"})

    def found() -> list[list]:
        return [json.loads(path.read_text()) for path in run.result_dir.glob("*.json")]

    run.members(0)
    run.until(found, what="the first start")
    (first,) = found()
    assert not first[0]
    driver = psutil.Process(run.pid)
    run.until(lambda: len(driver.children()) == 3, what="another fork server begins")
    slots, seen = (0,), 1
    while not any(each[0] for each in found()):  # it may not be through yet
        slots = (1,) if slots == (0,) else (0,)
        run.members(*slots)
        seen += 1
        run.until(lambda seen=seen: len(found()) >= seen, what=f"start {seen}")
    imported = next(each for each in found() if each[0])
    assert imported[1:] == first[1:]
    assert "forked with their packages imported" in run.log.read_text()
    run.members(0, 1)
    run.until(lambda: len(found()) == seen + 2, what="two workers")
    run.stop()
    assert run.wait() == 0, run.tail()


PACKAGES = {
    "quiet": "import os\nos.environ['SAID_BY_QUIET'] = os.environ.get('SAID', '')\n",
    "asks": "import os\nRANK = os.environ.get('LOCAL_RANK')\n",
    "copies": "import os\nBEFORE = dict(os.environ)\n",
    "thread": "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n",
    "opens": "import os\nFILE = open(os.devnull)\n",
    "handles": "import signal\nsignal.signal(signal.SIGUSR1, lambda *_: None)\n",
    "starts": "import subprocess\nSLEEPS = subprocess.Popen(['sleep', '60'])\n",
    "moves": "import os\nos.chdir('/')\n",
    "sets": "import os\nos.environ['HOME'] = '/nowhere'\n",
    "raises": "raise ValueError('not here')\n",
}
PREPARE = """
import json, os, sys
from training_runtime.elastic.torchrun import ahead
from training_runtime.imported import Imported, SetBefore

folder, names = sys.argv[1], json.loads(sys.argv[2])
for name in names:
    reads, writes = os.pipe()
    if os.fork() == 0:
        os.setsid()
        sys.path.append(f"{folder}/site-packages")
        imported = Imported((name,), (SetBefore(name, "SAID", "by the script"),))
        environment = {**os.environ, "LOCAL_RANK": "0", "RANK": "0"}
        try:
            said = ahead.prepare(imported, ahead.Inside(("main.py",), folder), environment, frozenset({"RANK", "LOCAL_RANK"}))
        except ahead.Unfit as error:
            said = str(error)
        os.write(writes, json.dumps(said).encode())
        os.killpg(0, 9)
    os.close(writes)
    print(os.read(reads, 10000).decode())
    os.close(reads)
    os.wait()
"""


def test_packages_that_a_worker_would_find_changed_are_not_imported_ahead(tmp_path: Path) -> None:
    (tmp_path / "site-packages").mkdir()
    for name, code in PACKAGES.items():
        (tmp_path / "site-packages" / f"{name}.py").write_text(code)
    command = [sys.executable, "-c", PREPARE, str(tmp_path), json.dumps(list(PACKAGES))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    assert dict(zip(PACKAGES, map(json.loads, done.stdout.splitlines()), strict=True)) == {
        "quiet": {"SAID_BY_QUIET": "by the script"},
        "asks": "an import reads LOCAL_RANK",
        "copies": "an import reads all variables",
        "thread": "it runs threads (Thread-1 (sleep))",
        "opens": "an import leaves a file open",
        "handles": "an import handles a signal",
        "starts": "an import starts a process",
        "moves": "an import changes sys.path, sys.argv or the working folder",
        "sets": "an import changes environment variables",
        "raises": "raises cannot be imported: ValueError: not here",
    }


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_variables_that_differ_between_workers_and_starts_are_known(device: str) -> None:
    spec = RunSpec(7, "test", "alice", ("main.py",), "/code", "/result", "/data", 4, {}, 1)
    slots = [SlotRef(number, "node", number, device) for number in range(4)]
    some, others = variables(spec, tuple(slots[:1]), rank=0, port=1, restarts=0), variables(spec, tuple(slots), rank=3, port=2, restarts=1)
    assert {name for name in some.keys() | others.keys() if some.get(name) != others.get(name)} <= VARYING
    assert VARYING - some.keys() - others.keys() <= {"TORCHELASTIC_ERROR_FILE", "LOG_DIR", "PL_TRAINER_DEVICES", "ACCELERATE_USE_CPU"}
