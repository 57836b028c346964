"""The driver's loop during one train(): starts and ends workers, publishes generations and records what workers report. Computes nothing.

One loop, one thread. Events come from the host link, from the reports of fork server and workers, and from the ring of finished steps;
after each round `membership.decide` says what to do. Only a worker that the fork server has reaped counts as gone: until then its slot is
held.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time

from training_runtime import journal
from training_runtime.elastic.comm.segment import CLOSED, COMMITTED, ORPHANED, RETIRED, STATE, STATE_LEFT, GenerationRecord, Segment
from training_runtime.elastic.driver import membership
from training_runtime.elastic.driver.failures import Recent
from training_runtime.elastic.driver.host_link import HostLink
from training_runtime.elastic.driver.outcome import Failure, Outcome
from training_runtime.elastic.driver.recorder import Recorder
from training_runtime.elastic.driver.recorder_feed import Published, RecorderFeed
from training_runtime.elastic.driver.supervision import Supervision
from training_runtime.elastic.driver.worker_table import WorkerTable
from training_runtime.elastic.job import Job
from training_runtime.elastic.multinode.remote_nodes import RemoteNodes
from training_runtime.elastic.processes import reports
from training_runtime.elastic.processes.becoming import at_the_end
from training_runtime.elastic.processes.fork_server import ForkServer
from training_runtime.elastic.state import checkpoint, digest
from training_runtime.protocol import SlotRef

LOOK_S = 0.2  # the safety net: how often the driver looks without being told anything
DEATHS_OF_THE_FORK_SERVER, WITHIN_S = 10, 600.0  # so many in so short a time fail a run that does not get on meanwhile


class Coordinator:
    """Runs one call of train(). Without the studio `link` is None, and `slots` are used from start to end."""

    def __init__(self, job: Job, recorder: Recorder, *, attempt: int, link: HostLink | None, slots: tuple[SlotRef, ...]) -> None:
        self.job, self.recorder, self.attempt, self.link = job, recorder, attempt, link
        self.granted, self.reason = slots, "started"
        self.revision, self.stopping, self.suspend = -1, "", False
        self.has_state = False
        self.position = 0  # of the checkpoint that workers begin with
        self.generation = recorder.last_generation
        self.record = GenerationRecord(self.generation, (), ())
        self.begun = True
        self.done = self.retiring = False
        self.last_position = 0  # of the training, when it is at its end
        self.failure = Failure()
        self.segment: Segment | None = None
        self.fork_server: ForkServer | None = None
        self.fork_server_deaths = Recent(WITHIN_S)
        self.unforkable: reports.Unforkable | None = None
        self.supervision = Supervision(time.monotonic())

    # -- life

    def run(self) -> Outcome:
        """Train until the training has finished or was stopped. Raises TrainingFailed with the user's error."""
        self.fork_server = fork_server = ForkServer(self.job, self.link.leave if self.link is not None else lambda: None)
        self.remote_nodes = RemoteNodes(self.job, fork_server, self.link)
        self.worker_table = WorkerTable(fork_server, self.remote_nodes)
        with at_the_end(lambda: self._end(fork_server)):
            while not self._finished():
                self._wait(fork_server)
                self._read_all()
                if self.unforkable is not None:
                    self._start_spawned(fork_server, self.unforkable)
                if fork_server.inbox.closed:
                    self._start_anew(fork_server, "the workers could not be heard any more, something in the script shut down their socket")
                self._look_after(fork_server, time.monotonic())
                self._act()
                self.recorder.flush_if_due(time.monotonic())
            return self._close()

    def _end(self, fork_server: ForkServer) -> None:
        self.remote_nodes.end()
        fork_server.end(self.worker_table.on(0))
        if self.link is not None:
            self.link.hold((), forking=False)

    def interrupt(self, reason: str) -> None:
        """Stop at the next step boundary. Safe to call in a signal handler."""
        self.stopping = self.reason = reason
        if self.fork_server is not None:
            os.eventfd_write(self.fork_server.wake_fd, 1)

    def _lay_out(self, samples: int, test_samples: int) -> None:
        job = self.job
        shape = job.shape(samples, test_samples)
        self.recorder.started(shape, self.attempt)
        self.recorder_feed = RecorderFeed(job, shape, self.recorder)
        position = self.recorder_feed.take_up()
        self.generation = self.recorder.last_generation
        self.record = GenerationRecord(self.generation, (), ())
        assert self.fork_server is not None
        self.segment = Segment(self.fork_server.segment_fd, job.layout(shape), create=True)
        self.recorder.pause()
        self.remote_nodes.open(self.segment.layout, (samples, test_samples))
        self.has_state = position is not None
        self.segment.begin_ring(shape.step_at(position or 0))
        self.recorder_feed.continues(position)
        steps = shape.step_at(shape.length)
        self.done = bool(steps) and self.recorder.trained_step == steps  # by an attempt that died over what follows

    def _finished(self) -> bool:
        return not self.worker_table.alive() and bool(self.failure or self.done or self.stopping)

    def _close(self) -> Outcome:
        self.recorder.write_pending()
        if self.done and not self.failure:
            self.recorder.trained()
        self.recorder.end(self._is_stopped, failed=bool(self.failure))
        if self.failure:
            self.failure.tell(self.recorder)
        self.recorder.flush()
        return "stopped" if self.stopping and not self.done else "completed"

    def _is_stopped(self) -> bool:
        """Whether the training has stopped while the host may still have requests."""
        self._poll_host()
        return bool(self.stopping)

    # -- events

    def _wait(self, fork_server: ForkServer) -> None:
        """Sleep until something happens. Finished steps wake the driver at most once in FLUSH_S: between flushes the ring is not
        waited for."""
        due_s = self.recorder.due(time.monotonic())
        poll = select.poll()
        links = self.link.readable() if self.link else ()
        for fd in (fork_server.inbox.fileno(), fork_server.handle, *self.remote_nodes.handles, *links):
            poll.register(fd, select.POLLIN)
        if due_s <= 0:
            poll.register(fork_server.wake_fd, select.POLLIN)
        events = dict(poll.poll(1000 * due_s + 1 if due_s > 0 else 1000 * LOOK_S))
        if fork_server.handle in events:
            self._start_anew(fork_server, "the process that workers are forked from died")
        elif any(handle in events for handle in self.remote_nodes.handles):
            self.recorder.pause()
            for machine in self.remote_nodes.restart():
                self._lose(machine)

    def _start_anew(self, fork_server: ForkServer, why: str) -> None:
        """Replace a fork server that has died or does not answer: its workers save their state, and the new one's workers resume from
        it."""
        self._read_all()  # who was forked last
        too_often = self.fork_server_deaths.happened(time.monotonic(), step=self.recorder.last_step) >= DEATHS_OF_THE_FORK_SERVER
        self.remote_nodes.end(over=False)
        fork_server.terminate_workers(self.segment, [worker for worker in self.worker_table.on(0) if worker.pid], self._poll_host)
        self._read_all()  # what they have said since
        self.worker_table.mark_all_gone()
        self._tell_holding()
        if self.failure or self.done:
            return None
        if too_often:
            return self.failure.add("driver", "", f"{why} {DEATHS_OF_THE_FORK_SERVER} times within {WITHIN_S / 60:.0f} minutes")
        self.recorder.write(journal.Warned(f"{why}; all of them are started anew"))
        fork_server.close_reports()
        self.recorder.pause()
        fork_server.start()
        if self.segment is not None:
            self.segment.words[ORPHANED] = 0
            self.recorder.pause()
            self.remote_nodes.restart()
            self.recorder_feed.take_up()  # of what they wanted to say, not everything may have come through
            self._begin_again(why)
        return None

    def _start_spawned(self, fork_server: ForkServer, report: reports.Unforkable) -> None:
        """Start workers as new processes, because the datasets function has made forking unsafe."""
        self.unforkable = None
        self.recorder.write(journal.Warned(fork_server.start_spawned(report)))

    def _poll_host(self) -> None:
        if self.link is None:
            return
        self.link.poll()
        if self.link.wanted is not None and self.link.wanted.revision != self.revision:
            self.revision = self.link.wanted.revision
            self.granted, self.reason, self.suspend = self.link.wanted.slots, self.link.wanted.reason, self.link.wanted.suspend
        if self.link.stop is not None:
            self.stopping = self.reason = self.link.stop.reason or "stopped"

    def _read_all(self) -> None:
        self._poll_host()
        assert self.fork_server is not None
        for report in self.fork_server.inbox.handled():
            self._drain_ring()  # steps come before what followed them
            self._handle(report)
        self._read_ring()

    def _read_ring(self) -> None:
        if self.segment is not None and (self.segment.is_filling() or self.recorder.due(time.monotonic()) <= 0):
            self._drain_ring()

    def _drain_ring(self) -> None:
        if self.segment is None:
            return
        assert self.fork_server is not None
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.fork_server.wake_fd)
        if self.recorder_feed.steps(self.segment):
            for worker_id in self.record.members[:1]:
                self.segment.bells[worker_id].ring()  # it may wait for room

    def _handle(self, report: reports.Report) -> None:
        """Handle one report of the fork server, of a worker, or of another machine."""
        match report:
            case reports.Sized(samples, test_samples):
                if self.segment is None:
                    self._lay_out(samples, test_samples)
            case reports.Unforkable():
                self.unforkable = report
            case reports.Forked(worker_id, pid):
                self.worker_table.forked(worker_id, pid)
                self._tell_holding()
            case reports.Ready(worker_id):
                self.worker_table.ready(worker_id, time.monotonic())
            case reports.Begun():
                self.recorder_feed.begun(report)
                self._begun(report.generation)
            case reports.Suspended():
                self.recorder_feed.suspended(self.record.number, report, stopping=bool(self.stopping))
                self.begun = self.has_state = True
                self.worker_table.settle()
                self._discard_newcomers()
            case reports.Exited(worker_id, code):
                self._exited(worker_id, code)
            case reports.Dying():
                self.supervision.causes.note(report)
            case reports.ForkServerFailed():
                self.failure.add(report.where, report.traceback, advice=report.advice)
            case reports.Diverged():
                self.recorder.exactness([f"after step {report.step} the workers did not hold the same state any more"])
                self.failure.add("workers", "", digest.sentence(report, lambda worker_id: self.worker_table[worker_id].slot.id))
            case reports.StartAsked() | reports.Joined() | reports.Offered():
                self.reason = self.remote_nodes.receive(report) or self.reason
            case reports.MachineLost(machine):
                self._lose(machine)
            case reports.PullLimit(worker_id):
                self.worker_table.gives_up(worker_id)
            case reports.Retired(worker_id, position):
                self.worker_table.retires(worker_id)
                self._retire(RETIRED, position)
            case reports.Done(position):
                self._done(position)
            case _:  # lines of the journal: the type checker sees that no other kind is left
                self.recorder_feed.note(report)
                self.remote_nodes.acknowledge(report)

    def _begun(self, generation: int) -> None:
        if generation == self.record.number:  # else an abort has overtaken it
            self.begun = True
            self.worker_table.settle()

    def _retire(self, word: int, position: int) -> None:
        """All units are done: let members exit (RETIRED), the writer of the final model last, once it is written (CLOSED)."""
        assert self.segment is not None
        self.retiring, self.last_position = True, position
        self.segment.say(word)

    def _done(self, position: int) -> None:
        self.done = True
        self._retire(CLOSED, position)

    def _exited(self, worker_id: int, code: int, *, unheard: bool = False) -> None:
        """A worker was reaped, or is `unheard` of. If it died on a slot that is still wanted, `failures` decides what follows."""
        ended = self.supervision.ended(self.worker_table, worker_id, code, segment=self.segment, generation=self.record.number)
        goodbye = self.segment is not None and self.segment.get(worker_id, STATE) == STATE_LEFT
        died = self.worker_table.exited(worker_id, code, said_goodbye=goodbye, over=self.done or bool(self.failure))
        self._tell_holding()
        self.remote_nodes.worker_ended(self.worker_table[worker_id].machine)
        if not died or ended.slot not in self._desired_ids():
            return
        if ended.may_be_the_slot() and not unheard:
            self.recorder.died(ended.slot)
        verdict = self.supervision.failures.judge(ended, time.monotonic(), step=self.recorder.last_step)
        if verdict.failed is not None:
            message, traceback = verdict.failed
            self.failure.add(f"worker on slot {ended.slot}", traceback, message, no_room=verdict.no_room)
        elif verdict.warning:
            self.recorder.write(journal.Warned(verdict.warning))

    def _look_after(self, fork_server: ForkServer, now: float) -> None:
        """Kill workers that hang or keep a slot too long. Their deaths are then handled like any other."""
        if self.failure or not self.supervision.is_due(now):
            return
        durations = self.recorder.durations()
        if self.supervision.fork_server_hangs(now, fork_server.pid, durations):
            os.kill(fork_server.pid, signal.SIGKILL)  # our child and not reaped
        if self.segment is None:
            return
        forked = [worker for worker in self.worker_table.alive() if worker.pid and not worker.killed]
        wanted, ends = self._desired_ids(), {"done": self.done, "retiring": self.retiring}
        for worker_id, why in self.supervision.to_end(now, self.segment, forked, self.record, wanted=wanted, durations=durations, **ends):
            self.recorder.write(journal.Warned(why))
            self.worker_table.kill((worker_id,))
        self.remote_nodes.abandon_unresponsive(now)

    @property
    def desired(self) -> tuple[SlotRef, ...]:
        """The slots that the run may use: those of this machine, then those of others."""
        return () if self.suspend else (*self.granted, *self.remote_nodes.slots())

    def _desired_ids(self) -> tuple[int, ...]:
        return () if self.stopping else tuple(slot.id for slot in self.desired)

    def _lose(self, machine: int) -> None:
        """Give up a machine that has gone silent. Its own host ends what may still run there."""
        self.remote_nodes.forget(machine)
        for worker in self.worker_table.on(machine):
            self._exited(worker.worker_id, -signal.SIGKILL, unheard=True)

    # -- decisions

    def _act(self) -> None:
        if self.segment is None:
            return None
        if self.failure:
            return self.worker_table.kill(s.worker_id for s in self.worker_table.alive())
        if self.done or self.retiring:
            return self._wind_up(self.segment)
        decision = membership.decide(self._facts(time.monotonic()))
        if decision.lost:
            self._begin_again("all workers died")
            return self._act()
        self.worker_table.discard(decision.discard)
        for slot in decision.start:
            self._start(next(s for s in self.desired if s.id == slot))
        if decision.publish is not None:
            self._publish(decision.publish)
        return None

    def _wind_up(self, segment: Segment) -> None:
        """All units are done and their state is on disk. Nobody joins any more, even if announced. If the worker that writes the final
        model dies, another writes it."""
        alive = self.worker_table.alive()
        late = (s.worker_id for s in alive if s.state in ("starting", "ready") or segment.get(s.worker_id, COMMITTED) < self.last_position)
        self.worker_table.discard(worker_id for worker_id in late if self.worker_table[worker_id].state != "left")
        if not (alive or self.done or self.stopping):
            self.retiring, segment.words[RETIRED] = False, 0
            self._begin_again("the worker that wrote the final model died")

    def _facts(self, now: float) -> membership.Facts:
        return membership.Facts(
            engines=self.job.engines,
            wanted=self._desired_ids(),
            reason=self.reason,
            generation=self.record.number,
            members=self.record.members,
            begun=self.begun,
            workers=self.worker_table.facts(),
            barred=self.supervision.failures.resting(now),
            now=now,
        )

    def _start(self, slot: SlotRef) -> None:
        assert self.segment is not None
        avoid = self.recorder_feed.still_read()
        workers = min(len(self.desired), self.job.engines)
        first = not self.worker_table.those("member", "starting", "ready")
        if self.has_state and first:  # of those who begin with the checkpoint
            self._drain_ring()
            self.position = self.recorder_feed.take_up() or 0
            self.segment.begin_ring(self.recorder_feed.shape.step_at(self.position))
        begin = -1 if self.worker_table.those("member") else self.position
        machine = self.remote_nodes.machine_of(slot)
        self.worker_table.start(slot, machine, segment=self.segment, avoid=avoid, begin=begin, after=self.generation, workers=workers)
        self._tell_holding()

    def _discard_newcomers(self) -> None:
        """Discard newcomers: they wait for a state that nobody will send any more."""
        self.worker_table.discard(self.worker_table.those("starting", "ready"))

    def _publish(self, publish: membership.Publish) -> None:
        assert self.segment is not None
        self.generation += 1
        self.record = GenerationRecord(self.generation, self.worker_table.home_first(publish.members), publish.visitors)
        self.worker_table.publish(publish.members)
        identities = {s: (self.worker_table[s].slot.id, self.worker_table[s].pid) for s in self.record.members}
        self.recorder_feed.announce(self.segment, Published(self.record, publish.reason, identities))
        self.begun = False
        if publish.abort:
            self.reason = "a new worker replaces the one that died"
        self.segment.publish(self.record, abort=publish.abort)

    def _begin_again(self, why: str) -> None:
        """No worker holds the state any more: resume from the engine checkpoint, or start over."""
        self.worker_table.forget_the_dead()
        self._discard_newcomers()
        self.record, self.begun, self.recorder_feed.workers = GenerationRecord(self.generation, (), ()), True, 0
        self.has_state = checkpoint.exists(self.job.result_dir)
        self.recorder_feed.resumed = f"{why}; continued from the {'last checkpoint' if self.has_state else 'start'}"

    def _tell_holding(self) -> None:
        if self.link is not None:
            self.link.hold(known := self.worker_table.holding(), forking=len(known) < len(self.worker_table.on(0)))
