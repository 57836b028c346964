"""Processes that are members of generations and do nothing but sum gradients.

`python -m tests.engine.collective_member FD DRIVER IN OUT ...` forks one for each pair of pipes.

What it has to do comes as lines of JSON: {"steps", "engines", "way", "bucket_bytes", ...}; what came of it goes out as lines. Everything
is as in a worker (segment, barriers, hooks of a real backward pass) but what is computed: the gradient of each parameter is a number of
(step, engine, parameter).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import sys
import threading
import time

import torch

from training_runtime.elastic import tree
from training_runtime.elastic.comm import all_reduce, bucket_exchange, collective_reduce
from training_runtime.elastic.comm.collective_reduce import CollectiveReduce
from training_runtime.elastic.comm.group import Group, Reconfigured
from training_runtime.elastic.comm.segment import WANTED, Layout, Segment
from training_runtime.errors import RuntimeFailure

SHAPES = ((33, 7), (1,), (5, 5), (513,), (64, 65), (3,), (1021,))
DTYPES = (torch.float32, torch.bfloat16, torch.float32, torch.float64, torch.float32, torch.float16, torch.bfloat16)
HALF = (torch.bfloat16, torch.float16)
WORKERS, ENGINES = 4, 8


class Pieces(bucket_exchange.Messages):
    """As very large parameters travel: a shard in several pieces."""

    def __init__(self, link: bucket_exchange.Link) -> None:
        super().__init__(link, 256)


WAYS = {"messages": bucket_exchange.Messages, "pieces": Pieces, "collectives": bucket_exchange.Collectives}


def parameters() -> list[torch.nn.Parameter]:
    return [torch.nn.Parameter(torch.ones(shape, dtype=dtype)) for shape, dtype in zip(SHAPES, DTYPES, strict=True)]


def layout() -> Layout:
    return Layout(WORKERS, ENGINES, 1, len(SHAPES), 0, 0, all_reduce.flat_buffers(parameters()))


def gradient(step: int, engine: int, i: int) -> torch.Tensor | None:
    """None where the engine does not use the parameter."""
    if (step + engine + 2 * i) % 5 == 0:
        return None
    drawn = torch.Generator().manual_seed(step * 10_000 + engine * 100 + i)
    return (torch.randn(SHAPES[i], generator=drawn) * 10 ** ((engine + i) % 7 - 3)).to(DTYPES[i])


def digest(sums: list[torch.Tensor | None]) -> str:
    found = hashlib.sha256()
    for each in sums:
        found.update(b"none" if each is None else each.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def expected(step: int, engines: int, *, twice: bool = False) -> str:
    """The digest of what one process comes to that has all the gradients and adds them as the tree says, those of half precision in
    float32."""
    sums: list[torch.Tensor | None] = []
    for i, (shape, dtype) in enumerate(zip(SHAPES, DTYPES, strict=True)):
        found = [gradient(step, m, i) for m in range(engines)]
        if all(each is None for each in found):
            sums.append(None)
            continue
        rows = [torch.zeros(shape, dtype=dtype) if each is None else each * (2 if twice and i == 4 else 1) for each in found]
        rows = [row.float() if dtype in HALF else row for row in rows]
        for left, right in tree.merges(engines):
            rows[left] = rows[left] + rows[right]
        sums.append(rows[0].to(dtype))
    return digest(sums)


def end(how: str) -> None:
    """By a signal; or by doing nothing any more, on the thread that is to add."""
    if how == "nothing":
        threading.Event().wait()
    os.kill(os.getpid(), getattr(signal, how))


class Member:
    def __init__(self, fd: int, worker_id: int, driver: int) -> None:
        self.segment, self.worker_id, self.driver = Segment(fd, layout()), worker_id, driver
        self.generation = 0
        self.reduce: CollectiveReduce | None = None

    def say(self, **fields: object) -> None:
        print(json.dumps(fields), flush=True)  # noqa: T201

    def enter(self, number: int) -> Group:
        assert self.reduce is not None
        record, began = self.segment.generation(number), time.monotonic()
        self.reduce.leave()
        self.reduce.drop()
        group = Group(self.segment, record, self.worker_id, self.driver)
        self.reduce.meet(record, self.worker_id)
        group.barrier()
        group.begin()
        self.reduce.join(group)
        self.say(entered=number, seconds=time.monotonic() - began)
        return group

    def obey(self, told: dict) -> None:
        held = parameters()
        collective_reduce.ANSWER_S = told.get("answer_s", collective_reduce.ANSWER_S)
        how = {"bucket_bytes": told["bucket_bytes"], "way": WAYS[told["way"]]}
        self.reduce = CollectiveReduce(self.segment, held, torch.device("cpu"), **how)
        self.optimizer = torch.optim.SGD(held, 0.1)
        step, number = told.get("first", 0), self.segment.words[WANTED]
        while step < told["steps"]:
            try:
                group = self.enter(number)
                while step < told["steps"]:
                    self.say(step=step, sums=self.step(held, group, step, told))
                    step += 1
            except Reconfigured as change:
                number = change.generation
                self.say(moved=number)
            except RuntimeFailure as failure:
                self.reduce.leave()
                return self.say(failed=str(failure))
        self.reduce.leave()
        return self.say(done=True)

    def step(self, held: list[torch.nn.Parameter], group: Group, step: int, told: dict) -> str:
        assert self.reduce is not None
        engines = told["engines"]
        mine = tree.share(group.rank, group.size, engines)
        if told.get("ends", {}).get(str(self.worker_id)) == step:
            bucket_exchange.Link.add = lambda *_: end(told["by"][str(self.worker_id)])  # in the midst of it
        for m in mine:
            self.reduce.begin(m, mine, engines)
            found = [gradient(step, m, i) for i in range(len(held))]
            used = [(p, g) for p, g in zip(held, found, strict=True) if g is not None]
            sum(((p * g).sum().double() for p, g in used), torch.zeros((), requires_grad=True).double()).backward()
            if told.get("twice") and found[4] is not None:
                (held[4] * found[4]).sum().backward()
            self.reduce.end(m, mine, engines)
        if group.size > 1:
            self.reduce.stage_parts(engines)
            group.barrier()
            self.reduce.add_cross_rank(group.rank, group.size, engines)
            group.barrier()
        self.reduce.set_grads(group.size, engines, self.optimizer)
        sums = digest([p.grad for p in held])
        self.reduce.drop()
        return sums


def main(fd: int, driver: int, *pipes: int) -> None:
    torch.set_num_threads(1)
    for worker_id in range(len(pipes) // 2):
        if os.fork() == 0:
            for i, pipe in enumerate(pipes):
                if i // 2 == worker_id:
                    os.dup2(pipe, i % 2)
                os.close(pipe)
            member = Member(fd, worker_id, driver)
            member.say(ready=os.getpid())
            for line in sys.stdin:
                member.obey(json.loads(line))
            os._exit(0)
    for pipe in pipes:
        os.close(pipe)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
