"""The script of a pilot of Slurm, without Slurm, run by somebody who is not root: what is left on the machine at its end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from experiments.cluster import slurm
from experiments.cluster.providers import Order
from tests import somebody
from tests.e2e.studio import REPOSITORY

pytestmark = pytest.mark.skipif(bool(somebody.problem()), reason=somebody.problem())

# What a run leaves is its own user's, who exists in the pilot's namespace alone, and a link leads out of the home.
JOB = """
import os, signal, subprocess, sys, time
from pathlib import Path
pilots, beside = Path(os.environ["HOME"], "pilots"), Path(os.environ["HOME"], "beside")
pilots.mkdir()
beside.write_text("somebody else's")
job = subprocess.Popen(["sh", sys.argv[1]], env={**os.environ, "SLURM_JOB_ID": "7"})
end = time.monotonic() + 60
try:
    while not any("No stream to" in log.read_text() for log in pilots.glob("*.log")):
        assert job.poll() is None and time.monotonic() < end
        time.sleep(0.05)
    (home,) = pilots.glob("edt-pilot-*/home")
    left = f"cd {home}/runs && mkdir -p a/b && touch a/b/c && ln -s {beside} a/link && chown -R 10001 . && chmod 700 a"
    subprocess.run([sys.executable, "-m", "training_runtime.host.rootless", "sh", "-c", left], check=True)
    assert subprocess.run(["rm", "-rf", str(home)], stderr=subprocess.DEVNULL).returncode, "its owner could"
finally:
    job.send_signal(signal.SIGTERM)
    status = job.wait(60)
print(status, os.listdir(pilots), beside.read_text())
"""


def test_a_pilot_whose_runs_have_users_of_their_own_leaves_nothing_that_its_owner_cannot_remove(reachable: Path, settings: Any) -> None:
    settings.EDT_PILOT_FOLDER = str(reachable / "home" / "pilots")
    settings.EDT_PILOT_COMMAND = f"EDT_ROOTLESS=1 {sys.executable} -m training_runtime.node join --temporary"
    before = somebody.commands_as_somebody(reachable, first=100_000_000 + os.getpid() % 1000 * 100_000)
    order = Order("edt-x", "gpu-1", "http://127.0.0.1:1", "edtn_x", walltime_minutes=60, notice_s=60, slots=1, options=())
    (reachable / "job.sh").write_text(slurm.script(order))
    done = subprocess.run(
        [*before, sys.executable, "-c", JOB, str(reachable / "job.sh")], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert done.stdout == "0 [] somebody else's\n", done.stdout + done.stderr
