"""Runs of the elastic peers, resized and struck from outside as ours are: torchrun, and torchft where it is installed.

Nothing of a peer is imported here: each runs in processes of its own, and what it did is read from the lines of its workers. Waits have a
deadline, after which the peer is `Stuck`; a benchmark counts that and goes on.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Self

import psutil

from benchmarks.peers.steps import DISTURBED, Reader, Step

ROOT = Path(__file__).resolve().parents[2]
INSTALLED = ROOT / ".cache" / "peers"  # by tools/setup.sh bench, apart from what the studio runs on
DEADLINE_S = 120.0
MOST_WORKERS = 4
PR_SET_PDEATHSIG = 1


class Stuck(Exception):
    """The peer did not come to what was waited for."""


def environment() -> dict[str, str]:
    """One thread a worker, as ours have. Without the last setting torchrun's restart finds the keys of the group that died, and hangs."""
    found = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": f"{ROOT}:{INSTALLED}"}
    return found | {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}


class Peer(ABC):
    """One run. `lines` is every finished step of every worker so far."""

    def __init__(self, width: int) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="peer")
        self.folder = Path(self._temporary.name)
        self.width = width
        self._log = (self.folder / "log").open("w")
        self._reader = Reader(self.folder)
        self.lines = self._reader.lines
        self._started: list[subprocess.Popen] = []
        self._members: list[subprocess.Popen] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing of the run is left, also where it is stuck or an agent died and left its workers."""
        for process in self._started:
            process.kill()
        for process in self._started:
            process.wait(DEADLINE_S)
        end = time.monotonic() + DEADLINE_S
        while left := [process for process in psutil.process_iter(["cmdline"]) if str(self.folder) in (process.info["cmdline"] or ())]:
            for process in left:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(left, DEADLINE_S)
            if time.monotonic() > end:
                raise Stuck(f"processes {[process.pid for process in left]} do not end")
        self._log.close()
        self._temporary.cleanup()

    @abstractmethod
    def fixed(self, workers: int) -> None:
        """Start with so many workers, a number that stays."""

    @abstractmethod
    def _one_more(self, number: int) -> subprocess.Popen:
        """Start the member of that number, of one worker."""

    def members(self, count: int) -> float:
        """Ask for `count` workers; seconds until those that are too many have ended."""
        asked = time.monotonic()
        leaving, self._members = self._members[count:], self._members[:count]
        for process in leaving:
            process.terminate()
        for process in leaving:
            try:
                process.wait(DEADLINE_S)
            except subprocess.TimeoutExpired:
                raise Stuck(f"a member does not leave\n{self._tail()}") from None
        self._members += [self._one_more(number) for number in range(len(self._members), count)]
        return time.monotonic() - asked

    def struck(self, pid: int) -> None:  # noqa: B027 - not every peer has something to do
        """A worker was killed: what the peer's own supervisor would do at once."""

    def cleared(self, pid: int) -> None:  # noqa: B027
        """The others go on without a worker that was stopped: put another one in its place."""

    def start(self, *command: str, **options: object) -> subprocess.Popen:
        """A process that ends when we do: an agent takes its workers with it on SIGTERM."""
        prctl = ctypes.CDLL(None).prctl
        process = subprocess.Popen(
            [sys.executable, *command],
            cwd=ROOT,
            env=environment(),
            stderr=self._log,
            preexec_fn=lambda: prctl(PR_SET_PDEATHSIG, signal.SIGTERM),
            **{"stdout": self._log, "stdin": subprocess.DEVNULL, **options},
        )
        self._started.append(process)
        return process

    def until(self, condition: Callable[[], object], what: str) -> None:
        end = time.monotonic() + DEADLINE_S
        while not condition():
            if any(process.poll() is not None for process in self._members):
                raise Stuck(f"{what}: a member has ended\n{self._tail()}")
            if time.monotonic() > end:
                raise Stuck(f"{what}: not within {DEADLINE_S:g} s\n{self._tail()}")
            time.sleep(0.01)
            self._reader.read()

    def _tail(self) -> str:
        return (self.folder / "log").read_text()[-2000:]

    def until_settled(self, workers: int, steps: int, since: int) -> None:
        """Until `workers` have done so many steps with nobody new among them; lines before `since` do not count."""

        def settled() -> bool:
            recent = self.lines[max(since, len(self.lines) - 2 * workers * (steps + DISTURBED)) :]
            newest = max((step.generation for step in recent), default=0)
            done = {step.number for step in recent if (step.generation, step.workers) == (newest, workers)}
            return len(done) >= steps + DISTURBED

        self.until(settled, f"{workers} workers")

    def workers(self) -> list[Step]:
        """The newest line of each worker of the newest generation, by rank."""
        newest = max(step.generation for step in self.lines)
        return sorted({step.rank: step for step in self.lines if step.generation == newest}.values(), key=lambda step: step.rank)


