"""The digest of the state: the same for the same values wherever they lie, another one for any other; and runs whose workers differ."""

from __future__ import annotations

import os
import signal

import pytest
import torch

from tests.engine.scripts import SMALL
from training_runtime.elastic.comm.segment import Layout, Segment
from training_runtime.elastic.state import digest
from training_runtime.errors import UserError

LARGE = 3 * (1 << 16) + 5  # more than one row of words, the last one not full


def values(count: int = LARGE, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(count, generator=torch.Generator().manual_seed(1)).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int8, torch.bool, torch.complex64])
def test_it_does_not_depend_on_strides_or_on_where_a_tensor_begins(dtype):
    t = values(6 * 4 * 5 * 700, dtype).view(6, 4, 5, 700)
    same = digest.of([t])
    assert digest.of([t.contiguous(memory_format=torch.channels_last)]) == same
    room = torch.zeros(t.numel() + 1, dtype=dtype)
    room[1:] = t.flatten()
    assert digest.of([room[1:].view(t.shape)]) == same
    assert digest.of([t.flatten()]) != same, "another shape"


def test_it_does_not_depend_on_the_number_of_threads():
    t, before = values(), torch.get_num_threads()
    found = set()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.add(digest.of([t]))
    finally:
        torch.set_num_threads(before)
    assert len(found) == 1


