"""pth_parameter_mgr: training parameters and data sets for scripts that have them from a form instead of their own code.

Here the form is the command line of the run (`main.py --epochs 5 --lr 0.01`), or `config.json` in the working folder; what neither says
has the default below. Data sets lie in DATA_DIR as `train` and `test` (or `val`): a file NAME.pt with (inputs, targets), two tensors, or
a folder NAME with a folder of images for each class, which takes torchvision.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from training_runtime.errors import UserError

DEFAULTS: dict[str, Any] = {
    "epochs": 1,
    "batch_size": 64,
    "test_batch_size": 64,
    "lr": 0.01,
    "momentum": 0.0,
    "weight_decay": 0.0,
    "optimizer": "SGD",
}
OTHER_NAMES = {"epoch": "epochs", "learning_rate": "lr", "train_batch_size": "batch_size", "batchsize": "batch_size", "bs": "batch_size"}


def getEpoch() -> int:
    """Epochs to train; 1 where nothing says it. UserError where it is no whole number."""
    return int(value("epochs"))


def getTrainBatchSize() -> int:
    """Samples of a training batch; 64 where nothing says it. UserError where it is no whole number."""
    return int(value("batch_size"))


def getTestBatchSize() -> int:
    """Samples of a test batch; 64 where nothing says it. UserError where it is no whole number."""
    return int(value("test_batch_size"))


def getLearningRate() -> float:
    """0.01 where nothing says it. UserError where it is no number."""
    return float(value("lr"))


def getOptimizer(model: nn.Module) -> torch.optim.Optimizer:
    """The torch.optim class that is named, with those of the parameters that it takes."""
    name = str(value("optimizer"))
    kinds = {kind.lower(): kind for kind in dir(torch.optim) if isinstance(getattr(torch.optim, kind), type) and kind != "Optimizer"}
    if name.lower() not in kinds:
        raise UserError(f"pth_parameter_mgr: there is no optimizer {name!r}: name a class of torch.optim, as in --optimizer SGD")
    made: Any = getattr(torch.optim, kinds[name.lower()])
    takes = made.__init__.__code__.co_varnames
    wanted = {name: float(value(name)) for name in ("lr", "momentum", "weight_decay") if name in takes}
    optimizer: torch.optim.Optimizer = made(model.parameters(), **wanted)
    return optimizer


def getTrainData(loader: bool = True) -> Any:
    """A DataLoader, or the data set itself where `loader` is False, as FabricModel wants it."""
    data = _data("train")
    return DataLoader(data, getTrainBatchSize(), shuffle=True) if loader else data


def getTestData(loader: bool = True) -> Any:
    """As `getTrainData`, of `test`, `val` or `validation`, in order; a DataLoader does not shuffle. UserError where none is there."""
    data = _data("test", "val", "validation")
    return DataLoader(data, getTestBatchSize()) if loader else data


def value(name: str) -> Any:
    """Of one parameter: from the command line, `config.json`, or its default."""
    for found in (_from_command_line(), _configured()):
        if name in found:
            return _checked(name, found[name])
    return DEFAULTS[name]


def _checked(name: str, found: Any) -> Any:
    """A number where the default is one."""
    kind = type(DEFAULTS[name])
    try:
        return kind(found)
    except (TypeError, ValueError):
        raise UserError(f"pth_parameter_mgr: {name} must be {'a number' if kind is not str else 'a name'}, not {found!r}") from None


def _from_command_line() -> dict[str, str]:
    """Of `--name value` and `--name=value`."""
    found: dict[str, str] = {}
    for word, following in zip(sys.argv[1:], [*sys.argv[2:], ""], strict=True):
        if word.startswith("--"):
            name, equals, after = word[2:].partition("=")
            found[_named(name)] = after if equals else following
    return found


def _configured() -> dict[str, Any]:
    path = Path("config.json")
    found = json.loads(path.read_text()) if path.is_file() else {}
    return {_named(name): each for name, each in found.items()} if isinstance(found, dict) else {}


def _named(name: str) -> str:
    plain = name.replace("-", "_").lower()
    return OTHER_NAMES.get(plain, plain)


def _data(*names: str) -> Any:
    folder = Path(os.environ.get("DATA_DIR") or ".")
    for name in names:
        if (file := folder / f"{name}.pt").is_file():
            return TensorDataset(*torch.load(file, weights_only=True))
        if (folder / name).is_dir():
            return _images(folder / name)
    wanted = " or ".join(f"{name}.pt, or a folder {name} with a folder of images for each class" for name in names[:2])
    raise UserError(f"pth_parameter_mgr: the data folder {folder} has no {wanted}: choose another source files folder")


def _images(folder: Path) -> Any:
    from torchvision import datasets, transforms

    return datasets.ImageFolder(str(folder), transforms.ToTensor())
