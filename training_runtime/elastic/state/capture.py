"""The whole state of a training as a tree of plain values and tensors: parameters, buffers, optimizer, and what modules, schedulers and
callbacks have learnt.

It is captured from and restored into the live objects in place (views and hooks that the user holds stay good). How it gets from one
process to another is `transfer`. Nothing here knows about steps or members.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import FunctionType
from typing import Any

import torch
from torch import nn

from training_runtime.elastic.state import beside, learned, optimizers, pickling
from training_runtime.elastic.state.script_globals import Variable
from training_runtime.elastic.state.transfer import Landing, Source, index_of, pack, replace

Back = Callable[[bytes, pickling.Tensors], Any]  # makes objects of bytes and of the tensors that were put aside


class Buffers:
    """All buffers of modules (batch-norm statistics and the like), found anew each time: a module may replace them."""

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        self._places = [(module, name) for module in modules for name, b in module._buffers.items() if b is not None]

    def live(self) -> list[torch.Tensor]:
        return [b for module, name in self._places if (b := module._buffers[name]) is not None]

    def cast(self, dtypes: Sequence[torch.dtype]) -> None:
        """Back to what they were: a module that puts another tensor in the place of one may have computed it in another dtype."""
        for (module, name), dtype in zip(self._places, dtypes, strict=True):
            b = module._buffers[name]
            if b is not None and b.dtype != dtype:
                module._buffers[name] = b.detach().to(dtype)


@dataclass(frozen=True)
class Live:
    """The user's objects that hold the state of a training. `loss` where it is a module. `shared`: other objects that every worker has, by
    name; `called`: what else is called in the training and may learn, by name; `script`: the script's global names."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    loss: nn.Module | None = None
    callbacks: Sequence[object] = ()
    schedulers: Sequence[Any] = ()
    shared: Mapping[str, object] = field(default_factory=dict)
    called: Mapping[str, object] = field(default_factory=dict)
    script: Mapping[str, Any] = field(default_factory=dict)

    def modules(self) -> list[nn.Module]:
        """Each once."""
        return list(dict.fromkeys([*self.model.modules(), *(self.loss.modules() if self.loss is not None else ())]))

    def parameters(self) -> list[torch.Tensor]:
        """Every parameter of the optimizer, then those of the model and of the loss that it does not hold; each once."""
        seen: dict[int, torch.Tensor] = {id(p): p for p in optimizers.parameters(self.optimizer)}
        for module in self.modules():
            for p in module.parameters(recurse=False):
                seen.setdefault(id(p), p)
        return list(seen.values())

    def buffers(self) -> list[torch.Tensor]:
        return Buffers(self.modules()).live()

    def counts(self) -> tuple[int, int]:
        """By which two of the same script are known to be alike."""
        return len(self.callbacks), len(self.schedulers)

    def named(self) -> dict[tuple[Any, ...], object]:
        """What every worker has of its own, by name."""
        optimizer = self.optimizer
        named: dict[tuple[Any, ...], object] = {("optimizer",): optimizer, ("state",): optimizer.state, ("groups",): optimizer.param_groups}
        for kind, found in (
            ("module", self.modules()),
            ("parameter", self.parameters()),
            ("buffer", self.buffers()),
            ("group", optimizer.param_groups),
            ("scheduler", self.schedulers),
        ):
            named |= {(kind, i): value for i, value in enumerate(found)}
        return named | {("shared", name): value for name, value in self.shared.items() if value is not None}

    def held(self, named: Mapping[tuple[Any, ...], object]) -> learned.LearnedObjects:
        callbacks = {f"callback {i}": callback for i, callback in enumerate(self.callbacks)}
        roots = {**callbacks, **self.called, "optimizer": self.optimizer}
        return learned.find(roots, self.script, known={id(value): value for value in named.values()})

    def content(self, value: object) -> dict[str, Any]:
        """What is in an object that is held, tensors as they are."""
        return learned.content(value) if self.is_leaf(value) else learned.attributes(value)

    def put(self, value: object, content: dict[str, Any]) -> None:
        """Make it what it was."""
        if not self.is_leaf(value):
            learned.put_attributes(value, content)
        elif learned.fits(value, content):
            learned.put(value, content)

    def is_leaf(self, value: object) -> bool:
        """Of the optimizer there are only its own attributes to keep: its state and groups have a place of their own."""
        return value is not self.optimizer and learned.is_leaf(value)


