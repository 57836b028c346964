"""Runs with a past, written as rows with times of their own; their curves come from journals."""

from __future__ import annotations

import datetime as dt
import math
import random
from dataclasses import dataclass
from pathlib import Path

from experiments import services
from experiments.files import runfiles
from experiments.metrics import ingest
from experiments.models import Experiment, Grant, Node, RunState, RunTransition, Slot, TrainingRun, User
from tests.web import measured, written
from training_runtime import journal, journal_writer

LOADED_TWICE = "the same samples, loaded twice, were not the same"
OWN_GENERATOR = "the training dataset.transform.transforms[2].rng is a random generator of its own, which is not seeded for each batch"
TRACEBACK = """Traceback (most recent call last):
  File "main.py", line 41, in <module>
    main()
  File "main.py", line 36, in main
    edt_m = FabricModel(model, getDatasets, F.nll_loss, optimizer)
  File "data.py", line 12, in getDatasets
    images = numpy.load(os.path.join(os.environ["DATA_DIR"], "train-images.npy"))
FileNotFoundError: [Errno 2] No such file or directory: 'train-images.npy'
"""


@dataclass
class Runs:
    """Makes runs that began in the past, relative to `now`."""

    node: Node
    now: dt.datetime

    def _ago(self, seconds: float) -> dt.datetime:
        return self.now - dt.timedelta(seconds=seconds)

    def _new(self, experiment: Experiment, by: User, began_s: float) -> TrainingRun:
        return services.run_experiment(experiment, by=by, now=self._ago(began_s + 2))[0]

    def _slot(self, index: int) -> Slot:
        return Slot.objects.get(node=self.node, index=index)

    def _move(self, run: TrainingRun, state: str, at_s: float, reason: str, actor: User | None = None) -> None:
        RunTransition.objects.create(run=run, at=self._ago(at_s), old=run.state, new=state, reason=reason, actor=actor)
        TrainingRun.objects.filter(pk=run.pk).update(state=state, state_reason=reason)
        run.state = state

    def _grant(self, run: TrainingRun, index: int, begin_s: float, end_s: float | None, reason: str, leaving: str = "") -> None:
        Grant.objects.create(
            run=run,
            slot=self._slot(index),
            granted_at=self._ago(begin_s),
            reason=reason,
            release_requested_at=None if end_s is None else self._ago(end_s),
            release_reason=leaving,
            released_at=None if end_s is None else self._ago(end_s),
        )

    def live(
        self, experiment: Experiment, by: User, *, began_s: float, slots: list[int], was: list[int], until_s: float, steps: int
    ) -> TrainingRun:
        """A run that trains on `slots` since `began_s` seconds ago, and held `was` too until `until_s` ago."""
        run = self._new(experiment, by, began_s)
        for index in (*slots, *was):
            why = "bob's run Baseline started: both people get half of the slots"
            end_s = until_s if index in was else None
            self._grant(run, index, began_s, end_s, "free slots, and nobody else asked for them", why if index in was else "")
        self._move(run, RunState.STARTING, began_s + 1, "got its first slots")
        self._move(run, RunState.RUNNING, began_s, "first step")
        reason = f"holds {len(slots)} of 4 slots: {by.username}'s fair share while two people have work"
        TrainingRun.objects.filter(pk=run.pk).update(started_at=self._ago(began_s), plan_reason=reason, head_node=self.node)
        changes = [(began_s, len(slots) + len(was), 0)]
        if was:
            changes.append((until_s, len(slots), len(slots) + len(was)))
        self._journal(run, began_s=began_s, ended_s=0, steps=steps, changes=changes, outcome="")
        _write(runfiles.folder(run) / "log" / "driver" / "console.log", b"INFO training begins\n")
        measured.use(run, [self._slot(index).pk for index in slots], began_s=began_s, now=self.now)
        return TrainingRun.objects.get(pk=run.pk)

    def ended(self, experiment: Experiment, by: User, *, began_s: float, lasted_s: float, state: str, steps: int) -> TrainingRun:
        run = self._new(experiment, by, began_s)
        for index in range(4):
            self._grant(run, index, began_s, began_s - lasted_s, "free slots, and nobody else asked for them", "the run ended")
        self._move(run, RunState.STARTING, began_s + 1, "got its first slots")
        if steps:
            self._move(run, RunState.RUNNING, began_s, "first step")
        why = {RunState.FAILED: "FileNotFoundError: no file train-images.npy", RunState.STOPPED: "stopped by alice: wrong data"}
        self._move(run, state, began_s - lasted_s, why.get(RunState(state), "the script ended"))
        TrainingRun.objects.filter(pk=run.pk).update(
            started_at=self._ago(began_s) if steps else None,
            ended_at=self._ago(began_s - lasted_s),
            queue_position=None,
            plan_reason="",
            head_node=self.node,
            exit_code=1 if state == RunState.FAILED else 0,
        )
        self._journal(run, began_s=began_s, ended_s=began_s - lasted_s, steps=steps, changes=[(began_s, 4, 0)], outcome=state)
        TrainingRun.objects.filter(pk=run.pk).update(state=state, ended_at=self._ago(began_s - lasted_s))
        self._files(run)
        return TrainingRun.objects.get(pk=run.pk)

    def waiting(self, experiment: Experiment, by: User) -> TrainingRun:
        run = self._new(experiment, by, 40)
        reason = "needs 1 slot; the next is expected in about 4 min, when alice's run Learning rates ends"
        TrainingRun.objects.filter(pk=run.pk).update(plan_reason=reason, queue_position=1, expected_start_s=240)
        return TrainingRun.objects.get(pk=run.pk)

    def _journal(
        self, run: TrainingRun, *, began_s: float, ended_s: float, steps: int, changes: list[tuple[float, int, int]], outcome: str
    ) -> None:
        """Curves between two moments, with a generation at each change (seconds ago, workers, workers before)."""
        begin, end = self._ago(began_s).timestamp(), self._ago(ended_s).timestamp()
        writer = journal_writer.Writer(runfiles.make(run) / journal.FILE_NAME, run.pk)
        total = steps if outcome else int(steps * 1.6)
        writer.write(_started(total), t=begin)
        # a run that is still going draws from a generator of its own; those that have ended are exact
        writer.write(journal.Exactness((LOADED_TWICE, OWN_GENERATOR) if not outcome else (), checked=True, build=""), t=begin)
        ahead = [(self._ago(ago).timestamp(), workers, before) for ago, workers, before in changes] if steps else []
        workers, chance = 0, random.Random(run.pk)
        for step in range(1, steps + 1):
            t = begin + (end - begin) * step / steps
            while ahead and ahead[0][0] <= t:
                at, workers, before = ahead.pop(0)
                writer.write(generation(step, workers, before), t=at)
            writer.write(_train(step, workers, total, chance), t=t)
            if step % max(1, total // 20) == 0:
                writer.write(_test(step, total, chance), t=t)
        if outcome == RunState.FAILED:
            writer.write(journal.Failed(message="FileNotFoundError: no file train-images.npy", traceback=TRACEBACK, where="driver"), t=end)
        if outcome:
            final = {"train loss": 0.0412, "test loss": 0.0533, "test accuracy": 98.61} if steps else {}
            ended = journal.Finished(outcome=outcome, step=steps, epoch=20, metrics=final, elapsed_s=end - begin)  # type: ignore[arg-type]
            writer.write(ended, t=end)
        writer.close()
        ingest.catch_up(run.pk, now=self.now)

    def _files(self, run: TrainingRun) -> None:
        folder = runfiles.folder(run)
        _write(folder / "model" / "model_epoch_20.pth", b"\x80" * 184_320)
        _write(folder / "checkpoint" / "engine_00240.pt", b"\x00" * 412_000)
        lines = "".join(f"2026-11-20 12:{n // 60:02d}:{n % 60:02d} INFO  step {n}: loss {1 / (n + 1):.4f}\n" for n in range(300))
        failed = TRACEBACK if run.state == RunState.FAILED else ""
        _write(folder / "log" / "driver" / "console.log", (lines + failed).encode())
        _write(folder / "log" / "worker-0" / "console.log", b"worker 0 on GPU 0 ready\n")
        _write(folder / "confusion.png", written.squares(10))
        _write(folder / "classes.csv", b"digit,right,wrong\n0,972,8\n1,1128,7\n")
        for name, data in written.tabular().items():
            _write(folder / "tables" / name, data)
        for name, data in written.looks().items():
            _write(folder / name, data)


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def _started(total: int) -> journal.Started:
    shape = {"engines": 4, "batch_size": 256, "epochs": 20, "samples": 5120, "seed": 1, "parameters": 431_080, "state_bytes": 3_400_000}
    return journal.Started(attempt=1, steps_per_epoch=max(1, total // 20), **shape)


def generation(step: int, workers: int, before: int) -> journal.Generation:
    members = tuple(journal.Member(rank=n, slot=n + 1, pid=4000 + n) for n in range(workers))
    reason = "bob's run Baseline started: both people get half of the slots" if before else "the first slots"
    return journal.Generation(
        generation=2 if before else 1,
        step=step,
        epoch=1,
        members=members,
        workers_before=before,
        reason=reason,
        pause_ms=23.4 if before else 0.0,
        redone=0,
    )


def _train(step: int, workers: int, total: int, chance: random.Random) -> journal.Train:
    loss = 2.3 * math.exp(-4 * step / max(1, total)) + 0.05 + chance.gauss(0, 0.04)
    epoch = 1 + step * 20 // max(1, total + 1)
    metrics = {"loss": max(0.01, loss), "accuracy": min(99.9, 100 - 38 * max(0.01, loss) + chance.gauss(0, 1))}
    return journal.Train(step=step, epoch=epoch, metrics=metrics, samples=256, workers=workers, step_s=0.9)


def _test(step: int, total: int, chance: random.Random) -> journal.Test:
    loss = 2.2 * math.exp(-4.2 * step / max(1, total)) + 0.06 + chance.gauss(0, 0.01)
    return journal.Test(step=step, epoch=1 + step * 20 // (total + 1), metrics={"loss": loss, "accuracy": 100 - 37 * loss}, samples=1024)
