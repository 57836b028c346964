"""What is not in tensors, as bytes and back: one pickle for all of it, so that what was one object stays one.

What every worker has of its own (the model and its parts, the optimizer and its groups, schedulers, data sets) goes by its name and comes
back as the reader's own. Tensors are put aside. Bytes of another person's run are read by a reader of their own, which makes plain values
and instances of classes, and calls nothing that was not foreseen (see `docs/decisions/checkpoints.md`).
"""

from __future__ import annotations

import builtins
import enum
import io
import pickle
import sys
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from training_runtime.errors import UserError

PROTOCOL = 5
Names = Mapping[int, tuple[Any, ...]]  # id of an object -> the name under which every worker has its own
_INSTALLED = {sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
_LIBRARIES = tuple(f"{Path(path).resolve()}/" for path in (*_INSTALLED, str(Path(__file__).parents[2])))

# What may be called with what stands in the file.
_CALLED = {
    *(("builtins", name) for name in ("set", "frozenset", "complex", "bytearray", "range", "slice")),
    *(("collections", name) for name in ("OrderedDict", "deque", "defaultdict", "Counter")),
    *(("datetime", name) for name in ("datetime", "date", "time", "timedelta", "timezone")),
    *(("torch", name) for name in ("Size", "device")),
    *((f"numpy.{core}.multiarray", name) for core in ("core", "_core") for name in ("scalar", "_reconstruct")),
    *((f"numpy.{core}.numeric", "_frombuffer") for core in ("core", "_core")),
    ("numpy", "dtype"),
    (__name__, "generator"),
}
_NAMED = {
    ("numpy", "ndarray"),
    *(("builtins", name) for name in ("list", "dict", "tuple", "int", "float", "str", "bool", "bytes", "object")),
    ("argparse", "Namespace"),
}
_OF_TORCH = ("torch.nn.", "torch.optim.")  # whose classes may have instances


class Refused(UserError):
    """The bytes of another run name something that is not taken from there."""


class Tensors:
    """Those that were put aside, each once."""

    def __init__(self) -> None:
        self.found: list[torch.Tensor] = []
        self._places: dict[int, int] = {}

    def add(self, t: torch.Tensor) -> int:
        if id(t) not in self._places:
            self._places[id(t)] = len(self.found)
            self.found.append(t)  # held, so that nothing else gets its id
        return self._places[id(t)]


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, names: Names, tensors: Tensors) -> None:
        super().__init__(file, protocol=PROTOCOL)
        self._names, self._tensors = names, tensors

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, torch.Generator):
            return generator, (value.device.type, value.get_state())
        return NotImplemented

    def persistent_id(self, value: Any) -> Any:
        if (name := self._names.get(id(value))) is not None:
            return name
        if not isinstance(value, torch.Tensor):
            return None
        needs_grad = value.requires_grad and value.is_leaf
        return ("tensor", self._tensors.add(value), isinstance(value, nn.Parameter), needs_grad, value.device.type != "cpu")


def generator(kind: str, state: torch.Tensor) -> torch.Generator:
    """One on a device of this kind that stands where another stood."""
    made = torch.Generator(kind)
    set_generator(made, state)
    return made


def set_generator(it: torch.Generator, state: torch.Tensor) -> None:
    """Have it stand at `state`. Torch looks at the whole memory that a tensor is a part of, and crashes where that is more than its own."""
    it.set_state(state.detach().cpu().clone())


def dumps(value: Any, names: Names, tensors: Tensors) -> bytes:
    """Raises what an object raises that cannot be pickled; `tensors` may have become more then."""
    file = io.BytesIO()
    _Pickler(file, names, tensors).dump(value)
    return file.getvalue()


def can_be_pickled(value: Any, names: Names, back: Callable[[bytes, Tensors], Any]) -> bool:
    """And read `back`."""
    tensors = Tensors()
    try:
        back(dumps(value, names, tensors), tensors)
    except Exception:  # whatever its own methods raise: a file, a lock, a lambda
        return False
    return True


