"""What a step of the optimizer costs on one processor in each way that torch has, and whether all of them give the same bits.
`python -m benchmarks.optimizer [--quick]`.

Each model computes a forward and a backward pass before every step, so that the step finds the caches as in a training; ways alternate, and
processor time of the step alone is compared. "Long" are blocks of neighbouring parameters, stepped by torch as one tensor each: parameters
and state are views of it, or are copied to it and back. Nothing looks there whether a script has changed or replaced any of them.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from typing import Any

import torch

from benchmarks import report
from benchmarks.models import MODELS
from training_runtime.elastic.comm.all_reduce import padded
from training_runtime.elastic.comm.strides import laid_out_as
from training_runtime.elastic.processes.worker_context import keep_freed_memory

BLOCK = 1 << 18  # elements: what is made in between (Adam's denominator) stays in the cache
PLAIN, FOREACH, FUSED = "each parameter", "foreach=True", "fused=True"
LONG, PARAMETERS_COPIED, ALL_COPIED = "long", "long, parameters copied", "long, all copied"
COMPARED = (LONG, FOREACH, FUSED)
WAYS = {PLAIN: {"foreach": False}, FOREACH: {"foreach": True}, FUSED: {"fused": True}}
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
SIZES = (1, 3, 5, 7, 15, 16, 17, 31, 33, 65, 1000, 4097)  # of parameters: ends of all lengths that vectors leave over
DECAY: dict[str, Any] = {"weight_decay": 0.1}
MAXIMIZE: dict[str, Any] = {"maximize": True}
NESTEROV: dict[str, Any] = {"lr": 0.1, "momentum": 0.9, "nesterov": True}
OPTIONS: dict[type[torch.optim.Optimizer], Sequence[dict[str, Any]]] = {
    torch.optim.SGD: ({"lr": 0.1}, DECAY | MAXIMIZE, {"lr": 0.1, "momentum": 0.9, "dampening": 0.3}, NESTEROV, NESTEROV | DECAY),
    torch.optim.Adam: ({}, DECAY, MAXIMIZE, {"amsgrad": True}, {"amsgrad": True} | DECAY | MAXIMIZE),
    torch.optim.AdamW: ({}, DECAY, MAXIMIZE, {"amsgrad": True}, {"amsgrad": True} | DECAY | MAXIMIZE),
    torch.optim.NAdam: ({}, DECAY, MAXIMIZE, {"decoupled_weight_decay": True} | DECAY),
    torch.optim.RAdam: ({}, DECAY, MAXIMIZE, {"decoupled_weight_decay": True} | DECAY),
    torch.optim.Adamax: ({}, DECAY, MAXIMIZE),
    torch.optim.RMSprop: ({}, DECAY, {"momentum": 0.9}, {"centered": True, "momentum": 0.5}, MAXIMIZE),
    torch.optim.Adagrad: ({}, DECAY, {"lr_decay": 0.1}, MAXIMIZE),
    torch.optim.Adadelta: ({}, DECAY, MAXIMIZE),
    torch.optim.ASGD: ({}, DECAY, MAXIMIZE),
    torch.optim.Rprop: ({}, MAXIMIZE),
}
HAVE_FUSED = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad)

Make = Callable[..., torch.optim.Optimizer]
Step = Callable[[], Any]


def views(like: Sequence[torch.Tensor], flat: torch.Tensor) -> list[torch.Tensor]:
    """A view of `flat` for each of these, one after the other, each on a cache line."""
    found, at = [], 0
    for t in like:
        found.append(laid_out_as(t, flat[at : at + t.numel()]))
        at += padded(t)
    return found


def room(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.zeros(sum(map(padded, tensors)), dtype=tensors[0].dtype)


def blocks(parameters: Sequence[torch.Tensor]) -> list[list[torch.Tensor]]:
    """Neighbours, of BLOCK elements together at most, or a larger one alone."""
    found: list[list[torch.Tensor]] = []
    for p in parameters:
        if not found or sum(map(padded, (*found[-1], p))) > BLOCK:
            found.append([])
        found[-1].append(p)
    return found


def plain(make: Make, parameters: Sequence[torch.Tensor], gradients: torch.Tensor, how: dict[str, bool]) -> Step:
    """torch's own step over parameters with these gradients."""
    held = [torch.nn.Parameter(p.detach().clone()) for p in parameters]
    for p, grad in zip(held, views(held, gradients), strict=True):
        p.grad = grad
    return make(held, **how).step


def long(make: Make, parameters: Sequence[torch.Tensor], gradients: torch.Tensor, way: str) -> Step:
    """The same over blocks; what `way` says is copied before and after."""
    steps, at = [], 0
    for block in blocks(parameters):
        end = at + sum(map(padded, block))
        steps.append(of_block(make, block, gradients[at:end], way))
        at = end

    def run() -> None:
        for step in steps:
            step()

    return run


