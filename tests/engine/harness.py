"""Plays the node host for engine tests: starts drivers from a warm process, grants and takes slots, reads journals. Everything real
but the host.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from training_runtime import journal
from training_runtime.meeting import Meeting, Meets
from training_runtime.protocol import Grown, Holding, Members, RunSpec, SlotRef, Stop, decode, encode

DEADLINE_S = 60.0
DEVICE = os.environ.get("EDT_TEST_DEVICE", "cpu")  # of slots of which a test says nothing: "gpu" has all of them share the first GPU
ROOT = Path(__file__).resolve().parents[2]


class Warm:
    """The warm process. One a test session; its drivers die with it. `within`: words before its command, to have it run somewhere else."""

    def __init__(self, within: Sequence[str] = ()) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [*within, sys.executable, "-m", "tests.engine.warm", str(theirs.fileno())]
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        # As on a node: torch may look for GPUs in the warm process, and must not initialise one.
        env = {**os.environ, "PYTHONPATH": path, "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
        self.process = subprocess.Popen(command, cwd=ROOT, env=env, pass_fds=[theirs.fileno()])
        theirs.close()
        ours.settimeout(DEADLINE_S)
        self.channel = ours
        self.codes: dict[int, int] = {}

    def start(self, command: dict) -> int:
        self.channel.settimeout(DEADLINE_S)
        self.channel.send(json.dumps(command).encode())
        while True:
            reply = self._receive()
            if "started" in reply:
                self.codes.pop(reply["started"], None)  # of a process long gone: after some thousands of runs their numbers come again
                return int(reply["started"])

    def _receive(self) -> dict:
        reply = json.loads(self.channel.recv(65536))
        if "exited" in reply:
            self.codes[reply["exited"]] = reply["code"]
        return reply

    def wait(self, pid: int, timeout_s: float = DEADLINE_S) -> int:
        end = time.monotonic() + timeout_s
        while pid not in self.codes:
            self.channel.settimeout(max(0.01, end - time.monotonic()))
            self._receive()
        return self.codes[pid]

    def close(self) -> None:
        self.channel.close()
        self.process.wait(DEADLINE_S)


class Run:
    """One run of a script. `code` is the script's text or a folder."""

    def __init__(
        self,
        warm: Warm,
        folder: Path,
        code: str | Path,
        *args: str,
        script: str = "main.py",
        max_slots: int = 4,
        env: dict[str, str] | None = None,
        attempt: int = 1,
        device: str = DEVICE,
        gpus: int = int(DEVICE == "gpu"),
        torchrun: str = "",
        max_restarts: int = 0,
        elastic: bool = True,
        said: dict[str, str] | None = None,
        module: str = "",
    ):
        """Its slots are of class `device`; `gpus` of them share that many GPUs. `said`: the variables of its person, in `env` as well."""
        self.warm, self.folder, self.device, self.gpus = warm, folder, device, gpus
        self.code_dir, self.result_dir = folder / "code", folder / "result"
        self.result_dir.mkdir(parents=True, exist_ok=True)
        if isinstance(code, Path):
            self.code_dir = code
        else:
            self.code_dir.mkdir(exist_ok=True)
            (self.code_dir / "main.py").write_text(code)
        self.spec = RunSpec(
            7, "test", "alice", (script, *args), str(self.code_dir), str(self.result_dir), str(folder), max_slots, said or {}, attempt
        )
        self.spec = dataclasses.replace(self.spec, torchrun=torchrun, max_restarts=max_restarts, elastic=elastic, module=module)  # type: ignore[arg-type]
        self._extra = (env or {}) | (said or {})
        self.log = self.result_dir / "log" / "driver" / "console.log"
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self._begin()

    def _begin(self) -> None:
        self._sockets = Path(tempfile.mkdtemp(prefix="edt", dir="/tmp"))
        self.holding: tuple[int, ...] = ()
        self.workers: dict[int, int] = {}
        self.revision = 0
        self.settled: int | None = None  # the revision that the driver has answered to
        self.met: Meets | None = None  # how remote agents reach the driver that do not see its folder
        self._lines: list[journal.Line] = []
        self._offset = 0
        self._buffer = b""
        self.connection: socket.socket | None = None
        self.start()

    def start(self) -> None:
        path = str(self._sockets / f"{self.spec.attempt}.sock")
        fabric = self.folder / "fabric"
        env = {
            "RESULT_DIR": str(self.result_dir),
            "DATA_DIR": str(self.folder),
            "LOG_DIR": str(self.folder),
            "FABRIC_HOME": str(fabric),
            **self._extra,
        }
        spec = dataclasses.asdict(self.spec)
        self.pid = self.warm.start({"spec": json.loads(json.dumps(spec)), "env": env, "log": str(self.log), "socket": path})
        self.path = path
        self.connect()

    def again(self) -> None:
        """A new attempt, as the host makes after a driver died."""
        self.spec = dataclasses.replace(self.spec, attempt=self.spec.attempt + 1)
        self.start()

    def connect(self) -> None:
        end = time.monotonic() + DEADLINE_S
        while True:
            try:
                self.connection = socket.socket(socket.AF_UNIX)
                self.connection.connect(self.path)
                return
            except (FileNotFoundError, ConnectionRefusedError):
                assert time.monotonic() < end, "the driver does not listen"
                select.select([], [], [], 0.005)

    def members(self, *slots: int, reason: str = "test", suspend: bool = False) -> None:
        self.revision += 1
        refs = tuple(SlotRef(s, "node", s % self.gpus if self.gpus else s, self.device) for s in slots)  # type: ignore[arg-type]
        with contextlib.suppress(BrokenPipeError):  # the run may have ended
            self.connection.sendall(encode(Members(self.revision, refs, reason, suspend, self.spec.meeting)))

    def stop(self, reason: str = "alice stopped it") -> None:
        self.connection.sendall(encode(Stop(reason)))

    def pump(self, timeout_s: float) -> bool:
        """Take in what the driver says, waiting at most `timeout_s` for something; False where there was nothing."""
        if not select.select([self.connection], [], [], timeout_s)[0]:
            return False
        try:
            data = self.connection.recv(65536)
        except ConnectionResetError:
            data = b""
        if not data:
            select.select([], [], [], min(timeout_s, 0.01))
            return False
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            message = decode(line)
            if isinstance(message, Holding):
                self.holding = tuple(sorted(w.slot for w in message.workers))
                self.workers = {w.slot: w.pid for w in message.workers}
                self.settled = message.revision
            elif isinstance(message, Meets):
                self.met = message
            else:
                assert isinstance(message, Grown)
        return True

    def lines(self) -> list[journal.Line]:
        while (batch := journal.read(self.result_dir / journal.FILE_NAME, self._offset)).end_offset > self._offset:
            assert not batch.rejected, batch.rejected
            self._lines += batch.lines
            self._offset = batch.end_offset
        return self._lines

    def events(self, kind: str) -> list:
        return [line.event for line in self.lines() if line.event.kind == kind]

    def until(self, condition: Callable[[], object], timeout_s: float = DEADLINE_S, what: str = "") -> None:
        end = time.monotonic() + timeout_s
        while not condition():
            if self.pid in self.warm.codes:
                while self.pump(0):
                    pass
                if condition():
                    return
            if time.monotonic() > end or self.pid in self.warm.codes:
                raise AssertionError(f"never happened: {what or condition}\n{self.tail()}")
            self.pump(0.05)

    def step(self) -> int:
        steps = self.events("train")
        return steps[-1].step if steps else 0

    def until_step(self, step: int) -> None:
        self.until(lambda: self.step() >= step, what=f"step {step}")

    def until_workers(self, count: int) -> None:
        """Until a step was computed by `count` workers after now."""
        here = self.step()
        self.until(lambda: any(e.workers == count and e.step > here for e in self.events("train")[-50:]), what=f"{count} workers")

    def wait(self, timeout_s: float = DEADLINE_S) -> int:
        try:
            return self.warm.wait(self.pid, timeout_s)
        except TimeoutError:
            raise AssertionError(f"the driver does not end\n{self.tail()}") from None

    def kill(self, slot: int, number: int = signal.SIGKILL) -> None:
        os.kill(self.workers[slot], number)

    def tail(self) -> str:
        shown = "\n".join(str(line) for line in self.lines()[-15:])
        logs = {self.log, *self.result_dir.glob("log/*/console.log")}
        return shown + "".join(f"\n--- {p}\n{p.read_text()[-3000:]}" for p in logs if p.exists())

    def weights(self) -> str:
        return weights(self.result_dir)

    def train_lines(self) -> list[tuple]:
        """What must not depend on the schedule: step, epoch, metrics, samples."""
        return [(e.step, e.epoch, tuple(e.metrics.items()), e.samples) for e in self.events("train")]

    def test_lines(self) -> list[tuple]:
        return [(e.step, e.epoch, tuple(e.metrics.items()), e.samples) for e in self.events("test")]

    def close(self) -> None:
        if self.pid not in self.warm.codes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self.wait()
        for worker in self.workers.values() if self.spec.torchrun else ():  # each leads a process group, with what its script started
            with contextlib.suppress(ProcessLookupError):
                os.killpg(worker, signal.SIGKILL)
        if self.connection is not None:
            self.connection.close()
        shutil.rmtree(self._sockets, ignore_errors=True)
        until_gone(self.pid)


