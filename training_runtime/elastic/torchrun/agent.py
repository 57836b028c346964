"""The driver of a run whose script is one for torch.distributed: starts its workers, hears of slots from the host and of ends from the
kernel, does what `decide` says, and writes it into the journal. It waits on descriptors and deadlines only.

The law on slots: the processes of each start are told to the host before anything else is heard from it, and a slot is free when the host
has seen the end of its process.
"""

from __future__ import annotations

import math
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from training_runtime import journal, journal_writer, storage
from training_runtime.crashes import ended_how
from training_runtime.elastic.driver import imported_modules
from training_runtime.elastic.driver.host_link import HostLink
from training_runtime.elastic.processes import process_handles
from training_runtime.elastic.script_logs.logged import LOOK_S
from training_runtime.elastic.torchrun import workers
from training_runtime.elastic.torchrun.decide import End, Facts, Finish, Kill, Start, Suspend, Wait, decide
from training_runtime.elastic.torchrun.fork_server import ForkServer
from training_runtime.elastic.torchrun.workers import Failure, Group, WorkerProcess
from training_runtime.errors import NoRoom
from training_runtime.protocol import Members, RunSpec

MOST_CHANGES = 100  # that are remembered
GRACE_S = 8.0  # from SIGTERM to SIGKILL; the host waits 10 s before it ends a driver that was asked to stop
SHARED_GPU = "Slots of this run share a GPU, and torch.distributed needs one for each worker: give the run fewer slots."
LONGEST_GRACE_S = 300.0
GRACE = "EDT_WORKER_GRACE_S"
GROW_AFTER_S = 30.0
LONGEST_GROW_AFTER_S = 1800.0
GROW_AFTER = "EDT_GROW_AFTER_S"
SETTLED_S = 5.0  # without an import


class Look(Protocol):
    def __call__(self, *, all_of_it: bool = False) -> None: ...


