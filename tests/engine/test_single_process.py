"""A script that computes in the driver's own process: it begins when it has all of its slots, holds them, and sees their GPUs alone."""

from __future__ import annotations

import pytest

from tests.engine.harness import Run

SCRIPT = """
import os
import torch

threads = [os.environ[f"{name}_NUM_THREADS"] for name in ("OMP", "MKL", "OPENBLAS", "NUMEXPR")]
print("sees", os.environ["CUDA_VISIBLE_DEVICES"], "threads", torch.get_num_threads(), *threads, flush=True)
"""
WAITS = """
import os

print("began", flush=True)
os.read(os.open(os.environ["RESULT_DIR"] + "/end", os.O_RDONLY), 1)
"""


def said(run: Run) -> str:
    return run.log.read_text() if run.log.exists() else ""


def test_it_begins_with_all_of_its_slots_and_sees_their_gpus_alone(start):
    run = start(SCRIPT, elastic=False, device="gpu", max_slots=2)
    for slots in ((), (1,)):
        run.members(*slots)
        run.until(lambda: run.settled == run.revision, what="an answer")
        assert "sees" not in said(run), "it had begun without a slot"
        assert run.holding == (), "what it does not use it does not hold"
    run.members(1, 3)
    assert run.wait() == 0
    assert "sees 1,3 threads 2 2 2 2 2\n" in said(run)


def test_gpus_that_its_slots_share_are_named_once(start):
    run = start(SCRIPT, elastic=False, device="gpu", gpus=2, max_slots=4)
    run.members(0, 1, 2, 3)
    assert run.wait() == 0
    assert "sees 0,1 threads" in said(run)


@pytest.mark.parametrize(("slots", "threads"), [((0,), 1), ((0, 1, 2), 3)])
def test_it_sees_no_gpu_on_slots_that_have_none_and_has_as_many_threads_as_slots(start, slots, threads):
    run = start(SCRIPT, elastic=False, max_slots=len(slots))
    run.members(*slots)
    assert run.wait() == 0
    assert f"sees  threads {threads} {threads} {threads} {threads} {threads}\n" in said(run)


def test_it_holds_its_slots_from_its_first_line_to_its_last(start):
    run = start(WAITS.replace("os.read", "os.mkfifo(os.environ['RESULT_DIR'] + '/end'); os.read"), elastic=False, max_slots=2)
    run.members(2, 5, reason="granted")
    run.until(lambda: "began" in said(run), what="the script's first line")
    run.until(lambda: run.holding == (2, 5), what="it holds both")
    assert set(run.workers.values()) == {run.pid}
    (begun,) = run.events("generation")
    assert (begun.generation, begun.workers_before, begun.reason, [each.pid for each in begun.members]) == (1, 0, "granted", [run.pid])
    (run.result_dir / "end").write_text("x")
    assert run.wait() == 0
    assert [event.outcome for event in run.events("finished")] == ["completed"]


def test_one_whose_slots_were_asked_back_has_not_ended(start):
    """Whoever handles SIGTERM may write a checkpoint and return: it begins again when it has slots, so neither end nor failure is told."""
    script = """
import signal

def save(number, frame):
    raise SystemExit(3)

signal.signal(signal.SIGTERM, save)
print("began", flush=True)
signal.pause()
"""
    run = start(script, elastic=False, max_slots=1)
    run.members(0)
    run.until(lambda: "began" in said(run) and run.holding == (0,), what="the script's first line")
    run.members(reason="bob needs it")
    run.until(lambda: run.settled == run.revision, what="an answer")
    assert run.holding == (0,), "it computes on it until it ends"
    run.kill(0, 15)
    assert run.wait() == 3
    assert not run.events("finished") + run.events("failed")
    run.again()
    run.members(1)
    run.until(lambda: [each.generation for each in run.events("generation")] == [1, 2], what="it has begun again")
    assert run.holding == (1,)
    run.stop()
    assert run.wait() == 0
    assert [event.outcome for event in run.events("finished")] == ["stopped"]


SAVES = """
import atexit, signal, sys, time

def save(word):
    open("saved", "w").write(word)

atexit.register(print, "the end")
if "handles" in sys.argv:
    signal.signal(signal.SIGTERM, lambda *_: (save("told"), sys.exit(3)))
print("began", flush=True)
try:
    time.sleep(600)
except KeyboardInterrupt:
    save("interrupted")
    raise
"""


@pytest.mark.parametrize(("how", "saved"), [("handles", "told"), ("does not", "interrupted")])
def test_one_that_is_stopped_is_told_and_may_save_what_it_has(start, how, saved):
    run = start(SAVES, how, elastic=False, max_slots=1)
    run.members(0)
    run.until(lambda: "began" in said(run), what="the script's first line")
    run.stop()
    assert run.wait() == 0
    assert (run.code_dir / "saved").read_text() == saved
    assert "the end" in said(run)
    assert [event.outcome for event in run.events("finished")] == ["stopped"]
    assert not run.events("failed") + run.events("error")


def test_one_that_is_stopped_before_it_has_a_slot_never_begins(start):
    run = start(SCRIPT, elastic=False)
    run.stop()
    assert run.wait() == 0
    assert "sees" not in said(run)
    assert [event.outcome for event in run.events("finished")] == ["stopped"]
