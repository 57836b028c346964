"""The worker processes of one start: what torchrun gives each of them, the store they meet at, their ends and their errors.

The environment, the store (a TCPStore that the agent holds, not the first worker) and the error files are torchrun's own, so scripts and
libraries find all that they find there. The store listens for this start alone: workers of another one cannot get into it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from torch.distributed import TCPStore  # type: ignore[attr-defined]

from training_runtime import console, storage
from training_runtime.crashes import CRASHES, PRINTED_BYTES, cause_printed, ended_how
from training_runtime.elastic.processes import process_handles
from training_runtime.elastic.processes.gpu_names import gpu_name
from training_runtime.elastic.torchrun.fork_server import ForkServer
from training_runtime.elastic.torchrun.fork_server_process import Work
from training_runtime.elastic.torchrun.worker import ERROR_FILE, end_file
from training_runtime.protocol import RunSpec, SlotRef, Worker

ADDRESS = "127.0.0.1"  # all workers of a run are on one machine
_SHOWN = 300
# Of `variables`, those that are not the same for all workers of all starts.
VARYING = frozenset(
    [
        "LOCAL_RANK",
        "RANK",
        "ROLE_RANK",
        "NODE_RANK",
        "LOCAL_WORLD_SIZE",
        "WORLD_SIZE",
        "ROLE_WORLD_SIZE",
        "WMLA_NWORKER",
        "MASTER_PORT",
        "PET_RDZV_ENDPOINT",
        "TORCHELASTIC_RESTART_COUNT",
        "TORCHELASTIC_ERROR_FILE",
        "LOG_DIR",
        "CUDA_VISIBLE_DEVICES",
        "PL_TRAINER_DEVICES",
        "ACCELERATE_USE_CPU",
    ]
)


@dataclass
class WorkerProcess:
    """`handle` is its pidfd; `status` its exit status once it has ended, `error` what it had written of an error by then, and when.
    `killed_late`: the signal that killed it when its script had come to its end already, which is no failure: `status` is 0 then."""

    rank: int
    slot: SlotRef
    pid: int
    handle: int
    ticks: int
    error_file: Path
    log_file: Path
    log_from: int  # bytes that earlier ones have left in it
    status: int | None = None
    error: tuple[int, str] | None = None
    killed_late: int = 0

    def held(self) -> Worker:
        return Worker(self.slot.id, self.pid, self.ticks)

    def look(self) -> bool:
        """Whether it has ended since it was last looked at. What it has forked (loaders of data, say) goes with it."""
        if self.status is not None or not process_handles.has_ended(self.handle):
            return False
        self.signal(signal.SIGKILL)  # not reaped yet, so the group is still its own
        self.status = self.wait()
        os.close(self.handle)
        self._take_error()
        self._take_end()
        return True

    def wait(self) -> int:
        """Its exit status, which is there once."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def _take_error(self) -> None:
        """Read and removed: it may quote what the journal hides."""
        with contextlib.suppress(OSError):
            self.error = (self.error_file.stat().st_mtime_ns, self.error_file.read_text(errors="replace"))
        with contextlib.suppress(OSError):
            self.error_file.unlink()

    def _take_end(self) -> None:
        ended = end_file(self.error_file)
        if self.status is not None and self.status < 0 and ended.exists():
            self.killed_late, self.status = -self.status, 0
        with contextlib.suppress(OSError):
            ended.unlink()

    def signal(self, number: int) -> None:
        """To all of its process group."""
        if self.status is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    def tell_to_end(self) -> None:
        """SIGTERM to itself: who handles it may still need the processes that it has started."""
        if self.status is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.handle, signal.SIGTERM)

    def failure(self) -> Failure:
        """What it has failed of."""
        assert self.status is not None
        who = f"worker {self.rank} (slot {self.slot.id})"
        try:
            told = json.loads(self.error[1] if self.error is not None else "")["message"]
            message, stack = str(told["message"])[:_SHOWN], str(told["extraInfo"]["py_callstack"])
        except (ValueError, KeyError, TypeError, RecursionError):  # it was killed, or left by sys.exit; or it wrote what it liked
            cause, stack = cause_printed(self._printed()) if -self.status in CRASHES else ("", "")
            return Failure(f"{ended_how(self.status, who)}{': ' * bool(cause)}{cause}", stack, self.status)
        return Failure(f"{who} failed: {message}", stack, self.status)

    def _printed(self) -> str:
        """The end of what it has printed."""
        with contextlib.suppress(OSError), self.log_file.open("rb") as file:
            file.seek(max(self.log_from, self.log_file.stat().st_size - PRINTED_BYTES))
            return file.read(PRINTED_BYTES).decode(errors="replace")
        return ""

    def failed_ns(self) -> int:
        """Orders failures: who was killed before who raised an error, and those by when it was written down."""
        assert self.status is not None
        if self.status < 0:
            return 0
        return self.error[0] if self.error is not None else sys.maxsize


@dataclass(frozen=True)
class Failure:
    message: str
    traceback: str
    status: int

    @property
    def lacks_room(self) -> bool:
        return self.status == storage.EXIT_CODE


@dataclass(frozen=True)
class Group:
    """The workers of one start, by rank. `store` lives as long as they do. `begun`: a pipe that ends when each of them has begun with the
    script, or is gone."""

    workers: tuple[WorkerProcess, ...]
    store: TCPStore
    begun: int

    @property
    def slots(self) -> tuple[int, ...]:
        return tuple(worker.slot.id for worker in self.workers)

    def alive(self) -> list[WorkerProcess]:
        return [worker for worker in self.workers if worker.status is None]

    def ended(self) -> dict[int, int]:
        return {worker.rank: worker.status for worker in self.workers if worker.status is not None}


