"""Whose fault a worker's end is: a newcomer's is never the run's, a member's exception costs a step once, and old failures do not count."""

from __future__ import annotations

import pytest

from tests.engine.harness import until_gone
from tests.engine.scripts import SMALL
from training_runtime.elastic.driver.failures import FRUITLESS, WINDOW_S, Ended, FailureCause, Failures, Recent

LONG = ("--epochs", "12", "--samples", "115")  # 8 steps an epoch, 96 in all

# Workers on one slot fail in their start, where the file `grow` says so.
BAD_SLOT = """
import os, signal
from training_runtime.elastic.worker import lifecycle as _life
_inner = _life.Lifecycle._prepare
def _prepare(self):
    if self.context.slot == 2 and os.path.exists(os.environ["RESULT_DIR"] + "/bad"):
        {fails}
    _inner(self)
_life.Lifecycle._prepare = _prepare
"""
RAISES_ONCE = """
import os
from training_runtime.elastic.worker import main as _worker
_engine = _worker.Worker._engine
def _fails(self, doing, m):
    if doing.unit.step == 52 and self.group.rank == {rank}:
        try:
            os.close(os.open(os.environ["RESULT_DIR"] + "/once", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            pass
        else:
            raise RuntimeError("CUDA error: unspecified launch failure")
    return _engine(self, doing, m)
_worker.Worker._engine = _fails
"""


def same(run, one) -> None:
    assert run.train_lines() == one.train_lines()
    assert run.test_lines() == one.test_lines()
    assert run.weights() == one.weights()


def warnings(run) -> list[str]:
    return [w.message for w in run.events("warning")]


FAILS = {
    "raise RuntimeError('CUDA error: no such device')": "raised RuntimeError: CUDA error: no such device",
    "raise MemoryError": "ran out of memory (MemoryError)",
    "os.kill(os.getpid(), signal.SIGBUS)": "crashed (SIGBUS)",
    "os._exit(4)": "exited with status 4",
}


@pytest.mark.parametrize("fails", FAILS)
def test_a_slot_on_which_no_worker_can_start_does_not_fail_a_run_that_trains(start, fails):
    run = start(BAD_SLOT.format(fails=fails) + SMALL, "--epochs", "100000")
    run.members(0, 1)
    run.until_step(5)
    (run.result_dir / "bad").touch()
    run.members(0, 1, 2)
    run.until(lambda: len(warnings(run)) == 2, what="a second try")
    first, second = warnings(run)
    assert first == f"a new worker on slot 2 {FAILS[fails]}; the others go on"
    assert "2 workers have failed there within an hour, it is tried again in 4 s" in second
    died = {"raise MemoryError": []}.get(fails, [2, 2])  # somebody else may have taken the memory
    run.until(lambda: [line.slot for line in run.events("died")] == died, what="what the slot may be to blame for")
    (run.result_dir / "bad").unlink()
    run.until_workers(3)  # when it is well again, it is used again
    assert not run.events("error")
    run.stop()
    assert run.wait() == 0, run.tail()


def test_a_slot_that_is_bad_from_the_start_is_left_out_where_another_is_good(start):
    run = start(BAD_SLOT.format(fails="raise RuntimeError('CUDA error')") + SMALL, "--epochs", "100000")
    (run.result_dir / "bad").touch()
    run.members(0, 2)
    run.until_step(3)
    assert not run.events("error")
    run.stop()
    assert run.wait() == 0, run.tail()
    until_gone(run.pid)


def test_a_run_whose_only_slot_is_bad_fails_with_the_traceback(start):
    run = start(BAD_SLOT.format(fails="raise RuntimeError('CUDA error')") + SMALL)
    (run.result_dir / "bad").touch()
    run.members(2)
    assert run.wait() == 1
    (failed,) = run.events("error")
    assert failed.message == "RuntimeError: CUDA error"
    assert "_prepare" in failed.traceback


@pytest.mark.parametrize(("slots", "rank"), [((0, 1), 1), ((0, 1), 0), ((0,), 0)])
def test_an_exception_that_does_not_happen_again_costs_one_step(start, fixed, slots, rank):
    run = start(RAISES_ONCE.format(rank=rank) + SMALL, *LONG)
    run.members(*slots)
    assert run.wait() == 0, run.tail()
    assert [w for w in warnings(run) if "CUDA error" in w and "its step is done again" in w], warnings(run)
    resumed = run.events("resumed")
    assert [r.step for r in resumed] == ([51] if len(slots) == 1 else []), "its state was written down"
    same(run, fixed(*LONG))


SAVES = """
import os, signal
from callbacks import Callback
results = os.environ["RESULT_DIR"]
class Saves(Callback):
    def on_epoch_end(self, epoch, save_model=False):
        for group in self.params["optimizer"].param_groups:
            group["lr"] *= 0.9
        if not save_model:
            return
        if epoch in {dies}:
            try:
                os.close(os.open(results + f"/died-{{epoch}}", os.O_CREAT | os.O_EXCL))
                os.kill(os.getpid(), signal.SIGKILL)
            except FileExistsError:
                pass
        open(results + f"/saved-{{epoch}}", "a").write("saved\\n")
"""


