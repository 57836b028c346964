"""What a fit of Keras saves beside weights: plain attributes, generators, and which files stay."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from training_runtime.elastic.trainers import generators, keras_state, plain
from training_runtime.elastic.trainers.keras_data import Position
from training_runtime.elastic.trainers.keras_state import MOST_FITS, FitState

VALUES = [None, True, 1 << 80, 0.1, float("inf"), "é", [1, [2]], (1, ("a",)), {1: {"a": (2,)}, "b": []}, np.float32(0.1), np.arange(3)]


def of_callbacks(callbacks: list[tuple[str, dict[str, object]]]) -> FitState:
    position = Position(1, 2, 2, generators.states([]), None, generators.states([]), [{}])
    return FitState(3, False, 7, position, {"loss": 0.5}, False, callbacks, [np.ones((2, 3), np.float32)], [], "a fit")


def test_what_is_plain_comes_back_with_its_types(tmp_path: Path) -> None:
    keras_state.write(tmp_path / "file.npz", of_callbacks([("Own", {"values": VALUES})]))
    state = keras_state.read(tmp_path / "file.npz")
    ((name, attributes),) = state.callbacks
    assert (name, repr(attributes["values"])) == ("Own", repr(VALUES))
    assert [type(each) for each in attributes["values"]] == [type(each) for each in VALUES]
    assert (state.epoch, state.position.batches, state.logs) == (3, 2, {"loss": 0.5})
    assert state.variables[0].dtype == np.float32


def test_a_file_that_is_damaged_is_not_believed(tmp_path: Path) -> None:
    keras_state.write(path := tmp_path / "file.npz", of_callbacks([]))
    whole = path.read_bytes()
    for damaged in (b"", whole[:-30], whole.replace(b"a fit", b"a fat")):
        path.write_bytes(damaged)
        with pytest.raises(Exception, match=r".*"):
            keras_state.read(path)


def test_only_what_has_changed_and_is_plain_counts() -> None:
    one = SimpleNamespace(
        wait=0, best=None, model=threading.Lock(), log=[1], rows=np.arange(5), large=list(range(20_000)), names=["a"] * 20_000
    )
    before = plain.digests(one, plain.MOST_BYTES)
    one.wait, one.model, one.rows[0] = 1, threading.Lock(), 7
    one.log.append(2)
    one.large.reverse()
    one.names.append("b")
    changed = plain.changes(one, before, plain.MOST_BYTES)
    one.log.append(3)
    assert (changed.pop("rows") == [7, 1, 2, 3, 4]).all()
    assert changed == {"wait": 1, "log": [1, 2], "large": list(reversed(range(20_000)))}


def test_generators_go_on_where_they_were() -> None:
    owner = SimpleNamespace(a=torch.Generator(), b=np.random.default_rng(1), c=np.random.RandomState(1), d=random.Random(1), e=1)
    own = generators.belonging_to([owner, owner, np.zeros(1)])
    draws = [
        lambda: torch.rand(1, generator=owner.a).item(),
        owner.b.random,
        owner.c.random,
        owner.d.random,
        random.random,
        np.random.random,
        lambda: torch.rand(1).item(),
    ]
    arrays = list[object]()
    states = plain.encode(generators.states(own), arrays)
    before = [draw() for draw in draws]
    generators.restore(plain.decode(states, arrays), own)
    assert [draw() for draw in draws] == before
    assert len(own) == 4


def test_the_ends_of_many_fits_stay_as_long_as_they_are_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = range(1, MOST_FITS + 6)
    for number in numbers:
        folder = tmp_path / f"keras-{number}"
        folder.mkdir()
        (folder / "epoch-3-batch-0-end.npz").write_bytes(b"1234")
    keras_state.keep_newest(tmp_path / f"keras-{numbers[-1]}", numbers[-1])
    assert len(list(tmp_path.iterdir())) == len(numbers)
    for own in ("keras-model-1", "keras-1"):  # of the script
        (tmp_path / own).mkdir(exist_ok=True)
        (tmp_path / own / "epoch-3.npz").write_bytes(b"1234")
    monkeypatch.setattr(keras_state, "MOST_BYTES", 4 * (MOST_FITS + 2))
    keras_state.keep_newest(tmp_path / f"keras-{numbers[-1]}", numbers[-1])
    kept = {f"keras-{number}" for number in numbers[-MOST_FITS - 2 :]}
    assert {path.name for path in tmp_path.iterdir()} == kept | {"keras-model-1", "keras-1"}
    assert [path.name for path in (tmp_path / "keras-1").iterdir()] == ["epoch-3.npz"]