def contents(live: Live) -> dict[str, Any]:
    """The state as it is in the live objects; nothing is copied. All but "held" must be the same on every worker."""
    optimizer, modules, parameters = live.optimizer, live.modules(), live.parameters()
    return {
        "parameters": [p.detach() for p in parameters],
        "buffers": live.buffers(),
        "optimizer": optimizers.states(optimizer),
        "groups": optimizers.groups(optimizer),
        "order": optimizers.order(optimizer),
        **learned.flags(modules, parameters),
        **learned.texture(modules),
        "schedulers": [scheduler.state_dict() for scheduler in live.schedulers],
    }


def learnt(live: Live) -> dict[str, Any]:
    """The tensors that are held elsewhere: what is in modules and the like, and tensors that callbacks keep as they are."""

    def read_tensors(value: object) -> dict[str, Any]:
        if live.is_leaf(value) and not isinstance(value, Variable):
            return live.content(value)
        content = value.state_dict() if isinstance(value, Variable) else live.content(value)
        return {key: each for key, each in content.items() if isinstance(each, torch.Tensor)}

    return {name: read_tensors(value) for name, value in live.held(live.named()).items()}


def capture(live: Live) -> dict[str, Any]:
    """The state as a tree of tensors and bytes: "values" is everything else, in which "tensors" have their places. The first "common" of
    them are the optimizer's."""
    named, found, tensors = live.named(), contents(live), pickling.Tensors()
    for values in (found["optimizer"], found["groups"]):
        replace(values, tensors.add)
    common = len(tensors.found)
    objects = live.held(named)
    names = {id(value): ("held", name) for name, value in objects.items() if not isinstance(value, FunctionType)}
    names |= {id(value): name for name, value in named.items()}
    values = {name: value for name, value in found.items() if name not in ("parameters", "buffers")}
    by_name = named | {("held", name): value for name, value in objects.items()}
    device = device_of(live)

    def back(data: bytes, put_aside: pickling.Tensors) -> Any:
        return pickling.Reader(by_name.__getitem__, [t.detach() for t in put_aside.found], device).loads(data)

    values["held"] = _picklable({name: live.content(value) for name, value in objects.items()}, names, back)
    data = pickling.dumps(values, names, tensors)
    kinds = {name: _kind(value) for name, value in objects.items()}
    whole = {name: _whole(value, names, tensors, back) for name, value in objects.items() if "." in name}
    leaves = [t.detach() for t in tensors.found]
    return {
        "counts": live.counts(),
        "parameters": found["parameters"],
        "buffers": found["buffers"],
        "tensors": leaves,
        "common": common,
        "values": data,
        "kinds": kinds,
        "whole": whole,
    }


def _picklable(found: dict[str, dict[str, Any]], names: pickling.Names, back: Back) -> dict[str, dict[str, Any]]:
    """Of what is in each object that which can be pickled and read back; the rest stays each process's own: a file, a lock, a lambda."""
    if not pickling.can_be_pickled(found, names, back):
        for name, values in found.items():
            found[name] = {key: value for key, value in values.items() if pickling.can_be_pickled(value, names, back)}
    return found


def _kind(value: object) -> str:
    kind = value if isinstance(value, FunctionType) else type(value)
    return f"{kind.__module__}.{kind.__qualname__}"