def test_a_model_that_the_first_member_died_over_saving_in_a_hook_is_saved_by_the_next(start):
    epochs = range(12)

    def finish(dies: str, *slots: int):
        code = SAVES.format(dies=dies) + SMALL.replace("optimizer).train", "optimizer, user_callbacks=[Saves()]).train")
        run = start(code, *LONG)
        run.members(*slots)
        assert run.wait() == 0, run.tail()
        assert [(run.result_dir / f"saved-{epoch}").read_text() for epoch in epochs] == ["saved\n"] * 12
        return run

    run = finish("(0, 5, 11)", 0, 1, 2)
    assert all((run.result_dir / f"died-{epoch}").exists() for epoch in (0, 5, 11))
    same(run, finish("()", 0))


def ended(
    cause: FailureCause | None = None, *, slot=0, pid=1, position=5, generation=1, newcomer=False, members=True, others=True
) -> Ended:
    return Ended(slot, pid, position, generation, cause, newcomer=newcomer, members=members, others=others)


RAISED = FailureCause("raised ValueError: oh no", True, "Traceback\nValueError: oh no", raised="ValueError")
NO_MEMORY = FailureCause("ran out of memory", True)


def test_the_same_exception_of_another_process_at_the_same_step_is_the_scripts():
    failures = Failures()
    assert failures.judge(ended(RAISED, pid=1), 0, step=3).failed is None
    assert failures.judge(ended(RAISED, pid=2, slot=1), 1, step=3).failed == ("ValueError: oh no", RAISED.traceback)


def test_exceptions_at_different_steps_are_none_of_the_scripts():
    failures = Failures()
    assert all(failures.judge(ended(RAISED, pid=n, position=n), n * 10, step=n).failed is None for n in range(50))


def test_what_would_only_happen_again_fails_at_once():
    final = FailureCause("raised UserError: no", True, "UserError: no", raised="UserError", final=True)
    assert Failures().judge(ended(final), 0, step=3).failed == ("UserError: no", "UserError: no")


def test_no_newcomer_fails_a_run_whose_members_live():
    failures = Failures()
    for n in range(100):
        cause = (RAISED, NO_MEMORY, None, FailureCause("crashed (SIGSEGV)", False))[n % 4]
        assert failures.judge(ended(cause, pid=n, position=-1, newcomer=True), n, step=3).failed is None


def test_deaths_with_a_cause_before_steps_that_were_done_since_do_not_count():
    failures = Failures()
    for n in range(20):
        assert failures.judge(ended(NO_MEMORY, position=n, generation=n), n * 10, step=n).failed is None
    for n in (30, 31):
        assert failures.judge(ended(NO_MEMORY, position=40, generation=n), n * 10, step=40).failed is None
    message, _ = failures.judge(ended(NO_MEMORY, position=40, generation=32), 320, step=40).failed
    assert message == "3 times at one step a worker ran out of memory"


def test_deaths_without_a_cause_fail_the_run_only_where_no_step_is_done_between():
    failures = Failures()
    for n in range(5 * FRUITLESS):
        assert failures.judge(ended(generation=n), n, step=n).failed is None
    found = [failures.judge(ended(generation=100 + n), 100 + n, step=60).failed for n in range(FRUITLESS + 1)]
    assert found.index(next(filter(None, found))) == FRUITLESS - 1
    assert "not one step was done between" in str(found[FRUITLESS - 1])


def test_workers_that_die_together_are_one_occasion():
    failures = Failures()
    assert all(failures.judge(ended(slot=n, generation=7), 0, step=3).failed is None for n in range(100))


def test_a_slot_is_left_alone_longer_each_time_and_an_hour_later_all_is_forgotten():
    failures, now, pauses = Failures(), 0.0, []
    for n in range(9):
        failures.judge(ended(slot=2, generation=n), now, step=n)
        began = now
        while failures.resting(now):
            now += 0.5
        pauses.append(now - began)
    assert pauses == [0, 0, 0, 1, 4, 16, 64, 256, 1024]
    now += WINDOW_S
    failures.judge(ended(slot=2, generation=10), now, step=100)
    assert not failures.resting(now)


def test_what_happened_lately_is_counted_and_what_happened_long_ago_is_not():
    recent = Recent(600)
    assert [recent.happened(now) for now in (0, 100, 200)] == [1, 2, 3]
    assert [recent.happened(now) for now in (750, 1500, 2500)] == [2, 1, 1]


def test_what_happened_before_a_run_got_on_is_not_counted():
    recent = Recent(600)
    assert [recent.happened(now, step=step) for now, step in ((0, 5), (9, 6), (12, 7))] == [1, 2, 3], "a step or two are not enough"
    assert [recent.happened(now, step=step) for now, step in ((60, 7), (70, 40), (100, 80))] == [4, 1, 1]
