"""Detects hung processes of a run: reads heartbeats from the segment and states from /proc, and applies `hang_rules`. It kills nobody.

Members are judged together, by who waits for whom. Each other process has a time limit of its own: newcomers that start, members that are
leaving, workers of a finished training, and the fork server. A process stopped by a signal is found before others wait for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from training_runtime.elastic.comm.segment import BEAT, COMMITTED, EXCUSED, LOCAL_PHASE, PHASE, WAITS, Segment
from training_runtime.elastic.driver import hang_rules
from training_runtime.elastic.driver.worker_process import WorkerProcess
from training_runtime.elastic.processes.process_handles import is_stopped

FORK_SERVER = -1
_LONGEST_LOOK_S = 1.0
_MOST_TIMES, _DOUBLED_S = 16.0, 3600.0


@dataclass(frozen=True)
class HungProcess:
    """A process that hangs: its worker id, or FORK_SERVER; `allowed_s` is how long it was given."""

    worker_id: int
    allowed_s: float

    def message(self, slot: int) -> str:
        return f"the worker on slot {slot} showed no progress for {self.allowed_s:.3g} s and was ended (EDT_HANG_TIMEOUT sets the time)"


class HangDetector:
    """`setting`: a fixed deadline in seconds, instead of one derived from the length of steps. The derived one is doubled for an hour each
    time it ends a worker, so that work that is slow but healthy is not ended again and again."""

    def __init__(self, setting: float | None) -> None:
        self._setting = setting
        self._members, self._others = hang_rules.BarrierWatchdog(), hang_rules.TimeoutWatchdog()
        self._clock, self._looked = 0.0, float("-inf")
        self._times, self._doubled = 1.0, 0.0

    def look(
        self,
        now: float,
        segment: Segment,
        workers: Collection[WorkerProcess],
        *,
        members: Iterable[int],
        durations: list[float],
        done: bool,
    ) -> tuple[HungProcess, ...]:
        """The processes among `workers` that hang. `members`: worker ids that meet at barriers; `durations`: of the last steps, in
        seconds."""
        now = self._watched(now)
        limit_s = self._limit_s(durations, now)
        together = () if done else tuple(s for s in workers if s.worker_id in members)
        signs = {s.worker_id: _sign(segment, s) for s in together}
        alone = {s.worker_id: _timeout_of(segment, s, limit_s, meets=s.worker_id in signs, done=done) for s in workers}
        found = {worker_id: alone[worker_id][1] for worker_id in self._others.expired(now, alone)}
        hung = self._members.hung(now, signs, limit_s)
        if self._setting is None and hung and not found:
            self._times, self._doubled = min(2 * self._times, _MOST_TIMES), now
        found = dict.fromkeys(hung, limit_s) | found
        return tuple(
            HungProcess(worker_id, allowed_s) for worker_id, allowed_s in found.items() if segment.get(worker_id, EXCUSED) != WAITS
        )

    def _watched(self, now: float) -> float:
        """Seconds for which the driver itself was running: while it was stopped, workers may have waited for it."""
        self._clock, self._looked = self._clock + min(max(0.0, now - self._looked), _LONGEST_LOOK_S), now
        return self._clock

    def _limit_s(self, durations: list[float], now: float) -> float:
        if now > self._doubled + _DOUBLED_S:
            self._times = 1.0
        return self._times * hang_rules.deadline_s(durations, self._setting)

    def fork_server(self, now: float, pid: int, durations: list[float]) -> bool:
        """Whether the fork server was stopped for too long. While it runs it is never judged: it may be in the user's datasets function."""
        stopped = is_stopped(pid)
        allowed_s = min(hang_rules.deadline_s(durations, self._setting), hang_rules.STOPPED_S) if stopped else float("inf")
        return bool(self._others.expired(now, {FORK_SERVER: (f"{pid} {stopped}", allowed_s)}))


def _sign(segment: Segment, worker: WorkerProcess) -> hang_rules.Sign:
    worker_id = worker.worker_id
    phase = segment.get(worker_id, PHASE)
    return hang_rules.Sign(
        2 * phase + (segment.get(worker_id, LOCAL_PHASE) == phase),  # a machine's own barrier lies between two of all
        segment.get(worker_id, COMMITTED),
        bool(segment.get(worker_id, EXCUSED)),
        segment.get(worker_id, BEAT),
    )


def _timeout_of(segment: Segment, worker: WorkerProcess, limit_s: float, *, meets: bool, done: bool) -> tuple[str, float]:
    """What a worker shows by itself, and how long it may go on showing it. One that others meet at barriers is judged by that."""
    stopped = not worker.machine and is_stopped(worker.pid)
    if stopped:
        allowed_s = min(limit_s, hang_rules.STOPPED_S)
    elif meets or worker.state == "ready":  # the latter waits to be taken in, and counts itself how long
        allowed_s = float("inf")
    else:
        allowed_s = hang_rules.excused_s(limit_s) if worker.state == "starting" or segment.get(worker.worker_id, EXCUSED) else limit_s
    return f"{worker.state} {worker.pid} {stopped} {done} {segment.get(worker.worker_id, BEAT)}", allowed_s
