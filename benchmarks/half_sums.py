"""Gradients of half precision added in float32 and rounded once, against additions in their own dtype: how far each is from the right sum,
and what it costs. `python -m benchmarks.half_sums [--quick]`.

Errors are of the gradients of real models in that dtype, computed by so many engines with other samples each: the distance from the sum in
float64, by its length. "One after the other" is what `.grad` has after as many backward passes in a plain loop; "rounded sum" is the least
that can be: the float64 sum itself, rounded.

Costs are those of whole steps without the optimizer, computed by all workers by turns in one process: processor time, in pairs of steps of
which one adds in float32, and what the rows take of the shared memory. The ratio of a pair is that of its float32 step to the other.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from statistics import median, quantiles
from types import SimpleNamespace
from typing import Any

import torch

from benchmarks import report
from benchmarks.models import MODELS
from training_runtime.elastic import tree
from training_runtime.elastic.comm.all_reduce import Exchange, flat_buffers
from training_runtime.elastic.comm.segment import Layout, Segment
from training_runtime.elastic.processes.worker_context import keep_freed_memory

DTYPES = (torch.bfloat16, torch.float16)
ENGINES = (2, 8, 64)
COSTS = (("mlp-10m", 8, 1), ("mlp-10m", 8, 2), ("mlp-10m", 8, 4), ("transformer", 8, 2))  # of which model, engines, workers
Add = Callable[[Sequence[torch.Tensor]], torch.Tensor]


class Engines:
    """A model of that dtype, whose engines have samples of their own."""

    def __init__(self, name: str, dtype: torch.dtype, engines: int) -> None:
        self.parts: dict[str, Any] = {}
        exec(MODELS[name], self.parts)
        self.model, self.dtype, self.count = self.parts["model"].to(dtype), dtype, engines
        self.parameters = list(self.model.parameters())

    def compute(self, m: int) -> None:
        x, y = (self.parts[part].roll(-m * self.parts["batch"], 0)[: self.parts["batch"]] for part in ("x", "y"))
        torch.manual_seed(m)
        outputs = self.model(x.to(self.dtype) if x.is_floating_point() else x)
        (self.parts["loss_function"](outputs, y) / self.count).backward()


def in_the_tree(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    rows = list(parts)
    for left, right in tree.merges(len(rows)):
        rows[left] = rows[left] + rows[right]
    return rows[0]


def one_after_the_other(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    total = parts[0].clone()
    for part in parts[1:]:
        total += part
    return total


WAYS: dict[str, Add] = {
    "one after the other": one_after_the_other,
    "tree, own dtype": in_the_tree,
    "tree, float32": lambda parts: in_the_tree([part.float() for part in parts]).to(parts[0].dtype),
    "rounded sum": lambda parts: one_after_the_other([part.double() for part in parts]).to(parts[0].dtype),
}


def errors(name: str, dtype: torch.dtype, engines: int) -> dict[str, float]:
    """By way, over all parameters."""
    engine = Engines(name, dtype, engines)
    found: list[list[torch.Tensor]] = []
    for m in range(engines):
        engine.compute(m)
        found.append([p.grad.clone() for p in engine.parameters])
        engine.model.zero_grad()
    wrong, length = dict.fromkeys(WAYS, 0.0), 0.0
    for parts in zip(*found, strict=True):
        exact = one_after_the_other([part.double() for part in parts])
        length += float(exact.square().sum())
        for way, add in WAYS.items():
            wrong[way] += float((add(parts).double() - exact).square().sum())
    return {way: (each / length) ** 0.5 for way, each in wrong.items()}


class Crew:
    """All workers of a step, in this process."""

    def __init__(self, engine: Engines, workers: int, *, wide: bool) -> None:
        self.engine, self.workers = engine, workers
        layout = Layout(workers, engine.count, 1, len(engine.parameters), 0, 0, flat_buffers(engine.parameters, wide=wide))
        self.fd = os.memfd_create("half_sums")
        segment = Segment(self.fd, layout, create=True)
        self.members = [Exchange(segment, engine.parameters, torch.device("cpu"), on_device=False) for _ in range(workers)]
        for member in self.members:
            member.join(SimpleNamespace(size=workers))  # type: ignore[arg-type]

    def step(self) -> None:
        count, optimizer = self.engine.count, self.engine.parts["optimizer"]
        for rank, member in enumerate(self.members):
            mine = tree.share(rank, self.workers, count)
            for m in mine:
                member.begin(m, mine, count)
                self.engine.compute(m)
                member.end(m, mine, count)
        if self.workers > 1:
            for rank, member in enumerate(self.members):
                member.stage_parts(count)
                member.add_cross_rank(rank, self.workers, count)
        for member in self.members:
            member.set_grads(self.workers, count, optimizer)
            member.drop()

    def row_bytes(self) -> int:
        return os.fstat(self.fd).st_blocks * 512


def costs(name: str, engines: int, workers: int, pairs: int) -> tuple[list[float], float]:
    """The ratio of each pair, and that of the memory."""
    engine = Engines(name, torch.bfloat16, engines)
    crews = {wide: Crew(engine, workers, wide=wide) for wide in (False, True)}
    ratios = []
    for i in range(pairs + 1):
        took = {}
        for wide in (False, True) if i % 2 else (True, False):
            began = time.process_time()
            crews[wide].step()
            took[wide] = time.process_time() - began
        ratios.append(took[True] / took[False])
    return ratios[1:], crews[True].row_bytes() / crews[False].row_bytes()  # the first has made the memory


def main(arguments: list[str]) -> None:
    quick = report.asked_quick(__doc__, arguments)
    torch.set_num_threads(1)
    keep_freed_memory()  # as workers do
    names = ("conv", "transformer")
    wrong = {(n, d, v): errors(n, d, v) for n in names[: 1 if quick else 2] for d in DTYPES for v in (ENGINES[:2] if quick else ENGINES)}
    rows = [(n, str(d).removeprefix("torch."), v, *(f"{each:.1e}" for each in found.values())) for (n, d, v), found in wrong.items()]
    report.table("Half sums: distance from the sum in float64, by its length", ("model", "dtype", "engines", *WAYS), rows)
    found = {case: costs(*case, pairs=3 if quick else 15) for case in (COSTS[:1] if quick else COSTS)}
    columns = ("model, bfloat16", "engines", "workers", "processor time", "quarter", "three quarters", "memory of rows")
    report.table(
        "Half sums: float32 by own dtype",
        columns,
        [(*case, median(ratios), quantiles(ratios)[0], quantiles(ratios)[2], memory) for case, (ratios, memory) in found.items()],
    )
    told = {f"{n} {d} {v}": each["tree, own dtype"] / each["tree, float32"] for (n, d, v), each in wrong.items()}
    report.finish("half_sums", {"error_saved": told, "processor_time": {str(case): median(each) for case, (each, _) in found.items()}})


if __name__ == "__main__":
    main(sys.argv[1:])