class Agent:
    """`outcome` is there after `run`. `look`: called every so often, for figures that the script logs; `step`: the last one of those."""

    def __init__(
        self, spec: RunSpec, forks: ForkServer, link: HostLink, writer: journal_writer.Writer, look: Look, step: Callable[[], int]
    ) -> None:
        self._forks = forks
        self._spec, self._link, self._writer, self._look, self._step = spec, link, writer, look, step
        self._grace_s = _seconds(GRACE, GRACE_S, most=LONGEST_GRACE_S)
        self._grow_after_s = _seconds(GROW_AFTER, GROW_AFTER_S, most=LONGEST_GROW_AFTER_S)
        self._began_at = 0.0
        self._changes: tuple[float, ...] = ()
        self.outcome = ""
        self._heard: Members | None = None
        self._heard_at = 0.0
        self._group: Group | None = None
        self._failures: dict[int, Failure] = {}  # of this group, by rank, the cause first
        self._ending: End | None = None
        self._ending_at = 0.0
        self._killed = self._suspended = False
        self._restarts = 0
        self._number = generations(Path(spec.result_dir, journal.FILE_NAME))
        self._workers_before = 0
        self._starting: tuple[str, float] | None = None  # what is to be told of this start: its reason, and since when nothing was done
        self._tells: int | None = os.memfd_create("edt-imports")  # what the first worker imports, until that is imported ahead
        self._told = 0, 0.0  # how much it was, and since when
        self._lost_since = 0.0  # when the last workers were told to end, or the first of them failed

    def run(self) -> int:
        """Until the run is over: the driver's exit code."""
        while not self.outcome:
            self._link.poll()
            self._note()
            action = decide(self._facts(), now=time.monotonic(), grace_s=self._grace_s, grow_after_s=self._grow_after_s)
            if isinstance(action, Wait):
                self._wait(action.until)
            elif (code := self._act(action)) is not None:
                return code
        return 0 if self.outcome in ("completed", "stopped") else 1

    def _facts(self) -> Facts:
        slots = self._heard.slots if self._heard is not None else ()
        stop, group = self._link.stop, self._group
        return Facts(
            granted=tuple(slot.id for slot in slots),
            granted_at=self._heard_at,
            reason=stop.reason if stop is not None else self._heard.reason if self._heard is not None else "",
            size=self._spec.max_slots if self._spec.torchrun == "fixed" else None,
            group=group.slots if group is not None else (),
            ended=group.ended() if group is not None else {},
            failed={rank: failure.message for rank, failure in self._failures.items()},
            ending=self._ending.why if self._ending is not None else None,
            ending_at=self._ending_at,
            killed=self._killed,
            restarts=self._restarts,
            max_restarts=self._spec.max_restarts,
            stop=stop is not None,
            began_at=self._began_at,
            changes=self._changes,
        )

    def _note(self) -> None:
        """What has come from the host, and which workers have ended."""
        wanted = self._link.wanted
        if wanted is not None and wanted is not self._heard:
            if self._heard is None or wanted.slots != self._heard.slots:
                self._heard_at = time.monotonic()
            self._heard = wanted
        if self._group is None:
            return
        ended = [worker for worker in self._group.workers if worker.look()]
        process_handles.reap_others({worker.pid for worker in self._group.alive()})
        if ended:
            self._hold()
        for worker in ended:
            if worker.killed_late:
                how = ended_how(-worker.killed_late, f"worker {worker.rank} (slot {worker.slot.id})")
                self._say(f"{how}, after its script had come to its end: that counts as done")
        if any(self._has_failed(worker) for worker in ended):
            self._lost_since = self._lost_since or time.monotonic()
            failed = [
                worker for worker in self._group.workers if worker.rank in self._failures or (worker in ended and self._has_failed(worker))
            ]
            self._failures = {worker.rank: worker.failure() for worker in workers.by_cause(failed)}

    def _has_failed(self, worker: WorkerProcess) -> bool:
        """By itself, and not since it was told to end. Of several, the one that is the cause need not be the first to be gone."""
        if self._ending is None:
            return bool(worker.status)
        return self._ending.why == "failure" and worker.status is not None and worker.status > 0

    def _hold(self) -> None:
        alive = self._group.alive() if self._group is not None else []
        self._link.hold(tuple(worker.held() for worker in alive), forking=False)

    def _wait(self, until: float | None) -> None:
        poll = select.poll()
        handles = [worker.handle for worker in self._group.alive()] if self._group is not None else []
        begun = self._group.begun if self._group is not None and self._starting is not None else -1
        for fd in (*handles, *self._link.readable(), *([begun] if begun >= 0 else [])):
            poll.register(fd, select.POLLIN)
        left_s = LOOK_S if handles else None  # figures are looked for while there may be any
        if until is not None:
            due_s = max(0.0, until - time.monotonic())
            left_s = due_s if left_s is None else min(left_s, due_s)
        if any(fd == begun for fd, _ in poll.poll(None if left_s is None else 1000 * left_s)):
            self._tell_start()
        self._look()
        self._import_ahead()

    def _act(self, action: Start | End | Kill | Suspend | Finish) -> int | None:
        """The driver's exit code where it cannot go on."""
        if isinstance(action, Start):
            return self._start(action)
        if isinstance(action, End):
            self._tell_start()
            self._ending, self._ending_at = action, time.monotonic()
            self._lost_since = self._lost_since or self._ending_at
            if action.why == "slots":
                self._changes = (*self._changes[-MOST_CHANGES:], self._ending_at)
            self._say(f"the workers are told to end: {action.reason}")
            for worker in self._alive():
                worker.tell_to_end()
        elif isinstance(action, Kill):
            self._killed = True
            self._say(f"the workers did not end within {self._grace_s:g} s and are killed")
            for worker in self._alive():
                worker.signal(signal.SIGKILL)
        elif isinstance(action, Suspend):
            self._forget_group()
            self._suspended = True
            self._write(journal.Suspended(self._step(), 0, action.reason))
        else:
            return self._finish(action)
        return None

    def _start(self, action: Start) -> int | None:
        if (code := self._no_room()) is not None:
            return code
        by_id = {slot.id: slot for slot in self._heard.slots} if self._heard is not None else {}
        slots = tuple(by_id[slot] for slot in action.slots)
        lost_since = self._lost_since
        self._forget_group()
        if said := self._forks.settle():
            self._say(said)
        self._number += 1
        self._restarts = action.restarts
        if self._suspended:
            self._write(journal.Resumed(self._step(), 0, action.reason))
        try:
            tells = -1 if self._tells is None else self._tells
            self._group = workers.start(self._forks, self._spec, slots, number=self._number, restarts=self._restarts, tells=tells)
        except OSError as error:
            if error.errno in storage.UNAVAILABLE:
                self._say(f"{error}. {NoRoom()}")
                return storage.EXIT_CODE
            self._write(journal.Failed(f"the workers could not be started: {error}", "", "driver"))
            self.outcome = "failed"
            return None
        self._hold()
        self._began_at = time.monotonic()
        self._starting = action.reason, 0.0 if self._suspended else lost_since
        self._suspended = False
        self._say(f"{len(slots)} worker{'s' * (len(slots) != 1)}: {action.reason}")
        return None

    def _import_ahead(self) -> None:
        """Once in a run: what its first worker has imported, when that has been all for a while."""
        if self._tells is None or self._ending is not None:
            return
        size, now = os.fstat(self._tells).st_size, time.monotonic()
        if size != self._told[0]:
            self._told = size, now
        elif size and now > self._told[1] + SETTLED_S:
            imported = imported_modules.read(self._tells)
            os.close(self._tells)
            self._tells = None
            if imported is not None and imported.modules:
                self._forks.import_ahead(workers.work(self._spec, {}), imported, workers.VARYING)

    def _tell_start(self) -> None:
        """Once: when all have begun with the script, or it is over before that."""
        if self._starting is None or self._group is None:
            return
        (reason, lost_since), self._starting = self._starting, None
        pause_s = time.monotonic() - lost_since if lost_since else 0.0
        members = tuple(journal.Member(worker.rank, worker.slot.id, worker.pid) for worker in self._group.workers)
        before, self._workers_before = self._workers_before, len(members)
        self._write(journal.Generation(self._number, self._step(), 0, members, before, reason, 1000 * pause_s, 0))
        slots = [worker.slot for worker in self._group.workers]
        if len(workers.gpus(slots)) < sum(slot.device == "gpu" for slot in slots):
            self._write(journal.Warned(SHARED_GPU))

    def _no_room(self) -> int | None:
        """A worker has failed since the disk is full: the host starts the run again when there is room."""
        if not any(failure.lacks_room for failure in self._failures.values()):
            return None
        self._write(journal.Warned(f"The script had no room on the disk. {NoRoom()}"))
        return storage.EXIT_CODE

    def _finish(self, action: Finish) -> int | None:
        self._tell_start()
        if action.outcome == "failed":
            if (code := self._no_room()) is not None:
                return code
            rank, failure = next(iter(self._failures.items()))
            assert self._group is not None
            said = f" (started again {self._restarts} time{'s' * (self._restarts != 1)} before)" if self._restarts else ""
            where = f"worker on slot {self._group.workers[rank].slot.id}"
            self._write(journal.Failed(f"{failure.message}{said}", failure.traceback, where))
        self.outcome = action.outcome
        return None

    def _alive(self) -> list[WorkerProcess]:
        return self._group.alive() if self._group is not None else []

    def _forget_group(self) -> None:
        """All have ended, and what follows is settled. Their store goes with them."""
        self._tell_start()
        self._look(all_of_it=True)
        if self._group is not None:
            os.close(self._group.begun)
        self._group, self._ending, self._killed, self._lost_since = None, None, False, 0.0
        self._failures = {}

    def _write(self, event: journal.Event) -> None:
        self._writer.write(event)
        with suppress(OSError):  # a full disk: the writer keeps it
            self._link.grown(self._writer.flush())

    def _say(self, text: str) -> None:
        print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr)  # noqa: T201 - the driver's log


def _seconds(variable: str, usual: float, *, most: float) -> float:
    """As a person has said it in the environment, within limits; what is no number counts as not said."""
    try:
        said = float(os.environ.get(variable, ""))
    except ValueError:
        return usual
    return min(max(said, 0.0), most) if math.isfinite(said) else usual


def generations(path: Path) -> int:
    """The number of the last start in the journal, of an earlier attempt."""
    return max((line.event.generation for line in journal.follow(path) if isinstance(line.event, journal.Generation)), default=0)
