"""A run as the node host has it in memory: facts, and the questions that can be asked of them. It acts on nothing (see `drivers`)."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from training_runtime.crashes import ended_how
from training_runtime.host.processes import Traces
from training_runtime.host.reconcile import LATER_THAN_THE_DRIVER, Phase, SeenRun, at_work_since
from training_runtime.host.sockets import LineSocket
from training_runtime.host.state import SavedRun, SentMembers
from training_runtime.imported import Imported
from training_runtime.meeting import Meeting, Meets
from training_runtime.protocol import DriverState, RunObservation, RunSpec, SlotRef, SlotSeen, Worker
from training_runtime.unknown_messages import LeftOut


@dataclass(eq=False)
class LiveRun:
    """`spec` is None for a run that an earlier host has started, until the studio speaks of it. `pid` is 0 before the child has said who it
    is.

    `told`: the Members messages that the driver may not have acted on yet. `workers`: the processes that it has reported and that are not
    proven gone, with the pidfd that will tell. `journal_start`: size of the journal when this attempt began. `retry_at`: when to fork or to
    connect again after it failed. `slots`: every slot that this attempt was ever told of. `busy_s`, `counted_s`: see
    `protocol.RunObservation`. `measured`: by slot, of the workers that are there, when last looked at. `crowding`: by GPU, see
    `gpu_memory`, when a worker was last on it. `stopped_at`: since when the driver is known to be stopped by a signal. `unreachable_at`:
    since when nobody listens on the driver's socket. `fenced`: its machine was declared lost, so it is killed. `found`: among the
    processes, with nothing written down about it. `remote`: it is the run's remote agent here, see `protocol.RunSpec`; it writes no
    journal. `began_at`, `ended_at`: seconds of the monotonic clock, as far as this host was there. `asked_back`: slots that it was told
    without while it held them, since when; `evicted_at`: when something was killed for one. `wrote_at`: when its engine was last seen
    writing state, `written`: what was seen of that. `folder`: which folder `result_dir` was when the attempt began; `folder_lost`: it is
    another now, or none. `over_limit`: why it has to end, for people, as it takes too much of the disk. `meeting`, `suspended`: what it was
    told with `members`; `met`: how a driver says that remote agents reach it. `got_on`: when it ended, this attempt had trained. `spare`:
    the control group of the spare process that it was given, empty where it was forked; `imported`: what it said that it has imported,
    until that is noted. `left_out`: kinds of its messages that are not known here.
    """

    run: int
    attempt: int
    result_dir: str
    restarts: int = 0
    spec: RunSpec | None = None
    uid: int | None = None
    phase: Phase = "launching"
    pid: int = 0
    start_ticks: int = 0
    driver_handle: int | None = None
    shim: int = 0
    shim_ticks: int = 0
    shim_handle: int | None = None
    socket_token: str = ""
    gate: LineSocket | None = None
    link: LineSocket | None = None
    retry_at: float | None = None
    link_failures: int = 0
    launch_failures: int = 0
    members: tuple[SlotRef, ...] | None = None
    told: list[SentMembers] = field(default_factory=list)
    workers: dict[Worker, int] = field(default_factory=dict)
    slots: dict[int, SlotRef] = field(default_factory=dict)
    busy_s: float | None = 0.0
    counted_s: float = 0.0
    measured: dict[int, SlotSeen] = field(default_factory=dict)
    crowding: dict[int, str] = field(default_factory=dict)
    journal_start: int = 0
    journal_bytes: int = 0
    stop_asked_at: float | None = None
    terminated_at: float | None = None
    killed_at: float | None = None
    first_killed_at: float | None = None
    driver_gone_at: float | None = None
    stopped_at: float | None = None
    unreachable_at: float | None = None
    looked_at: float = 0.0
    exit_code: int | None = None
    interrupted: bool = False
    fenced: bool = False
    found: bool = False
    reason: str = ""
    problem: str = ""
    stuck: tuple[int, ...] = ()
    remote: bool = False
    losses: int = 0
    began_at: float = 0.0
    ended_at: float = 0.0
    asked_back: dict[int, float] = field(default_factory=dict)
    evicted_at: float | None = None
    left_out: LeftOut | None = None
    wrote_at: float = 0.0
    written: tuple[str, int] = ("", 0)
    folder: tuple[int, int] | None = None
    folder_lost: bool = False
    over_limit: str = ""
    got_on: bool = False
    meeting: Meeting | None = None
    suspended: bool = False
    met: Meets | None = None
    spare: str = ""
    imported: Imported | None = None

    @property
    def group(self) -> str:
        """The name of its control group; a remote agent has its run's attempt, and never a driver beside it."""
        return self.spare or f"run-{self.run}.{self.attempt}"

    def traces(self) -> Traces:
        return Traces(self.shim, self.shim_ticks, self.pid, self.result_dir, self.start_ticks)

    def holding(self) -> tuple[int, ...]:
        return holding(self.phase, [(t.revision, t.slots) for t in self.told], [w.slot for w in self.workers])

    def gpus(self) -> frozenset[int]:
        """The numbers of those on which a process of the run may be, or come to be."""
        held = (self.slots[slot] for slot in self.holding() if slot in self.slots)
        return frozenset(slot.index for slot in held if slot.device == "gpu")

    def seen(self) -> SeenRun:
        return SeenRun(
            run=self.run,
            attempt=self.attempt,
            phase=self.phase,
            members=self.members,
            holding=self.holding(),
            stop_asked_at=self.stop_asked_at,
            terminated_at=self.terminated_at,
            killed_at=self.killed_at,
            exit_code=self.exit_code,
            restarts=self.restarts,
            interrupted=self.interrupted,
            connected=self.link is not None,
            orphaned_at=self.driver_gone_at if self.workers else None,
            stopped_at=self.stopped_at,
            unreachable_at=self.unreachable_at,
            remote=self.remote,
            losses=self.losses,
            fenced=self.fenced,
            ended_at=self.ended_at,
            lived_s=max(0.0, self.ended_at - self.began_at) if self.began_at else 0.0,
            overdue_since=self._overdue_since(),
            release_grace_s=LATER_THAN_THE_DRIVER * self.spec.release_grace_s if self.spec is not None else None,
            evicted_at=self.evicted_at,
            wrote_at=self.wrote_at,
            doomed="its folder was moved or deleted" if self.folder_lost else "it takes too much of the disk" if self.over_limit else "",
            got_on=self.got_on,
            in_driver=any(worker.pid == self.pid for worker in self.workers),
            meeting=self.meeting,
            suspended=self.suspended,
        )

    def has_own_folder(self) -> bool:
        """Whether no other machine writes into its folder; a remote agent has its driver's, unless they met in another way."""
        return not self.remote or (self.spec is not None and self.spec.meeting is not None)

    def overdue(self) -> dict[int, float]:
        """Slots that were asked back and are still in use, since when."""
        held = self.holding() if self.asked_back else ()
        return {slot: since for slot, since in self.asked_back.items() if slot in held}

    def _overdue_since(self) -> float | None:
        """A large state takes a while to write: that is no refusal."""
        since = min(self.overdue().values(), default=None)
        return None if since is None else at_work_since(since, self.wrote_at)

    def observation(self, *, goes_on: bool = False, measured: bool = True, abandoned: bool = False) -> RunObservation:
        """`goes_on`: it has ended, but a next attempt comes by itself (`reconcile.goes_on`). `abandoned`: it is a remote agent, and none
        will come. `measured`: with what each slot did."""
        return RunObservation(
            run=self.run,
            attempt=self.attempt,
            state="starting" if goes_on else self._state(),
            holding=self.holding(),
            journal_bytes=self.journal_bytes,
            exit_code=self.exit_code if self.phase == "ended" and not goes_on else None,
            detail=self._next_attempt() if goes_on else self._detail(),
            busy_s=self.busy_s,
            counted_s=self.counted_s,
            slots=tuple(self.measured[slot] for slot in sorted(self.measured)) if measured else None,
            remote=self.remote,
            abandoned=abandoned,
            meeting=self._met(),
            crowding=" ".join(filter(None, self.crowding.values())) if self.phase == "ended" and self.exit_code else "",
        )

    def _met(self) -> Meeting | None:
        """Of a driver whose box has an address."""
        if self.met is None or self.remote or not self.spec or not self.spec.address or self.phase != "alive":
            return None
        return Meeting(self.spec.address, self.met.port, self.met.token)

    def _state(self) -> DriverState:
        if self.phase == "ended":
            return "exited"
        if self.phase == "clearing" or self.stop_asked_at is not None or self.killed_at is not None:
            return "stopping"
        return "running" if self.phase == "alive" else "starting"

    def _detail(self) -> str:
        if self.stuck:
            return "stuck: pid " + ", ".join(map(str, self.stuck)) + " cannot be killed (waiting for a device or a file system)"
        if self.problem:
            return self.problem
        return ended_how(self.exit_code, self._who()) if self.phase == "ended" and self.exit_code is not None else self.reason

    def _who(self) -> str:
        return "remote agent" if self.remote else "driver"

    def _next_attempt(self) -> str:
        return f"{self._detail()}; it is started again" if self.remote else "interrupted; it goes on with the next attempt"

    def saved(self) -> SavedRun:
        return SavedRun(
            run=self.run,
            attempt=self.attempt,
            restarts=self.restarts,
            phase=self.phase,
            pid=self.pid,
            start_ticks=self.start_ticks,
            shim=self.shim,
            shim_ticks=self.shim_ticks,
            socket_token=self.socket_token,
            uid=self.uid,
            result_dir=self.result_dir,
            journal_start=self.journal_start,
            told=tuple(self.told),
            workers=tuple(self.workers),
            exit_code=self.exit_code,
            interrupted=self.interrupted,
            stop_asked=self.stop_asked_at is not None,
            detail=self.problem,
            busy_s=self.busy_s,
            counted_s=self.counted_s,
            remote=self.remote,
            losses=self.losses,
            spare=self.spare,
            gpus=tuple(slot for slot in self.slots.values() if slot.device == "gpu"),
        )


