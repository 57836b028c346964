"""What train() was given, as files that another process can train from: a script of three lines, and a payload.

The payload is what torch.save makes with cloudpickle: functions and classes of the notebook travel with what they refer to, tensors apart
and each once. Reading it runs code, so only the process that trains does that (`arrival`). What could not be read there is refused here,
with the way to it.
"""

from __future__ import annotations

import importlib.util
import io
import json
import pickle
import platform
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Any

import torch

from training_runtime.elastic.keras import kind, pickled
from training_runtime.elastic.state import pickling
from training_runtime.errors import UserError
from training_runtime.fabric.notebook import culprit

VERSION = 1
SCRIPT, ABOUT, PAYLOAD = "edt_notebook.py", "payload.json", "payload.pt"
PARENT = "EDT_NOTEBOOK_PARENT"  # for a process on the same machine: the kernel that it ends with
MOST_BYTES = 1 << 30  # of what travels to a studio
SOURCE = f'''"""Made by train() in a notebook: {PAYLOAD} holds its model, functions and callbacks. It runs code when it is read."""

from training_runtime.fabric.notebook import arrival

arrival.train(__file__)
'''
NO_CLOUDPICKLE = "train() in a notebook needs the package cloudpickle: python -m pip install cloudpickle"
NOT_OWN = ("__main__", "__mp_main__", "edt_client")
_DATE = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Call:
    """What FabricModel was made of, and what train() was called with, under today's names. `engines`: None where train() does not say.
    `kept`: what belongs to them and nobody refers to (schedulers)."""

    made: Mapping[str, Any]
    called: Mapping[str, Any]
    engines: int | None = None
    kept: tuple[Any, ...] = ()


class TooLarge(Exception):
    """More than may travel."""


def write(call: Call, folder: Path, *, most_bytes: int | None = None, python_path: tuple[str, ...] = ()) -> None:
    """The script and the payload in `folder`. UserError for what cannot be pickled, and for more than `most_bytes`. `python_path`: where
    the other end looks for modules, too, on the same machine."""
    cloudpickle()
    definitions: dict[str, Any] = {}
    content = {
        "made": dict(call.made),
        "called": dict(call.called),
        "kept": call.kept,
        "definitions": definitions,  # last: it is filled while the others are pickled
    }
    try:
        with open(folder / PAYLOAD, "wb") as file:
            torch.save(content, file, pickle_module=_Module(definitions, most_bytes), pickle_protocol=pickling.PROTOCOL)
    except TooLarge:
        raise UserError(culprit.too_large(call.made, measure, most_bytes or 0)) from None
    except Exception as error:  # whatever an object's own methods raise
        found = culprit.unpicklable(call.made, trouble)
        raise UserError(found or f"train: what it was given cannot be sent: {type(error).__name__}: {error}") from error
    if most_bytes is not None and (folder / PAYLOAD).stat().st_size > most_bytes:
        raise UserError(culprit.too_large(call.made, measure, most_bytes))
    about = {"version": VERSION, "python": platform.python_version(), "torch": torch.__version__, "python_path": python_path}
    (folder / ABOUT).write_text(json.dumps(about))
    (folder / SCRIPT).write_text(SOURCE)


