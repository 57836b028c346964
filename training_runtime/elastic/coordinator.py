"""The driver's watch over one train(): it starts and ends workers, publishes generations, and records what they report. It computes
nothing.

One loop, one thread. Events come from the host link, from the reports of template and workers, and from the ring of finished steps; after
each round `membership.decide` says what to do. Only a worker that the template has reaped counts as gone: until then its slot is held.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import signal
import time
from typing import Any, Literal

from training_runtime import journal
from training_runtime.elastic import checkpoint, membership, reports, template, watch, worker
from training_runtime.elastic.arena import (
    COMMITTED,
    EXCUSED,
    PHASE,
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
from training_runtime.elastic.roster import CRASHES_AT_ONE_STEP, DEATHS_OF_A_SLOT, Roster, is_stopped
from training_runtime.elastic.seat import Place
from training_runtime.errors import RuntimeFailure
from training_runtime.protocol import SlotRef

LOOK_S = 0.5  # the safety net: how often the driver looks without being told anything
Outcome = Literal["completed", "stopped"]


class TrainingFailed(RuntimeFailure):
    """The training cannot go on; the journal has the traceback."""


class Coordinator:
    """One call of train(). `link` is None without the studio: then `slots` are used from start to end."""

    def __init__(self, job: Job, recorder: Recorder, *, attempt: int, link: HostLink | None, slots: tuple[SlotRef, ...]) -> None:
        self.job, self.recorder, self.attempt, self.link = job, recorder, attempt, link
        self.wanted, self.reason = slots, "started"
        self.revision = -1
        self.stopping = ""
        self.wake_fd = -1
        self.has_state = False
        self.generation = recorder.last_generation
        self.record = GenerationRecord(self.generation, (), ())
        self.begun = True
        self.workers_before = 0
        self.identities: dict[int, dict[int, tuple[int, int]]] = {}  # of each generation: seat -> slot, pid
        self.published: dict[int, tuple[GenerationRecord, str]] = {}
        self.begun_number = recorder.last_generation
        self.done = False
        self.failure: tuple[str, str, str] | None = None
        self.resume_event = ""
        self.arena: Arena | None = None
        self.watch = watch.Watch()
        self.hang_s = float(os.environ["EDT_HANG_TIMEOUT"]) if os.environ.get("EDT_HANG_TIMEOUT") else None

    # -- life

    def run(self) -> Outcome:
        """Until the training is finished or stopped. Raises TrainingFailed with the user's error."""
        self.arena_fd, self.state_fd = os.memfd_create("edt-arena"), os.memfd_create("edt-state")
        self.wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.inbox, self.outbox = reports.pair()
        self.template_pid, self.commands = template.start(self.job, self._child, self.outbox)
        self.roster = Roster(self.commands, self.job.seats)
        self.template_fd = os.pidfd_open(self.template_pid)
        try:
            self._await_sizes()
            while not self._finished():
                self._wait()
                self._read_all()
                self._look_for_hangs(time.monotonic())
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
        self.arena.words[RING_WRITTEN] = self.arena.words[RING_READ] = self.shape.step_at(tick or 0)
        self.recorder.started(self.shape, self.attempt)
        if tick is not None or self.recorder.last_step:
            self.resume_event = (
                "continued from the last checkpoint" if tick is not None else "continued from the start, there was no checkpoint"
            )

    def _finished(self) -> bool:
        if self.roster.alive():
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
        events = dict(poll.poll(1000 * due_s + 1 if due_s > 0 else 1000 * LOOK_S))
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
            self.roster.forked(seat, report["pid"])
            self._tell_holding()
        elif kind == "ready":
            self.roster.ready(seat)
        elif kind == "begun":
            self._begun(report["generation"], report["tick"], redone=report["redone"], stood_s=report["stood_s"])
        elif kind == "suspended":
            self._suspended(report["tick"], report["paths"], report["size_bytes"])
        elif kind == "exited":
            self._exited(seat, report["code"])
        elif kind == "error":
            self._fail(report["where"], report["traceback"])
        elif kind == "pull_limit":
            self.roster[seat].state = "left"
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
        step, epoch = self.shape.step_at(tick), self.shape.epoch_at(tick)
        if self.resume_event:
            why = reason if self.resume_event == "resumed" else self.resume_event
            self.recorder.write(journal.Resumed(step, epoch, why))
            self.resume_event = ""
        members = tuple(journal.Member(rank, *self.identities[generation][s]) for rank, s in enumerate(record.members))
        event = journal.Generation(generation, step + 1, epoch, members, before, reason, 0.0, redone)
        ratio = -(-self.job.engines // now) / -(-self.job.engines // before) if before else 1.0
        self.recorder.generation(event, stood_s=stood_s, work_ratio=ratio)
        self.workers_before, self.begun_number = now, generation
        for number in [n for n in self.published if n < generation]:
            del self.published[number], self.identities[number]
        if generation == self.record.number:  # else an abort has overtaken it
            self.begun = True
            self.roster.settle()

    def _suspended(self, tick: int, paths: list[str], size_bytes: int) -> None:
        step, epoch = self.shape.step_at(tick), self.shape.epoch_at(tick)
        self.recorder.write(journal.Checkpoint(step, epoch, "engine", tuple(paths), size_bytes))
        if not self.stopping:
            self.recorder.write(journal.Suspended(step, epoch, self.published[self.record.number][1]))
        self.begun = self.has_state = True
        self.workers_before = 0
        self.resume_event = "resumed"
        self.roster.settle()

    def _fail(self, where: str, traceback: str) -> None:
        """The run cannot go on. The first error counts; what follows is its consequence."""
        if self.failure is None:
            last = traceback.strip().splitlines()[-1] if traceback.strip() else "unknown error"
            self.failure = (where, last, traceback)

    def _exited(self, seat: int, code: int) -> None:
        """A worker is reaped. Where it died of something that would only happen again, the run fails."""
        goodbye = self.arena is not None and self.arena.get(seat, STATE) == STATE_LEFT
        died = self.roster.exited(seat, code, said_goodbye=goodbye, over=self.done or self.failure is not None)
        self._tell_holding()
        if not died:
            return
        slot = self.roster[seat].slot.id
        where = f"worker on slot {slot}"
        if code > 0:
            self._fail(where, f"the worker exited with status {code}")
        if self.roster.crashes_again(code, self.arena.get(seat, COMMITTED) if self.arena else 0):
            self._fail(where, f"workers crashed {CRASHES_AT_ONE_STEP} times at one step ({signal.Signals(-code).name})")
        if self.roster.deaths[slot] == DEATHS_OF_A_SLOT:
            self.recorder.write(journal.Warned(f"slot {slot} is not used any more: {DEATHS_OF_A_SLOT} of its workers died"))

    def _look_for_hangs(self, now: float) -> None:
        """A member that the others wait for too long is killed; its death is then answered like any other."""
        arena = self.arena
        if arena is None or self.done or self.failure:
            return
        members = [seat for seat in self.record.members + self.record.visitors if not self.roster[seat].gone]
        signs = {s: watch.Sign(arena.get(s, PHASE), arena.get(s, COMMITTED), self._excused(s)) for s in members}
        limit_s = watch.deadline_s(self.recorder.durations(), self.hang_s)
        for seat in self.watch.hung(now, signs, limit_s):
            slot = self.roster[seat].slot.id
            self.recorder.write(journal.Warned(f"the worker on slot {slot} showed no progress for {limit_s:.3g} s and was ended"))
            self.roster.kill((seat,))

    def _excused(self, seat: int) -> bool:
        """Whether a worker does what may take long. One that is stopped from outside does nothing."""
        assert self.arena is not None
        return bool(self.arena.get(seat, EXCUSED)) and not is_stopped(self.roster[seat].pid)

    # -- decisions

    def _act(self) -> None:
        if self.arena is None:
            return None
        if self.failure:
            return self.roster.kill(s.seat for s in self.roster.alive())
        if self.done:
            return None
        if self.wanted and not self.stopping and {s.id for s in self.wanted} <= self.roster.barred():
            return self._fail("driver", "every slot of the run has lost too many workers")
        decision = membership.decide(self._facts())
        if decision.lost:
            self._begin_again()
            return self._act()
        self.roster.discard(decision.discard)
        for slot in decision.start:
            self._start(next(s for s in self.wanted if s.id == slot))
        if decision.publish is not None:
            self._publish(decision.publish)
        return None

    def _facts(self) -> membership.Facts:
        return membership.Facts(
            engines=self.job.engines,
            wanted=() if self.stopping else tuple(s.id for s in self.wanted),
            reason=self.reason,
            generation=self.record.number,
            members=self.record.members,
            begun=self.begun,
            workers=self.roster.facts(),
            barred=self.roster.barred(),
        )

    def _start(self, slot: SlotRef) -> None:
        """Have a worker forked. A slow member may still look at the seats of the last generation that has begun, and of any since:
        they are not free."""
        assert self.arena is not None
        read = {seat for n, (record, _) in self.published.items() if n >= self.begun_number for seat in record.members + record.visitors}
        self.roster.start(slot, arena=self.arena, avoid=read, resume=self.has_state, after=self.generation)
        self._tell_holding()

    def _publish(self, publish: membership.Publish) -> None:
        assert self.arena is not None
        self.generation += 1
        self.record = GenerationRecord(self.generation, publish.members, publish.visitors)
        self.roster.publish(publish.members)
        self.published[self.generation] = (self.record, publish.reason)
        self.identities[self.generation] = {s: (self.roster[s].slot.id, self.roster[s].pid) for s in publish.members}
        self.begun = False
        if publish.abort:
            self.reason = "a new worker replaces the one that died"
        self.arena.publish(self.record, abort=publish.abort)

    def _begin_again(self) -> None:
        """No worker holds the state any more: from the engine checkpoint, or from the start."""
        self.roster.forget_the_dead()
        self.record, self.begun, self.workers_before = GenerationRecord(self.generation, (), ()), True, 0
        self.has_state = checkpoint.engine_path(self.job.result_dir).exists()
        self.resume_event = "all workers died; " + ("continued from the last checkpoint" if self.has_state else "continued from the start")

    def _tell_holding(self) -> None:
        if self.link is not None:
            known = self.roster.holding()
            self.link.hold(known, forking=len(known) < len(self.roster.alive()))
