"""A state that another run has left: all that is plain is taken, and nothing in it is called."""

from __future__ import annotations

import collections
import os
import pickle
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.engine.test_state import digests, job_of, own, read, stepped
from training_runtime.elastic.job import Job
from training_runtime.elastic.state import capture, checkpoint, pickling, transfer
from training_runtime.errors import UserError

__all__ = ["own"]  # a fixture


def inherited(source: Job, target: Job) -> None:
    checkpoint.save_engine(source, source.shape(8, 0), 5)
    checkpoint.engine_path(source.result_dir).replace(checkpoint.inherited_path(target.result_dir))


@pytest.fixture
def two(tmp_path, own) -> tuple[Job, Job]:
    (tmp_path / "mine" / "checkpoint").mkdir(parents=True)
    return job_of(tmp_path / "theirs", own.Callback()), job_of(tmp_path / "mine", own.Callback(), seed=2)


def test_another_runs_state_is_continued_with_all_that_is_plain_and_with_the_scripts_own_classes(two, own):
    theirs, mine = two
    (callback,) = theirs.user_callbacks
    callback.values = [1, "a", {2.0}, np.float64(3), np.arange(3), collections.deque([4]), own.Mode.WARM, own.Best(1.0, [5])]
    callback.average = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    callback.groups = theirs.optimizer.param_groups
    inherited(stepped(theirs), mine)
    assert checkpoint.find(mine, mine.shape(8, 0)).newest == checkpoint.CheckpointFile(checkpoint.inherited_path(mine.result_dir), 5, True)
    assert read(mine)
    assert digests(mine) == digests(theirs)
    got = mine.user_callbacks[0]
    assert str(got.values) == str(callback.values)
    assert got.groups is mine.optimizer.param_groups
    assert torch.equal(got.average[0].weight, callback.average[0].weight)


class Calls:
    """Pickled as a call of `function`."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.made = function, arguments

    def __reduce__(self) -> Any:
        return self.made


def attacks(touched: Path) -> dict[str, Any]:
    return {
        "a command": Calls(os.system, f"touch {touched}"),
        "evaluated": Calls(eval, f"open({str(touched)!r}, 'w')"),
        "a class that is called": Calls(types.SimpleNamespace),
        "through an attribute": Calls(getattr, "text", "join"),
        "inside of what is allowed": collections.deque([Calls(os.mkdir, str(touched))]),
        "a torch function": Calls(torch.load, str(touched)),
        "a part of a module": Calls(pickle.loads, b"cos\nsystem\n(S'true'\ntR."),
    }


@pytest.mark.parametrize("attack", list(attacks(Path())))
def test_another_runs_state_calls_nothing(two, attack, tmp_path):
    theirs, mine = two
    theirs.user_callbacks[0].value = attacks(tmp_path / "touched")[attack]
    real, pickling.can_be_pickled = pickling.can_be_pickled, lambda *_: True  # a writer of their own
    try:
        state_of, capture.read_back = capture.read_back, lambda *_: None
        inherited(theirs, mine)
    finally:
        pickling.can_be_pickled, capture.read_back = real, state_of
    with pytest.raises(UserError, match=r"the checkpoint of the other run holds a .* which is not taken over from another run"):
        read(mine)
    assert not (tmp_path / "touched").exists()


RAW = {
    "a global in old form": b"cos\nsystem\n(S'true'\ntR.",
    "an instance in old form": b"(S'true'\nios\nsystem\n.",
    "a dotted name": pickle.PROTO + b"\x04\x8c\x08builtins\x8c\x0alist.count\x93.",
    "a function in a module of the script": pickle.PROTO + b"\x04\x8c\x0down_of_script\x8c\x06double\x93.",
    "what a module of the script has imported": pickle.PROTO + b"\x04\x8c\x0down_of_script\x8c\x09threading\x93.",
    "a change of a class": pickle.PROTO + b"\x04\x8c\x0down_of_script\x8c\x04Best\x93}\x8c\x04loss\x8c\x03badsb.",
    "an extension": pickle.PROTO + b"\x04\x82\x01.",
}


@pytest.mark.parametrize("form", list(RAW))
def test_bytes_that_no_pickler_would_write_are_refused(own, form):
    with pytest.raises(pickling.Refused):
        pickling.Reader({}.__getitem__, [], torch.device("cpu")).loads(RAW[form], foreign=True)


def test_an_index_holds_nothing_but_places(tmp_path):
    raw = pickle.dumps(Calls(os.system, "true"))
    fd = os.memfd_create("state")
    transfer.write_all(fd, memoryview((16).to_bytes(8, "little") + len(raw).to_bytes(8, "little") + raw), 0)
    with pytest.raises(pickle.UnpicklingError, match="does not belong into a packed state"):
        transfer.index_of(fd)
    os.close(fd)


def test_a_damaged_state_of_another_run_is_said_to_be_that(two):
    theirs, mine = two
    inherited(theirs, mine)
    path = checkpoint.inherited_path(mine.result_dir)
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(UserError, match=r"the checkpoint of the run to continue cannot be used: inherited\.pt ends too early"):
        checkpoint.find(mine, mine.shape(8, 0))