HERE = {"EDT_ADDRESS": "127.0.0.1"}  # what the driver's machine has where others may take part


class RemoteAgent(Run):
    """Another machine of the same run. Its slots are its own: no two machines have one of the same number."""

    def __init__(self, home: Run, name: str, env: dict[str, str] | None = None, *, warm: Warm | None = None) -> None:
        self.warm, self.folder, self.device, self.gpus = warm or home.warm, home.folder, home.device, home.gpus
        self.code_dir, self.result_dir = home.code_dir, home.result_dir
        self.spec = dataclasses.replace(home.spec, remote=True)
        self._extra = home._extra | (env or {})
        self.log = home.folder / f"{name}.log"
        self._begin()


class Apart(RemoteAgent):
    """The same with a folder of its own."""

    def __init__(self, home: Run, name: str, env: dict[str, str] | None = None) -> None:
        self.home = home
        super().__init__(home, name, env)

    def _begin(self) -> None:
        self.result_dir = self.home.folder / f"result-{self.log.stem}"
        self.log = self.result_dir / "log" / "remote-agent" / "console.log"
        self.log.parent.mkdir(parents=True)
        self.spec = dataclasses.replace(self.spec, result_dir=str(self.result_dir))
        super()._begin()

    def start(self) -> None:
        """When the driver can be met, as the studio has it."""
        self.home.until(lambda: self.home.met is not None, what="the driver can be met")
        assert self.home.met is not None
        self.spec = dataclasses.replace(self.spec, meeting=Meeting("127.0.0.1", self.home.met.port, self.home.met.token))
        super().start()