@pytest.mark.parametrize("count", [1, 7, LARGE])
def test_every_bit_counts(count):
    t = values(count)
    before = digest.of([t])
    for place in {0, count // 2, count - 1}:
        for bit in range(32):
            other = t.clone()
            other.view(torch.int32)[place] ^= 1 << bit if bit < 31 else -(2**31)
            assert digest.of([other]) != before, f"bit {bit} of element {place}"


def test_changes_of_a_sign_do_not_cancel_out():
    """In each 64-bit word they are a difference of 2^63, and two of these are nothing to a sum."""
    t = torch.zeros(2000)
    found = {digest.of([t])}
    for place in range(1, 2000, 2):
        other = t.clone()
        other[1] = other[place] = -0.0
        found.add(digest.of([other]))
    assert len(found) == 1001


def test_two_tensors_that_change_places_and_values_of_another_kind_are_seen():
    a, b = values(5), values(5) + 1
    different = [
        [a, b],
        [b, a],
        [a],
        [a, b, 1],
        [a, b, 1.0],
        [a, b, True],
        [a, b, None],
        [a, b, "1"],
        [a, b, b"1"],
        [[a, b]],
        {"a": a, "b": b},
    ]
    assert len({digest.of(each) for each in different}) == len(different)


def test_the_order_of_keys_and_of_a_set_does_not_count():
    assert digest.of({"a": 1, "b": 2}) == digest.of({"b": 2, "a": 1})
    assert digest.of({f"{i}" for i in range(50)}) == digest.of({f"{i}" for i in reversed(range(50))})


def test_what_holds_itself_is_hashed_all_the_same():
    held: list[object] = [1]
    held.append(held)
    assert digest.of(held) != digest.of([1])


def layout() -> Layout:
    return Layout(max_workers=4, engines=1, columns=1, parameters=1, test_batches=0, buffer_bytes=0, flat_buffers=())


@pytest.fixture
def replicas():
    fd = os.memfd_create("words")
    yield digest.Replicas(Segment(fd, layout(), create=True))
    os.close(fd)


def told(**changed: int) -> dict[str, int]:
    return {name: changed.get(name, -5) for name in digest.SECTIONS}


def test_workers_that_agree_are_one_group(replicas):
    for worker_id in (0, 2, 3):
        replicas.tell(worker_id, 1, told())
    assert replicas.compare((0, 2, 3), 1) == ((), [[0, 2, 3]])


def test_who_differs_is_named_with_what_differs(replicas):
    for worker_id in (0, 1, 2, 3):
        replicas.tell(worker_id, 0, told(optimizer=worker_id // 3, buffers=7))
    assert replicas.compare((0, 1, 2, 3), 0) == (("optimizer",), [[0, 1, 2], [3]])


def test_what_a_worker_tells_for_the_next_barrier_is_not_taken_for_this_one(replicas):
    replicas.tell(0, 0, told())
    replicas.tell(1, 0, told())
    replicas.tell(1, 1, told(parameters=9))
    assert replicas.compare((0, 1), 0) == ((), [[0, 1]])


def test_a_setting_that_is_no_number_is_named(monkeypatch):
    monkeypatch.setenv(digest.VARIABLE, "often")
    with pytest.raises(UserError, match="EDT_DIGEST_STEPS must be a whole number"):
        digest.every_steps()


# -- runs

LONG = ("--epochs", "3", "--samples", "800")  # 50 steps an epoch
ONE_OF_THEM = """
import os
from training_runtime.elastic.worker.main import Worker
_enter = Worker._enter
def enter(self, number, *, abort):
    _enter(self, number, abort=abort)
    if self.group.rank == 1:
        {change}
Worker._enter = enter
"""


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("hyper-parameters", "self.job.optimizer.param_groups[0]['lr'] *= 1 + 2**-52"),
        ("parameters", "self.job.model[0].weight.data[0, 0, 0, 0] = -0.0"),
        ("modules", "self.job.model[0].weight.requires_grad_(False)"),
    ],
)
def test_a_run_whose_workers_hold_different_states_ends_with_a_sentence(start, part, change):
    run = start(ONE_OF_THEM.format(change=change) + SMALL, *LONG)
    run.members(3, 1)
    assert run.wait() == 1, run.tail()
    (failed,) = run.events("error")
    assert "after step 50 the workers do not hold the same state any more: " in failed.message
    assert part in failed.message
    assert "differ between slot 1 and slot 3" in failed.message or "differ between slot 3 and slot 1" in failed.message
    assert not run.events("checkpoint"), "nothing of it is written"


def test_it_is_found_within_an_epoch_as_well(start):
    change = ONE_OF_THEM.format(change="self.job.optimizer.param_groups[0]['lr'] = 0.5")
    run = start(change + SMALL, *LONG, env={digest.VARIABLE: "10"})
    run.members(0, 1)
    assert run.wait() == 1, run.tail()
    assert "after step 10 the workers do not hold the same state" in run.events("error")[0].message


def test_the_digests_of_an_epochs_end_are_journaled_and_the_same_for_any_number_of_workers(start):
    one, many = start(SMALL, *LONG), start(SMALL, *LONG, env={digest.VARIABLE: "7"})
    one.members(0)
    many.members(0, 1, 2)
    assert one.wait() == 0, one.tail()
    assert many.wait() == 0, many.tail()
    told = [(e.step, e.epoch, e.digest) for e in one.events("digest")]
    assert [(step, epoch) for step, epoch, _ in told] == [(50, 1), (100, 2), (150, 3)]
    assert len({value for _, _, value in told}) == 3
    assert [(e.step, e.epoch, e.digest) for e in many.events("digest")] == told


def test_an_epoch_that_comes_to_another_state_when_it_is_done_again_is_told(start):
    """By which a machine is found that rounds in another way, or a script that is not the same each time."""
    unlike = "import os\nif os.path.exists(os.environ['RESULT_DIR'] + '/again'):\n    os.environ['EDT_SEED'] = '1'\n"
    spoilt = unlike + SMALL.replace(
        "optimizer = {", "args.optimizer = 'SGD' if os.environ.get('EDT_SEED') else args.optimizer\noptimizer = {"
    )
    run = start(spoilt, *LONG, "--checkpoint", "0", "--optimizer", "Nesterov")
    run.members(0)
    run.until(lambda: run.events("digest"), what="a digest")
    (run.result_dir / "again").touch()
    os.killpg(run.pid, signal.SIGKILL)
    run.wait()
    for path in (run.result_dir / "checkpoint").glob("*"):
        path.unlink()
    run.again()
    run.members(0)
    run.until(lambda: run.events("warning"), what="a warning")
    assert "epoch 1 was computed again and came to another state" in run.events("warning")[0].message
    assert len([e for e in run.events("digest") if e.step == 50]) == 1
    run.stop()
    assert run.wait() == 0, run.tail()