def bundle(folder: Path, target: Path) -> None:
    """What was written to `folder`, and the user's own modules that this process has imported, as one zip."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
        for name in (SCRIPT, ABOUT, PAYLOAD):
            with open(folder / name, "rb") as source, archive.open(_entry(name), "w", force_zip64=True) as into:
                while chunk := source.read(1 << 20):
                    into.write(chunk)
        for name, source_path in sorted(own_modules().items()):
            archive.writestr(_entry(name), source_path.read_bytes())


def own_modules() -> dict[str, Path]:
    """Files of modules that are neither installed nor part of this project, by the place where an import finds them."""
    found: dict[str, Path] = {}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or name.split(".")[0] in NOT_OWN or not pickling.is_users_module(name):
            continue
        path, below = Path(file), name.replace(".", "/")
        if path.suffix == ".py" and path.is_file():
            found[f"{below}/__init__.py" if path.name == "__init__.py" else f"{below}.py"] = path
    return found


def _entry(name: str) -> zipfile.ZipInfo:
    return zipfile.ZipInfo(name, date_time=_DATE)


def cloudpickle() -> Any:
    """The package, which only this needs."""
    if importlib.util.find_spec("cloudpickle") is None:
        raise UserError(NO_CLOUDPICKLE)
    import cloudpickle

    return cloudpickle


class _Module:
    """What torch.save wants instead of `pickle`: something with a Pickler."""

    __name__ = "cloudpickle"

    def __init__(self, definitions: dict[str, Any], most_bytes: int | None) -> None:
        self.Pickler = type("Pickler", (_pickler(),), {"definitions": definitions, "most_bytes": most_bytes, "storages": {}})


def _pickler() -> type[Any]:
    """cloudpickle's, for what users of torch have."""

    class Pickler(cloudpickle().Pickler):  # type: ignore[misc]
        definitions: dict[str, Any] = {}
        most_bytes: int | None = None
        storages: dict[int, int] = {}
        seen_bytes = 0

        def reducer_override(self, value: Any) -> Any:
            if isinstance(value, (type, FunctionType)):
                _note(value, self.definitions)
            elif isinstance(value, torch.optim.Optimizer):
                return _optimizer(value)
            elif kind.is_keras(value):
                return pickled.reduced(value)
            elif isinstance(value, torch.Generator):
                return pickling.generator, (value.device.type, value.get_state())
            self.seen_bytes += _own_bytes(value, self.storages)
            if self.most_bytes is not None and self.seen_bytes > self.most_bytes:
                raise TooLarge
            return super().reducer_override(value)

    return Pickler


def _note(value: Any, definitions: dict[str, Any]) -> None:
    """Classes and functions of the notebook itself: the other end finds them in its `__main__`, where pickles of its own look for them."""
    name = value.__qualname__
    if value.__module__ == "__main__" and vars(sys.modules["__main__"]).get(name) is value:
        definitions[name] = value


def _optimizer(value: torch.optim.Optimizer) -> Any:
    """With its hooks and its own attributes, which its pickle leaves out."""
    reduced: Any = value.__reduce_ex__(pickling.PROTOCOL)
    made, arguments, state, *rest = reduced
    if type(value).__getstate__ is torch.optim.Optimizer.__getstate__:
        own = vars(value).items()
        state = {name: each for name, each in own if not hasattr(each, "_wrapped_by_lr_sched")}  # that one the arrival makes anew
    return made, arguments, state, *rest


def _own_bytes(value: Any, storages: dict[int, int]) -> int:
    """Of an array, or of a tensor's storage if it is not among those that were counted: nearly all that is large."""
    if isinstance(value, torch.Tensor):
        storage = value.untyped_storage()
        return 0 if storages.setdefault(storage.data_ptr(), id(value)) != id(value) else int(storage.nbytes())
    return int(value.nbytes) if type(value).__module__ == "numpy" and type(value).__name__ == "ndarray" else 0


def trouble(value: object) -> BaseException | None:
    """Why it cannot be pickled; None where it can."""
    try:
        _sizes(value)
    except Exception as error:  # whatever its own methods raise
        return error
    return None


def measure(value: object) -> int:
    """Its bytes; 0 where it cannot be pickled."""
    try:
        return _sizes(value)
    except Exception:  # whatever its own methods raise: somebody else says that
        return 0


def _sizes(value: object) -> int:
    """As `write` would pickle it, without copying a tensor."""
    storages: dict[int, int] = {}
    file = io.BytesIO()

    class Pickler(_pickler()):  # type: ignore[misc]
        definitions: dict[str, Any] = {}

        def persistent_id(self, each: Any) -> Any:
            if not isinstance(each, torch.Tensor):
                return None
            storages[each.untyped_storage().data_ptr()] = each.untyped_storage().nbytes()
            return "tensor"

    Pickler(file, protocol=pickle.HIGHEST_PROTOCOL).dump(value)
    return file.tell() + sum(storages.values())