class Torchrun(Peer):
    """An agent a slot where the number of workers changes, one agent for all where it does not (which is quicker to restart).

    Set beyond the defaults: no limit of restarts, a second instead of 30 for further members to come, 3 s instead of 15 until an agent
    that left is believed gone, 5 s instead of half an hour for a process group that hangs. The 30 s that a worker has at a restart to end
    on SIGTERM stay: its --shutdown-timeout does not count there.
    """

    def __init__(self, width: int) -> None:
        super().__init__(width)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]

    def _agent(self, *options: str) -> subprocess.Popen:
        command = ("-m", "torch.distributed.run", "--max-restarts=100000", *options)
        return self.start(*command, "-m", "benchmarks.peers.torchrun_worker", str(self.width), str(self.folder), "5")

    def fixed(self, workers: int) -> None:
        self._members.append(self._agent("--standalone", f"--nproc-per-node={workers}"))

    def _one_more(self, _: int) -> subprocess.Popen:
        meet = ("--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{self._port}", "--rdzv-id=bench", "--local-addr=127.0.0.1")
        settings = "--rdzv-conf=last_call_timeout=1,keep_alive_interval=1"
        return self._agent(f"--nnodes=1:{MOST_WORKERS}", "--nproc-per-node=1", *meet, settings)


class Torchft(Peer):
    """Replicas of one process each, and a lighthouse. `timeout_s` is the process group's, and how long a silent replica is believed alive:
    5 s in torchft's example and by default.
    """

    def __init__(self, width: int, *, timeout_s: float = 5.0) -> None:
        super().__init__(width)
        self._timeout_s = timeout_s
        self._replicas = MOST_WORKERS
        self._lighthouse = ""

    def fixed(self, workers: int) -> None:
        self._replicas = workers
        self.members(workers)

    def _one_more(self, number: int) -> subprocess.Popen:
        if not self._lighthouse:
            module, silence_ms = "benchmarks.peers.torchft_lighthouse", str(int(1000 * self._timeout_s))
            process = self.start("-m", module, silence_ms, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)
            self._lighthouse = process.stdout.readline().strip()
        which = (self._lighthouse, str(number), str(self._replicas), str(self._timeout_s))
        return self.start("-m", "benchmarks.peers.torchft_worker", str(self.width), str(self.folder), *which)

    def struck(self, pid: int) -> None:
        number = [process.pid for process in self._members].index(pid)
        self._members[number] = self._one_more(number)

    def cleared(self, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
        self.struck(pid)


Start = Callable[[int], Peer]  # of a run with this hidden width


def peers(*, quick: bool) -> tuple[dict[str, Start], dict[str, str]]:
    """The peers that take part by name, and why the others do not. torchrun comes with torch."""
    everybody: dict[str, Start] = {"torchft": Torchft, "torchft_half_second": partial(Torchft, timeout_s=0.5), "torchrun": Torchrun}
    reason = _torchft_absent()
    out = {name: reason for name in everybody if reason and name != "torchrun"}
    if quick:
        out.setdefault("torchft_half_second", "not with --quick")
    return {name: start for name, start in everybody.items() if name not in out}, out


def _torchft_absent() -> str:
    command = [sys.executable, "-c", "import torchft"]
    tried = subprocess.run(command, env=environment(), cwd=ROOT, capture_output=True, text=True, check=False)
    reason = (tried.stderr.strip().splitlines() or [""])[-1]
    return f"absent ({reason}): tools/setup.sh bench installs it" if tried.returncode else ""