class Reader:
    """Makes objects of bytes. `named` gives this process's own object of a name; `tensors` are those that were put aside; `device` is where
    those belong that were not on the processor."""

    def __init__(self, named: Callable[[tuple[Any, ...]], Any], tensors: Sequence[torch.Tensor], device: torch.device) -> None:
        self._named, self._tensors, self._device = named, tensors, device
        self._made: dict[int, torch.Tensor] = {}

    def loads(self, data: bytes, *, foreign: bool = False) -> Any:
        """`foreign`: another run wrote them. Raises Refused then where they hold what is not taken from there."""
        reader = (_Foreign if foreign else _Own)(io.BytesIO(data))
        reader.persistent_load = self._load  # type: ignore[method-assign]
        return reader.load()

    def _load(self, name: tuple[Any, ...]) -> Any:
        if name[0] != "tensor":
            return self._named(name)
        _, place, is_parameter, needs_grad, apart = name
        if place not in self._made:
            t = self._tensors[place].to(self._device) if apart else self._tensors[place]
            self._made[place] = nn.Parameter(t, requires_grad=needs_grad) if is_parameter else t.requires_grad_(needs_grad)
        return self._made[place]


class _Own(pickle.Unpickler):
    """Reads what this run's own workers wrote."""


_IN_PYTHON: Any = pickle._Unpickler


class _Foreign(_IN_PYTHON):  # type: ignore[misc]
    """Reads what somebody else's code may have made up. The interpreter's own reader in Python, as the one in C cannot tell a class that is
    named from one that is called."""

    dispatch = dict(_IN_PYTHON.dispatch)

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch" and isinstance(found := getattr(torch, name, None), (torch.dtype, torch.memory_format, torch.layout)):
            return found
        if (module, name) in _CALLED | _NAMED:
            return super().find_class(module, name)
        if "." not in name or module in sys.modules:  # a nested class is one that its own code has already made
            found = sys.modules.get(module)
            for part in name.split("."):
                found = vars(found).get(part) if found is not None else None
            if isinstance(found, type) and found.__module__ == module and (is_users(found) or module.startswith(_OF_TORCH)):
                return found
        raise Refused(REFUSED.format(f"{module}.{name}"))

    def load_reduce(self) -> None:
        self._check(self.stack[-2], called=True)
        super().load_reduce()

    dispatch[pickle.REDUCE[0]] = load_reduce

    def load_newobj(self) -> None:
        self._check(self.stack[-2], called=False)
        super().load_newobj()

    dispatch[pickle.NEWOBJ[0]] = load_newobj

    def load_newobj_ex(self) -> None:
        self._check(self.stack[-3], called=False)
        super().load_newobj_ex()

    dispatch[pickle.NEWOBJ_EX[0]] = load_newobj_ex

    def load_build(self) -> None:
        target = self.stack[-2]
        if isinstance(target, type) or (callable(target) and not hasattr(target, "__dict__")):
            raise Refused(REFUSED.format(f"change of {target!r}"))
        super().load_build()

    dispatch[pickle.BUILD[0]] = load_build

    def _instantiate(self, kind: Any, _arguments: Any) -> None:
        raise Refused(REFUSED.format(f"call of {kind!r} in an old form"))

    def get_extension(self, code: int) -> None:
        raise Refused(REFUSED.format(f"registered extension ({code})"))

    def _check(self, found: Any, *, called: bool) -> None:
        """Whether it may be called; or an instance of it be made without a call of its __init__."""
        place = (getattr(found, "__module__", ""), getattr(found, "__qualname__", ""))
        if called and not (place in _CALLED or _renamed(found) in _CALLED or (isinstance(found, type) and issubclass(found, enum.Enum))):
            raise Refused(REFUSED.format(f"call of {place[0]}.{place[1]}"))
        if not called and not isinstance(found, type):
            raise Refused(REFUSED.format(f"instance of {place[0]}.{place[1]}"))


REFUSED = (
    "the checkpoint of the other run holds a {}, which is not taken over from another run: it might run somebody else's code in this one. "
    "What is taken: numbers, text and other plain values, collections, numpy and torch values, and instances of the script's own classes"
)


def _renamed(found: Any) -> tuple[str, str]:
    """Where a builtin says that it lives is not always where it is found."""
    for module, name in _CALLED:
        if getattr(sys.modules.get(module), name, None) is found:
            return module, name
    return "", ""


def is_users(kind: type) -> bool:
    """Whether a class comes from the script's own code: not from the interpreter, an installed package or this one."""
    return is_users_module(kind.__module__)


def is_users_module(name: str) -> bool:
    if name == "__main__":
        return True
    if name in sys.stdlib_module_names or name == builtins.__name__:
        return False
    file = getattr(sys.modules.get(name), "__file__", None)
    if file is None:
        return False
    path = str(Path(file).resolve())
    return not path.startswith(_LIBRARIES)