def of_block(make: Make, block: Sequence[torch.Tensor], gradients: torch.Tensor, way: str) -> Step:
    whole = torch.nn.Parameter(room(block))
    torch._foreach_copy_(views(block, whole.data), [p.detach() for p in block])
    whole.grad = gradients
    optimizer = make([whole], foreach=False)
    if way == LONG:
        return optimizer.step
    optimizer.step()  # which makes the state
    stepped = [whole.data]
    if way == ALL_COPIED:
        stepped += [t for t in optimizer.state[whole].values() if isinstance(t, torch.Tensor) and t.dim()]
    inside = [view for t in stepped for view in views(block, t)]
    outside = [view.clone() for view in inside]

    def run() -> None:
        torch._foreach_copy_(inside, outside)
        optimizer.step()
        torch._foreach_copy_(outside, inside)

    return run


def costs(name: str, rounds: int) -> dict[str, float]:
    """Milliseconds of a step of that model in each way, and of the passes before it."""
    parts: dict[str, Any] = {}
    exec(MODELS[name], parts)
    model, batch, kind = parts["model"], parts["batch"], type(parts["optimizer"])
    parameters = list(model.parameters())
    gradients = room(parameters)
    make = partial(kind, **{k: v for k, v in parts["optimizer"].defaults.items() if k not in ("foreach", "fused")})
    ways = {way: plain(make, parameters, gradients, how) for way, how in WAYS.items()}
    ways |= {way: long(make, parameters, gradients, way) for way in (LONG, PARAMETERS_COPIED, ALL_COPIED)}
    rows, found = views(parameters, gradients), {"forward, backward": [], **{way: [] for way in ways}}  # type: dict[str, list[float]]
    for _ in range(rounds):
        for way, step in ways.items():
            began = time.process_time()
            parts["loss_function"](model(parts["x"][:batch]), parts["y"][:batch]).backward()
            torch._foreach_copy_(rows, [p.grad for p in parameters])
            model.zero_grad()
            passed = time.process_time()
            step()
            found[way].append(time.process_time() - passed)
            found["forward, backward"].append(passed - began)
    return {way: 1000 * median(each) for way, each in found.items()}


def stepped(make: Make, dtype: torch.dtype, *, joined: bool) -> torch.Tensor:
    """What becomes of parameters of SIZES in some steps."""
    torch.manual_seed(0)
    parts = [torch.randn(size, dtype=dtype) for size in SIZES]
    flat, gradients = room(parts), room(parts)
    held = [torch.nn.Parameter(flat)] if joined else [torch.nn.Parameter(view) for view in views(parts, flat)]
    torch._foreach_copy_(views(parts, flat), parts)
    for p, grad in zip(held, [gradients] if joined else views(parts, gradients), strict=True):
        p.grad = grad
    optimizer = make(held)
    for step in range(12):
        torch._foreach_copy_(views(parts, gradients), [torch.randn_like(t) * 10.0 ** (-step) for t in parts])
        optimizer.step()
    return torch.cat(views(parts, flat))


def differing(kind: type[torch.optim.Optimizer], dtype: torch.dtype, way: str) -> int:
    """With how many of its OPTIONS that way gives other bits than one parameter after the other."""
    how = WAYS.get(way, WAYS[PLAIN])
    return sum(
        not torch.equal(
            stepped(partial(kind, **options, **WAYS[PLAIN]), dtype, joined=False),
            stepped(partial(kind, **options, **how), dtype, joined=way == LONG),
        )
        for options in OPTIONS[kind]
    )


def main(arguments: list[str]) -> None:
    torch.set_num_threads(1)
    keep_freed_memory()  # as workers do
    found = {name: costs(name, 5 if report.asked_quick(__doc__, arguments) else 40) for name in MODELS}
    ways = list(next(iter(found.values())))
    report.table("Optimizer: ms of a step", ("way", *found), [(way, *(each[way] for each in found.values())) for way in ways])
    pairs = [(kind, way) for way in COMPARED for kind in OPTIONS if way != FUSED or kind in HAVE_FUSED]
    differ = {(kind, way): [differing(kind, dtype, way) for dtype in DTYPES] for kind, way in pairs}
    rows = [(k.__name__, len(OPTIONS[k]), *(" ".join(map(str, differ.get((k, way), "-"))) for way in COMPARED)) for k in OPTIONS]
    short = ", ".join(str(dtype).removeprefix("torch.") for dtype in DTYPES)
    title = f"Options with other bits in {short} ({torch.backends.cpu.get_cpu_capability()})"
    report.table(title, ("optimizer", "options", *COMPARED), rows)
    saved = {f"saved_ms {name}": round(each[PLAIN] - each[LONG], 3) for name, each in found.items()}
    wrong = sum(sum(counts[:2]) for (_, way), counts in differ.items() if way == LONG)
    report.finish("optimizer", {**saved, "long_differing_float32_float64": wrong}, {name: each for name, each in found.items()})


if __name__ == "__main__":
    main(sys.argv[1:])