def holding(phase: Phase, told: Iterable[tuple[int, tuple[int, ...]]], workers: Iterable[int]) -> tuple[int, ...]:
    """The slots that a process of the run may still use.

    `told`: (revision, slot ids) of every Members message that the driver has not yet gone beyond: it may start a worker on any of them at
    any moment. `workers`: the slots of processes that it has reported and that are not proven gone, whatever it says about them since.
    """
    if phase in ("launching", "ended"):
        return ()
    return tuple(sorted({slot for _, slots in told for slot in slots} | set(workers)))


def folder_of(result_dir: str) -> tuple[int, int] | None:
    """Which folder this is; None where it is not there, though the one it should be in is. Raises OSError where nobody can tell."""
    path = Path(result_dir)
    try:
        found = path.stat()
    except FileNotFoundError:
        path.parent.stat()
        return None
    return found.st_dev, found.st_ino


def being_written(result_dir: str) -> tuple[str, int]:
    """The state that a run's engine is writing now, and how far it is (see `elastic.state.durable.write`); ("", 0): none."""
    try:
        found = [(entry.name, entry.stat(follow_symlinks=False)) for entry in os.scandir(Path(result_dir, "checkpoint"))]
    except OSError:
        return "", 0
    return max(((name, each.st_size) for name, each in found if name.startswith(".engine.pt.")), default=("", 0))