def _whole(value: object, names: pickling.Names, tensors: pickling.Tensors, back: Back) -> bytes:
    """For who has no such object yet; nothing where it cannot be pickled."""
    others = {key: name for key, name in names.items() if key != id(value)}
    return pickling.dumps(value, others, tensors) if pickling.can_be_pickled(value, others, back) else b""


def read_back(fd: int, tree: Mapping[str, Any], live: Live) -> None:
    """Read what was packed of `tree`, as `restore` would, and forget it. Raises what that would raise."""
    index = index_of(fd)
    read, _, _ = _reader(index, tree["tensors"], live, foreign=False)
    read(index["values"])


def _reader(
    tree: Mapping[str, Any], made: Sequence[torch.Tensor], live: Live, *, foreign: bool
) -> tuple[Callable[[bytes], Any], learned.LearnedObjects, learned.LearnedObjects]:
    """(reads pickled bytes of the tree, what is used of what is held here, all that is held here)"""
    named = live.named()
    objects = live.held(named)
    there = {name: value for name, value in objects.items() if tree["kinds"].get(name) == _kind(value)}

    def get(name: tuple[Any, ...]) -> Any:
        if name[0] != "held":
            return named[name]
        if name[1] not in there:
            there[name[1]] = None
            if data := tree["whole"].get(name[1]):
                there[name[1]] = reader.loads(data, foreign=foreign)
        return there[name[1]]

    reader = pickling.Reader(get, made, device_of(live))
    return partial(reader.loads, foreign=foreign), there, objects


def restore(tree: Mapping[str, Any], source: Source, live: Live, *, foreign: bool = False) -> None:
    """Make the live objects equal to `tree`, whose tensors come from `source`. `foreign`: another run's. UserError where it holds what
    is not taken from there."""
    read, there, objects = _reader(tree, [source.make(leaf) for leaf in tree["tensors"]], live, foreign=foreign)
    values = read(tree["values"])
    parameters = live.parameters()
    with torch.no_grad():
        for target, leaf in zip([*parameters, *live.buffers()], [*tree["parameters"], *tree["buffers"]], strict=True):
            source.fill(target, leaf)
    learned.put_flags(live.modules(), parameters, values)
    learned.put_texture(live.modules(), values)
    optimizers.put(live.optimizer, values["optimizer"], values["groups"], values["order"])
    for scheduler, each in zip(live.schedulers, values["schedulers"], strict=True):
        scheduler.load_state_dict(each)
    for name, each in values["held"].items():
        if name in objects and there.get(name) is objects[name]:
            live.put(objects[name], each)


@contextmanager
def unchanged(live: Live) -> Iterator[None]:
    """What happens inside leaves no trace in the state: afterwards it is what it was."""
    kept = os.memfd_create("edt-kept")
    try:
        pack(kept, capture(live), 0, 1)
        yield
        restore(index_of(kept), Landing(kept, 0), live)
    finally:
        os.close(kept)


def device_of(live: Live) -> torch.device:
    return next((p.device for p in live.parameters()), torch.device("cpu"))


def move(live: Live, device: torch.device) -> None:
    """Put model, loss and optimizer on `device`, and what is held beside them that belongs there (see `beside`): the same parameters,
    buffers and entries of the state, elsewhere."""
    held = list(live.held(live.named()).values()) if device.type != "cpu" else []
    for t in beside.tensors_beside([(value, live.content(value)) for value in held], live.parameters()):
        t.data = t.data.to(device)
    live.model.to(device)
    if live.loss is not None:
        live.loss.to(device)
    for p in optimizers.parameters(live.optimizer):
        if p.device != device:  # one that is not the model's own
            p.data = p.data.to(device)
    for optimizer in (live.optimizer, *(value for value in held if isinstance(value, torch.optim.Optimizer))):
        optimizers.follow(optimizer)


def touch(tensors: Iterable[torch.Tensor]) -> None:
    """Write every page of these tensors without changing a bit: pages shared with the process this one was forked from become its own
    now, not in a step."""
    with torch.no_grad():
        for t in tensors:
            t.copy_(t.clone())
