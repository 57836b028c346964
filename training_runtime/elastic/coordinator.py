"""The driver's watch over one train(): it starts and ends workers, publishes generations, and records what they report. It computes
nothing.

One loop, one thread. Events come from the host link, from the reports of template and workers, and from the ring of finished steps; after
each round `membership.decide` says what to do. Only a worker that the template has reaped counts as gone: until then its slot is held.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import select
import signal
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from training_runtime import journal, protocol
from training_runtime.elastic import checkpoint, membership, reports, template, worker
from training_runtime.elastic.arena import (
    COMMITTED,
    RING,
    RING_GENERATION,
    RING_READ,
    RING_WRITTEN,
    STATE,
    STATE_LEFT,
    Arena,
    GenerationRecord,
)
from training_runtime.elastic.hostlink import HostLink
from training_runtime.elastic.job import Job
from training_runtime.elastic.recorder import Recorder
from training_runtime.elastic.seat import Place
from training_runtime.errors import RuntimeFailure
from training_runtime.protocol import SlotRef

FATAL_SIGNALS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE, signal.SIGILL, signal.SIGSYS}
CRASHES_AT_ONE_STEP = 3  # crashes by a fatal signal before the same unit that fail the run: it would crash for ever
DEATHS_OF_A_SLOT = 20  # deaths on one slot after which it is not used again by this run
Outcome = Literal["completed", "stopped"]


class TrainingFailed(RuntimeFailure):
    """The training cannot go on; the journal has the traceback."""


@dataclass
class Seated:
    """A worker process as the driver knows it."""

    seat: int
    slot: SlotRef
    state: membership.State
    pid: int = 0
    ticks: int = 0
    dead: bool = False
    gone: bool = False


class Coordinator:
    """One call of train(). `link` is None without the studio: then `slots` are used from start to end."""

    def __init__(self, job: Job, recorder: Recorder, *, attempt: int, link: HostLink | None, slots: tuple[SlotRef, ...]) -> None:
        self.job, self.recorder, self.attempt, self.link = job, recorder, attempt, link
        self.wanted, self.reason = slots, "started"
        self.revision = -1
        self.stopping = ""
        self.wake_fd = -1
        self.seats: dict[int, Seated] = {}
        self.generation = recorder.last_generation
        self.record = GenerationRecord(self.generation, (), ())
        self.begun = True
        self.workers_before = 0
        self.identities: dict[int, dict[int, tuple[int, int]]] = {}  # of each generation: seat -> slot, pid
        self.published: dict[int, tuple[GenerationRecord, str]] = {}
        self.begun_number = recorder.last_generation
        self.done = False
        self.failure: tuple[str, str, str] | None = None
        self.deaths: Counter[int] = Counter()
        self.crashes: Counter[int] = Counter()
        self.resume_event = ""

    # -- life

    def run(self) -> Outcome:
        """Until the training is finished or stopped. Raises TrainingFailed with the user's error."""
        self.arena_fd, self.state_fd = os.memfd_create("edt-arena"), os.memfd_create("edt-state")
        self.wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.inbox, self.outbox = reports.pair()
        self.template_pid, self.commands = template.start(self.job, self._child, self.outbox)
        self.template_fd = os.pidfd_open(self.template_pid)
        try:
            self._await_sizes()
            while not self._finished():
                self._wait()
                self._read_all()
                self._act()
                self.recorder.flush_if_due(time.monotonic())
            return self._close()
        finally:
            self._end_template()

    def interrupt(self, reason: str) -> None:
        """Stop at the next step boundary. From a signal handler."""
        self.stopping = self.reason = reason
        if self.wake_fd >= 0:
            os.eventfd_write(self.wake_fd, 1)

    def _child(self, command: dict[str, Any], lengths: tuple[int, int]) -> None:
        """A worker's process begins here, forked by the template."""
        fields = {name: command[name] for name in ("seat", "slot", "index", "kind", "resume", "after")}
        place = Place(**fields, arena_fd=self.arena_fd, state_fd=self.state_fd, wake_fd=self.wake_fd, reports=self.outbox)
        worker.run(self.job, place, lengths)

    def _await_sizes(self) -> None:
        """The template tells how long the datasets are; then the shared memory can be laid out."""
        self.arena: Arena | None = None
        while self.arena is None:
            self._wait()
            self._read_all()
            if self.failure or self.stopping:
                return

    def _lay_out(self, samples: int, test_samples: int) -> None:
        job = self.job
        self.shape = job.shape(samples, test_samples)
        self.arena = Arena(self.arena_fd, job.layout(self.shape), create=True)
        tick = checkpoint.peek(job, self.shape)
        self.has_state = tick is not None
        first = max(self.recorder.last_step, 0)
        self.arena.words[RING_WRITTEN] = self.arena.words[RING_READ] = self.shape.step_at(tick or 0)
        parameters = sum(p.numel() for p in job.model.parameters())
        held = [*job.model.parameters(), *job.model.buffers()]
        self.recorder.write(
            journal.Started(
                attempt=self.attempt,
                engines=job.engines,
                batch_size=job.batch_size,
                epochs=job.epochs,
                steps_per_epoch=self.shape.steps_per_epoch,
                samples=samples,
                seed=job.seed,
                parameters=parameters,
                state_bytes=sum(t.numel() * t.element_size() for t in held),
            )
        )
        if tick is not None or first:
            self.resume_event = (
                "continued from the last checkpoint" if tick is not None else "continued from the start, there was no checkpoint"
            )
        self.recorder.begin()

    def _finished(self) -> bool:
        if any(not s.gone for s in self.seats.values()):
            return False
        return bool(self.failure or self.done or self.stopping)

    def _close(self) -> Outcome:
        self.recorder.write_pending()
        if self.failure:
            where, message, text = self.failure
            self.recorder.write(journal.Failed(message, text, where))
            raise TrainingFailed(message if not text else f"{message} ({where})\n{text}")
        self.recorder.end()
        self.recorder.flush()
        return "stopped" if self.stopping and not self.done else "completed"

    def _end_template(self) -> None:
        self.commands.close()  # it kills nothing: its workers die with it, and by now there are none
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.template_fd, signal.SIGKILL)
        os.waitpid(self.template_pid, 0)
        for fd in (self.template_fd, self.arena_fd, self.state_fd, self.wake_fd):
            os.close(fd)
        self.inbox.close()
        self.outbox.close()
        if self.link is not None:
            self.link.hold((), forking=False)

    # -- events

    def _wait(self) -> None:
        """Sleep until something happens. Finished steps wake the driver at most once in FLUSH_S: between flushes the ring is not
        waited for."""
        due_s = self.recorder.due(time.monotonic())
        poll = select.poll()
        for fd in (self.inbox.fileno(), self.template_fd, *(self.link.readable() if self.link else ())):
            poll.register(fd, select.POLLIN)
        if due_s <= 0:
            poll.register(self.wake_fd, select.POLLIN)
        events = dict(poll.poll(1000 * due_s + 1 if due_s > 0 else 1000))
        if self.template_fd in events:
            raise RuntimeFailure("the template process of the run ended; its workers ended with it")

    def _read_all(self) -> None:
        if self.link is not None:
            self.link.poll()
            if self.link.wanted is not None and self.link.wanted.revision != self.revision:
                self.revision = self.link.wanted.revision
                self.wanted, self.reason = self.link.wanted.slots, self.link.wanted.reason
            if self.link.stop is not None:
                self.stopping = self.reason = self.link.stop.reason or "stopped"
        for report in reports.receive(self.inbox):
            self._drain_ring()  # steps come before what followed them
            self._handle(report)
        self._read_ring()

    def _read_ring(self) -> None:
        if self.arena is not None:
            waiting = self.arena.words[RING_WRITTEN] - self.arena.words[RING_READ]
            if waiting > RING // 2 or self.recorder.due(time.monotonic()) <= 0:
                self._drain_ring()

    def _drain_ring(self) -> None:
        """Hand finished steps to the recorder, up to the first of a generation whose beginning has not been reported yet."""
        arena = self.arena
        if arena is None:
            return
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.wake_fd)
        first, last = arena.words[RING_READ] + 1, arena.words[RING_WRITTEN]
        rows = [arena.ring[step % RING].tolist() for step in range(first, last + 1)]
        rows = list(itertools.takewhile(lambda row: row[RING_GENERATION] <= self.begun_number, rows))
        if rows:
            self.recorder.steps(rows, self.shape)
            arena.words[RING_READ] = first + len(rows) - 1
            for seat in self.record.members[:1]:
                arena.bells[seat].ring()  # it may wait for room

    def _handle(self, report: dict[str, Any]) -> None:
        """One report of the template (seat -1) or of a worker."""
        kind, seat = report["kind"], report.get("seat", -1)
        if kind == "sized":
            self._lay_out(report["samples"], report["test_samples"])
        elif kind == "forked":
            seated = self.seats[seat]
            seated.pid, seated.ticks = report["pid"], start_ticks(report["pid"])
            self._tell_holding()
        elif kind == "ready":
            if self.seats[seat].state == "starting":
                self.seats[seat].state = "ready"
        elif kind == "begun":
            self._begun(report["generation"], report["tick"], redone=report["redone"], stood_s=report["stood_s"])
        elif kind == "suspended":
            self._suspended(report["tick"], report["paths"], report["size_bytes"])
        elif kind == "exited":
            self._exited(self.seats[seat], report["code"])
        elif kind == "error":
            self._fail(report["where"], report["traceback"])
        elif kind == "pull_limit":
            self.seats[seat].state = "left"
        elif kind == "done":
            self.done = True
        else:
            self._record_report(kind, report)

    def _record_report(self, kind: str, report: dict[str, Any]) -> None:
        if kind == "tested":
            self.recorder.test(report["step"], report["epoch"], report["row"])
        elif kind == "checkpoint":
            paths = tuple(report["paths"])
            self.recorder.write(journal.Checkpoint(report["step"], report["epoch"], report["role"], paths, report["size_bytes"]))
        elif kind == "warning":
            self.recorder.write(journal.Warned(report["message"]))

    def _begun(self, generation: int, tick: int, *, redone: int, stood_s: float) -> None:
        """Generation `generation` works. It may have been overtaken by an abort already; its steps are in the ring all the same."""
        record, reason = self.published[generation]
        before, now = self.workers_before, len(record.members)
        unit = self.shape.unit(min(tick, self.shape.ticks - 1))
        if self.resume_event:
            why = reason if self.resume_event == "resumed" else self.resume_event
            self.recorder.write(journal.Resumed(self.shape.step_at(tick), unit.epoch + 1, why))
            self.resume_event = ""
        members = tuple(journal.Member(rank, *self.identities[generation][s]) for rank, s in enumerate(record.members))
        event = journal.Generation(generation, self.shape.step_at(tick) + 1, unit.epoch + 1, members, before, reason, 0.0, redone)
        ratio = -(-self.job.engines // now) / -(-self.job.engines // before) if before else 1.0
        self.recorder.generation(event, stood_s=stood_s, work_ratio=ratio)
        self.workers_before, self.begun_number = now, generation
        for number in [n for n in self.published if n < generation]:
            del self.published[number], self.identities[number]
        if generation == self.record.number:  # else an abort has overtaken it
            self.begun = True
            self._settle_states()

    def _settle_states(self) -> None:
        for seated in self.seats.values():
            if seated.state == "leaving":
                seated.state = "left"

    def _suspended(self, tick: int, paths: list[str], size_bytes: int) -> None:
        step, epoch = self.shape.step_at(tick), self.shape.unit(min(tick, self.shape.ticks - 1)).epoch + 1
        self.recorder.write(journal.Checkpoint(step, epoch, "engine", tuple(paths), size_bytes))
        if not self.stopping:
            self.recorder.write(journal.Suspended(step, epoch, self.published[self.record.number][1]))
        self.begun = self.has_state = True
        self.workers_before = 0
        self.resume_event = "resumed"
        self._settle_states()

    def _fail(self, where: str, traceback: str) -> None:
        """The run cannot go on. The first error counts; what follows is its consequence."""
        if self.failure is None:
            last = traceback.strip().splitlines()[-1] if traceback.strip() else "unknown error"
            self.failure = (where, last, traceback)

    def _exited(self, seated: Seated, code: int) -> None:
        """A worker is reaped: its slot is free."""
        left = self.arena is not None and self.arena.get(seated.seat, STATE) == STATE_LEFT and code == 0
        was = seated.state
        seated.gone = True
        if self.done or self.failure:
            seated.state = "left"
        elif was in ("starting", "ready"):
            self._died(seated, code)
            seated.state = "left"
        elif was == "leaving" and left:
            seated.state = "left"
        elif was != "left":
            seated.dead = True
            self._died(seated, code)
        self._tell_holding()

    def _died(self, seated: Seated, code: int) -> None:
        """Count a death; fail where it would only happen again."""
        tick = self.arena.get(seated.seat, COMMITTED) if self.arena else 0
        where = f"worker on slot {seated.slot.id}"
        if code > 0:
            self._fail(where, f"the worker exited with status {code}")
        self.deaths[seated.slot.id] += 1
        if -code in FATAL_SIGNALS:
            self.crashes[tick] += 1
            if self.crashes[tick] >= CRASHES_AT_ONE_STEP:
                self._fail(where, f"workers crashed {CRASHES_AT_ONE_STEP} times at one step ({signal.Signals(-code).name})")
        if self.deaths[seated.slot.id] == DEATHS_OF_A_SLOT:
            message = f"slot {seated.slot.id} is not used any more: {DEATHS_OF_A_SLOT} of its workers died"
            self.recorder.write(journal.Warned(message))

    # -- decisions

    def _act(self) -> None:
        if self.arena is None:
            return None
        if self.failure:
            return self._kill(s.seat for s in self.seats.values() if not s.gone)
        if self.done:
            return None
        if self.wanted and not self.stopping and all(self.deaths[s.id] >= DEATHS_OF_A_SLOT for s in self.wanted):
            return self._fail("driver", "every slot of the run has lost too many workers")
        decision = membership.decide(self._facts())
        if decision.lost:
            self._begin_again()
            return self._act()
        for seat in decision.discard:
            self.seats[seat].state = "left"
        self._kill(decision.discard)
        for slot in decision.start:
            self._start(next(s for s in self.wanted if s.id == slot))
        if decision.publish is not None:
            self._publish(decision.publish)
        return None

    def _facts(self) -> membership.Facts:
        workers = tuple(
            membership.WorkerFacts(s.seat, s.slot.id, s.state, s.dead)
            for s in self.seats.values()
            if not s.gone or (s.dead and s.state in ("member", "leaving"))
        )
        return membership.Facts(
            engines=self.job.engines,
            wanted=() if self.stopping else tuple(s.id for s in self.wanted),
            reason=self.reason,
            generation=self.record.number,
            members=self.record.members,
            begun=self.begun,
            workers=workers,
            barred=frozenset(slot for slot, n in self.deaths.items() if n >= DEATHS_OF_A_SLOT),
        )

    def _start(self, slot: SlotRef) -> None:
        assert self.arena is not None
        seat = self._free_seat()
        if seat is None:
            return
        self.arena.clear_seat(seat)
        self.seats[seat] = Seated(seat, slot, "starting")
        self._tell_holding()
        self._command(do="fork", seat=seat, slot=slot.id, index=slot.index, kind=slot.device, resume=self.has_state, after=self.generation)

    def _free_seat(self) -> int | None:
        """A seat whose words nobody reads any more: a slow member may still look at those of the last generation that has begun, and
        of any since."""
        read = {seat for n, (record, _) in self.published.items() if n >= self.begun_number for seat in record.members + record.visitors}
        free = (i for i in range(self.job.seats) if i not in read and (i not in self.seats or self.seats[i].gone))
        return next(free, None)

    def _publish(self, publish: membership.Publish) -> None:
        assert self.arena is not None
        self.generation += 1
        old = set(self.record.members + self.record.visitors)
        self.record = GenerationRecord(self.generation, publish.members, publish.visitors)
        for seat in old - set(publish.members):
            seated = self.seats[seat]
            if seated.state in ("member", "leaving"):
                seated.state = "left" if seated.dead else "leaving"
        for seat in publish.members:
            self.seats[seat].state = "member"
        self.published[self.generation] = (self.record, publish.reason)
        self.identities[self.generation] = {s: (self.seats[s].slot.id, self.seats[s].pid) for s in publish.members}
        self.begun = False
        if publish.abort:
            self.reason = "a new worker replaces the one that died"
        self.arena.publish(self.record, abort=publish.abort)

    def _begin_again(self) -> None:
        """No worker holds the state any more: from the engine checkpoint, or from the start."""
        for seated in self.seats.values():
            if seated.gone:
                seated.state, seated.dead = "left", False
        assert self.arena is not None
        self.record, self.begun, self.workers_before = GenerationRecord(self.generation, (), ()), True, 0
        self.has_state = checkpoint.engine_path(self.job.result_dir).exists()
        self.resume_event = "all workers died; " + ("continued from the last checkpoint" if self.has_state else "continued from the start")

    def _kill(self, seats: Any) -> None:
        for seat in seats:
            self._command(do="kill", seat=seat)

    def _command(self, **command: Any) -> None:
        self.commands.send(json.dumps(command).encode())

    def _tell_holding(self) -> None:
        if self.link is not None:
            alive = [s for s in self.seats.values() if not s.gone]
            known = tuple(protocol.Worker(s.slot.id, s.pid, s.ticks) for s in alive if s.pid)
            self.link.hold(known, forking=len(known) < len(alive))


def start_ticks(pid: int) -> int:
    """When a process started, in clock ticks since boot: with its pid a name that is never given twice. 0 where /proc cannot be read."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return 0
