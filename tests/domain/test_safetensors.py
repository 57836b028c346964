"""What torch.save wrote, as safetensors: the same values, made by a boxed child that has no torch and calls nothing that a file names."""

from __future__ import annotations

import os
import pickle
import tempfile
import zipfile
from pathlib import Path
from typing import Any, BinaryIO

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load as load_safetensors

from experiments.boxed import statedict
from experiments.files import weights

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]
DTYPES += [torch.bool, torch.float8_e4m3fn, torch.float8_e5m2]


def _empty() -> BinaryIO:
    return tempfile.TemporaryFile()  # who asked for it closes it


def saved(thing: Any, **how: Any) -> BinaryIO:
    file = _empty()
    torch.save(thing, file, **how)
    file.flush()
    return file


def converted(file: BinaryIO) -> tuple[dict[str, torch.Tensor], list[str]]:
    """By the boxed child."""
    with tempfile.TemporaryFile() as into:
        left = weights.as_safetensors(file, into)
        into.seek(0)
        return load_safetensors(into.read()), left


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    def bits(tensor: torch.Tensor) -> bytes:
        return bytes(tensor.detach().contiguous().flatten().view(torch.uint8).numpy()) if tensor.numel() else b""

    return one.dtype == other.dtype and one.shape == other.shape and bits(one) == bits(other)


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.last = torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Linear(4, 2)
        self.tied = self.last


def test_a_state_dict_comes_out_with_the_same_values() -> None:
    state = Net().state_dict()
    found, left = converted(saved(state))
    assert found.keys() == state.keys()
    assert all(same(found[name], value) for name, value in state.items())
    assert left == []


@settings(max_examples=25)
@given(
    shapes=st.lists(st.lists(st.integers(0, 4), max_size=3), min_size=1, max_size=4),
    dtypes=st.lists(st.sampled_from(DTYPES), min_size=4, max_size=4),
    seed=st.integers(0, 1000),
)
def test_every_kind_of_tensor_comes_out_as_it_went_in(shapes: list[list[int]], dtypes: list[torch.dtype], seed: int) -> None:
    """Without the box, which each call would begin anew."""
    torch.manual_seed(seed)
    state = {f"layer.{n}": (4 * torch.randn(shape)).to(dtype) for n, (shape, dtype) in enumerate(zip(shapes, dtypes, strict=False))}
    state["part"] = torch.arange(12).reshape(3, 4)[1:]  # of a storage that is larger
    with saved(state) as file, tempfile.TemporaryFile() as into:
        answer = statedict.safetensors([_again(file), _again(into)])
        assert answer["refused"] == ""
        into.seek(0)
        found = load_safetensors(into.read())
    assert found.keys() == state.keys()
    assert all(same(found[name], value) for name, value in state.items())


def _again(file: BinaryIO) -> int:
    return os.dup(file.fileno())


def test_a_checkpoint_with_more_in_it_gives_its_weights_and_says_what_is_left_out() -> None:
    net = Net()
    optimizer = {"state": {0: {"exp_avg": torch.ones(2)}}}
    found, _ = converted(saved({"epoch": 3, "args": Odd(), "model_state_dict": net.state_dict(), "optimizer": optimizer}))
    assert found.keys() == net.state_dict().keys()
    found, left = converted(saved({"weight": torch.ones(2), "epoch": 3}))
    assert (list(found), left) == (["weight"], ["epoch"])


class Odd:
    def __init__(self) -> None:
        self.lr = 0.1


class Harm:
    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path(Harm.at),)

    at = ""


def test_nothing_that_a_file_names_is_called(tmp_path: Path) -> None:
    Harm.at = str(tmp_path / "called")
    state = {"weight": torch.ones(2), "harm": Harm()}
    with saved(state) as file, tempfile.TemporaryFile() as into:
        assert statedict.safetensors([_again(file), _again(into)])["left"] == ["harm"]
    assert not Path(Harm.at).exists()
    with saved(state) as file:
        file.seek(0)
        torch.load(file, weights_only=False)
    assert Path(Harm.at).exists(), "it would have been"


def _zip(**entries: bytes) -> BinaryIO:
    file = _empty()
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in entries.items():
            archive.writestr(f"archive/{name.replace('__', '/').replace('_pkl', '.pkl')}", data)
    file.flush()
    return file


def _cut() -> BinaryIO:
    """It says that a tensor is longer than its values are."""
    whole = saved({"weight": torch.ones(8)})
    with zipfile.ZipFile(whole) as archive:
        name = next(name for name in archive.namelist() if name.endswith("data.pkl"))
        return _zip(data_pkl=archive.read(name), data__0=b"\0" * 8)


REFUSED = {
    "a whole model": (lambda: saved(Net()), "whole object"),
    "no tensors": (lambda: saved({"epoch": 3}), "no tensors by name"),
    "a list": (lambda: saved([torch.ones(2)]), "whole object"),
    "another layout": (lambda: saved({"w": torch.ones(2, 3).t()}), "contiguous"),
    "complex numbers": (lambda: saved({"w": torch.ones(2, dtype=torch.complex64)}), "no tensors by name"),
    "the form of before 2020": (lambda: saved({"w": torch.ones(2)}, _use_new_zipfile_serialization=False), "torch.save did not write it"),
    "no pickle": (lambda: _zip(data_pkl=b"nonsense"), "whole object"),
    "no zip": (lambda: _file(b"nonsense"), "torch.save did not write it"),
    "cut short": (_cut, "cut short"),
    "one storage under many names": (lambda: saved(dict.fromkeys(map(str, range(500)), torch.ones(5000))), "share their values"),
}


def _file(content: bytes) -> BinaryIO:
    file = _empty()
    file.write(content)
    file.flush()
    return file


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_made_into_it_is_said(what: str) -> None:
    make, why = REFUSED[what]
    with pytest.raises(weights.NotConverted, match=why):
        converted(make())


@settings(max_examples=60)
@given(data=st.binary(max_size=200), protocol=st.sampled_from([2, 4]))
def test_a_pickle_of_anything_is_refused_with_a_sentence(data: bytes, protocol: int) -> None:
    for content in (data, pickle.dumps({"w": data, "x": [data, {1: None}]}, protocol=protocol)):
        with _zip(data_pkl=content) as file, tempfile.TemporaryFile() as into:
            assert statedict.safetensors([_again(file), _again(into)])["refused"]
