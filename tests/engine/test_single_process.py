"""A script that computes in the driver's own process: it begins when its slots are known, and sees the GPUs of those alone."""

from __future__ import annotations

from tests.engine.harness import Run

SCRIPT = """
import os

print("sees", os.environ["CUDA_VISIBLE_DEVICES"], flush=True)
"""


def said(run: Run) -> str:
    return run.log.read_text() if run.log.exists() else ""


def test_it_begins_with_its_slots_and_sees_their_gpus_alone(start):
    run = start(SCRIPT, elastic=False, device="gpu")
    run.members()
    run.until(lambda: run.settled == run.revision, what="an answer")
    assert "sees" not in said(run), "it had begun without a slot"
    run.members(1, 3)
    assert run.wait() == 0
    assert "sees 1,3\n" in said(run)


def test_it_sees_no_gpu_on_slots_that_have_none(start):
    run = start(SCRIPT, elastic=False)
    run.members(0)
    assert run.wait() == 0
    assert "sees \n" in said(run)


def test_one_that_is_stopped_before_it_has_a_slot_never_begins(start):
    run = start(SCRIPT, elastic=False)
    run.stop()
    assert run.wait() == 0
    assert "sees" not in said(run)
    assert [event.outcome for event in run.events("finished")] == ["stopped"]