def weights(result_dir: Path) -> str:
    """One hash over the final model and the optimizer's state."""
    import torch

    digest = hashlib.sha256()
    for suffix in ("", "_optimizer_state"):
        path = result_dir / "model" / "train" / f"model_epoch_final{suffix}.pth"
        _digest(digest, torch.load(path, weights_only=False))  # a script's learning rate may be a number of numpy's
    return digest.hexdigest()


def until_gone(session: int) -> None:
    """Until no process of a session runs."""
    end = time.monotonic() + DEADLINE_S
    while in_session(session):
        assert time.monotonic() < end, f"still there: {in_session(session)}"
        select.select([], [], [], 0.005)


def in_session(session: int) -> list[int]:
    """Processes of a session that still run."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == session and fields[0] not in "ZX":
                found.append(int(folder.name))
    return found


def _digest(digest, value) -> None:
    if hasattr(value, "numpy"):
        digest.update(str((value.dtype, tuple(value.shape))).encode() + value.contiguous().view(-1).view(dtype=_bytes()).numpy().tobytes())
    elif isinstance(value, dict):
        for key, item in value.items():
            digest.update(str(key).encode())
            _digest(digest, item)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for item in value:
            _digest(digest, item)
    else:
        digest.update(repr(value.item() if hasattr(value, "item") else value).encode())


def _bytes():
    import torch

    return torch.uint8