def start(forks: ForkServer, spec: RunSpec, slots: tuple[SlotRef, ...], *, number: int, restarts: int, tells: int = -1) -> Group:
    """One worker a slot. `number`: of this start; `restarts`: after failures; `tells`: where the first one tells what it imports. Raises
    OSError where one cannot be forked."""
    with socket.create_server((ADDRESS, 0)) as server:
        port = server.getsockname()[1]
        # The store closes the descriptor that it is given.
        store = TCPStore(ADDRESS, port, None, is_master=True, wait_for_workers=False, master_listen_fd=os.dup(server.fileno()))
    workers: list[WorkerProcess] = []
    begun, begins = os.pipe()
    try:
        for rank, slot in enumerate(slots):
            folder = Path(spec.result_dir, "log", f"worker-{slot.id}")
            error_file = Path(spec.result_dir, "tmp", f"error-{number}-{rank}.json")
            for each in (folder, error_file.parent):
                each.mkdir(parents=True, exist_ok=True)
            for each in (error_file, end_file(error_file)):
                each.unlink(missing_ok=True)
            own = variables(spec, slots, rank=rank, port=port, restarts=restarts) | {ERROR_FILE: str(error_file)}
            own |= {"LOG_DIR": str(folder)} if rank else {}  # what the first one logs is the run's; the others' is kept beside it
            log_file = folder / "console.log"
            workers.append(_start(forks, spec, slot, rank, own, log_file, error_file, begins, tells if not rank else -1))
    except BaseException:
        for worker in workers:
            worker.signal(signal.SIGKILL)
            worker.wait()
        os.close(begun)
        raise
    finally:
        os.close(begins)
    return Group(tuple(workers), store, begun)


def _start(
    forks: ForkServer,
    spec: RunSpec,
    slot: SlotRef,
    rank: int,
    own: Mapping[str, str],
    log_file: Path,
    error_file: Path,
    begins: int,
    tells: int,
) -> WorkerProcess:
    log = console.open_log(log_file, mode=0o644)
    log_from = os.fstat(log).st_size
    try:
        pid = forks.fork(work(spec, own), log, begins, tells)
    finally:
        os.close(log)
    return WorkerProcess(rank, slot, pid, os.pidfd_open(pid), process_handles.start_ticks(pid), error_file, log_file, log_from)


def work(spec: RunSpec, own: Mapping[str, str]) -> Work:
    return Work(os.getpid(), spec.argv, spec.code_dir, {**os.environ, **own}, spec.module)


def variables(spec: RunSpec, slots: tuple[SlotRef, ...], *, rank: int, port: int, restarts: int) -> dict[str, str]:
    """What torchrun sets for a worker on one machine, and WMLA, where a worker is a process with one device. LOCAL_RANK is the place of its
    GPU among those that all of them see."""
    number, run_id = str(rank), f"{spec.name}-{spec.run}"
    count = str(len(slots))
    return {
        "LOCAL_RANK": number,
        "RANK": number,
        "GROUP_RANK": "0",
        "ROLE_RANK": number,
        "ROLE_NAME": "default",
        "LOCAL_WORLD_SIZE": count,
        "WORLD_SIZE": count,
        "GROUP_WORLD_SIZE": "1",
        "ROLE_WORLD_SIZE": count,
        "NODE_RANK": number,
        "WMLA_NWORKER": count,
        "WMLA_WORKER_NDEVICE": "1",
        "MASTER_ADDR": ADDRESS,
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RESTART_COUNT": str(restarts),
        "TORCHELASTIC_MAX_RESTARTS": str(spec.max_restarts),
        "TORCHELASTIC_RUN_ID": run_id,
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": os.environ.get("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
        "GLOO_SOCKET_IFNAME": os.environ.get("GLOO_SOCKET_IFNAME", "lo"),
        "PET_RDZV_ID": run_id,
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ENDPOINT": f"{ADDRESS}:{port}",
        "OMP_NUM_THREADS": os.environ.get("EDT_THREADS_PER_SLOT") or os.environ.get("OMP_NUM_THREADS") or "1",
        "CUDA_VISIBLE_DEVICES": ",".join(gpus(slots)),
        **({} if gpus(slots) else _on_processors(count)),
    }


def _on_processors(count: str) -> dict[str, str]:
    """What makes trainers use all workers where there is no GPU; else each of them trains alone, all of it. For Accelerate and Transformers
    it is what `accelerate launch --cpu` sets; Lightning takes one process for a machine's processors where a script does not say more."""
    usual = {"ACCELERATE_USE_CPU": "true", "PL_TRAINER_DEVICES": count}
    return {name: os.environ.get(name, value) for name, value in usual.items()}


def gpus(slots: Iterable[SlotRef]) -> list[str]:
    """Their GPUs as CUDA_VISIBLE_DEVICES names them, by rank; each once, since CUDA takes none twice."""
    return list(dict.fromkeys(gpu_name(slot.index) for slot in slots if slot.device == "gpu"))


def by_cause(failed: Iterable[WorkerProcess]) -> list[WorkerProcess]:
    """The first failure first: the others often follow from it."""
    return sorted(failed, key=WorkerProcess.failed_ns)
