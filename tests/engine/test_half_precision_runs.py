"""Law 1 for parameters of half precision, with real processes: the same bits, by whatever way gradients meet and whoever adds them."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.engine.harness import Run
from tests.engine.scripts import LOOP, SMALL
from tests.engine.test_exactness import OWN_ROWS, goes_4_2_3_1_4
from tests.engine.test_loop import same
from tests.engine.test_remote_agents import LONG
from training_runtime.elastic.state import checkpoint
from training_runtime.fabric.running import NARROW_SUMS

BFLOAT16 = ("--dtype", "bfloat16")
EIGHT = ("--epochs", "24", "--samples", "235", "--engines", "8")
# As a release trains that added gradients of half precision in their own dtype.
EARLIER = """
from training_runtime.elastic.state import checkpoint as _checkpoint
from training_runtime.fabric import running as _running
_checkpoint.has_wide_sums, _running._warn_of_narrow_sums = lambda folder: False, lambda *_: None
"""


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize(
    ("either_way", "dtype", "optimizer"),
    [("segment", "bfloat16", "Clipped"), ("segment", "float16", "SGD"), ("collective", "bfloat16", "SGD")],
    indirect=["either_way"],
)
def test_a_run_of_half_precision_that_goes_4_2_3_1_4_equals_a_fixed_one(start, fixed, dtype, optimizer):
    options = (*EIGHT, "--dtype", dtype, "--optimizer", optimizer)
    run = start(SMALL, *options)
    goes_4_2_3_1_4(run)
    same_as(run, fixed(*options))
    assert all(value == value for _, _, metrics, _ in run.train_lines() for _, value in metrics), "it has learnt, and is not broken"


@pytest.mark.parametrize("which", ["True", "context.slot % 2 == 0"], ids=["all", "some"])
def test_workers_that_add_up_half_precision_in_memory_of_their_own_get_the_same(start, fixed, which):
    run = start(OWN_ROWS.format(which=which) + SMALL, *EIGHT, *BFLOAT16)
    goes_4_2_3_1_4(run)
    same_as(run, fixed(*EIGHT, *BFLOAT16))


def test_workers_that_share_the_optimizers_step_out_get_the_same_in_half_precision(start, fixed):
    run = start(SMALL, *EIGHT, *BFLOAT16, "--sharded", "parameters")
    goes_4_2_3_1_4(run)
    same_as(run, fixed(*EIGHT, *BFLOAT16))


@pytest.mark.usefixtures("either_way")
def test_a_run_of_half_precision_that_goes_over_three_machines_and_leaves_home_equals_a_fixed_one(together, fixed):
    run, near, far = together((0, 1), (10,), (20,), more=BFLOAT16)
    run.members()  # nobody is left at the head node
    run.until_workers(2)
    far.members()
    run.until_workers(1)
    run.members(1, 2)
    near.members()
    run.until_workers(2)
    assert run.wait() == 0, run.tail()
    assert (near.wait(), far.wait()) == (0, 0)
    same_as(run, fixed(*LONG, *BFLOAT16))


def test_a_loop_of_the_scripts_own_with_two_passes_a_part_is_the_same_in_half_precision(start, fixed):
    options = (*LONG, *BFLOAT16)
    run = start(LOOP, *options)
    goes_4_2_3_1_4(run)
    same(run, fixed(*options, script=LOOP))


def test_a_run_goes_on_from_a_state_of_an_earlier_release_as_it_began_and_says_so(start, fixed):
    run = start(EARLIER + SMALL, *EIGHT, *BFLOAT16)
    go_on_with_this_release(run)
    same_as(run, fixed(*EIGHT, *BFLOAT16, script=EARLIER + SMALL))
    assert run.weights() != fixed(*EIGHT, *BFLOAT16).weights(), "new runs are another training"
    assert [warned.message for warned in run.events("warning")].count(NARROW_SUMS) == 1
    assert not checkpoint.has_wide_sums(run.result_dir), "nor does it change on its further way"


def test_a_float32_run_goes_on_from_a_state_of_an_earlier_release_without_a_word(start, fixed):
    run = start(EARLIER + SMALL, *EIGHT)
    go_on_with_this_release(run)
    same_as(run, fixed(*EIGHT))
    assert NARROW_SUMS not in [warned.message for warned in run.events("warning")]


def same_as(run: Run, one: Run) -> None:
    assert run.weights() == one.weights()
    assert run.train_lines() == one.train_lines()
    assert run.test_lines() == one.test_lines()


def go_on_with_this_release(run: Run) -> None:
    """Suspended in the middle, to its end as a script that patches nothing."""
    run.members(0, 1, 2)
    run.until_step(50)
    run.members(reason="an upgrade")
    run.until(lambda: run.events("suspended") and run.holding == (), what="suspended")
    os.kill(run.pid, signal.SIGKILL)
    run.warm.wait(run.pid)
    forget_how_it_adds(checkpoint.engine_path(run.result_dir))
    (run.code_dir / "main.py").write_text(SMALL)
    run.again()
    run.members(1, 3)
    assert run.wait() == 0, run.tail()


def forget_how_it_adds(path: Path) -> None:
    """Make the state that is there one of a release that did not say."""
    raw, mark = path.read_bytes(), b"EDTSTATE"
    end = len(raw) - len(mark) - 8
    begin = end - int.from_bytes(raw[end : end + 8], "little")
    line = json.loads(raw[begin:end])
    assert line["shape"].pop("wide_sums") == 0
    text = json.dumps(line).encode()
    path.write_bytes(raw[:begin] + text + len(text).to_bytes(8, "little") + mark)
