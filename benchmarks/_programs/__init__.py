"""Random training scripts: a seed makes a program out of pieces, each a thing that users' scripts do.

What a program computes must be the same on every schedule of slots and deaths, or be refused with the same sentence on all of them.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks._programs import behaviours, callbacks, pieces
from benchmarks._programs.pieces import Piece

LOOPS = 0.4  # of those programs that can be one
EARLY = 0.4  # of loops
STREAMED = 0.3  # of loops

HEAD = """
import collections, copy, math, random
import numpy as np
import torch
from torch import nn
from fabric_model import FabricModel
from callbacks import Callback
torch.manual_seed({seed})
SAMPLES, TEST, BATCH, ENGINES, EPOCHS = {samples}, {test}, {batch}, {engines}, {epochs}
STEPS = -(-SAMPLES // (BATCH * ENGINES))
DTYPE, callbacks, more = torch.float32, [], {{}}
"""

BUILD = """
model = build()
"""

SETS = {
    "images": "torch.randn(SAMPLES + TEST, 2, 6, 6, generator=g).to(DTYPE)",
    "vectors": "torch.randn(SAMPLES + TEST, 8, generator=g).to(DTYPE)",
    "odd parts": "torch.randn(SAMPLES + TEST, 8, generator=g).to(DTYPE)",
    "tokens": "torch.randint(11, (SAMPLES + TEST, 5), generator=g)",
}

TAIL = """
def data():
    g = torch.Generator().manual_seed(1)
    x = {inputs}
    y = x.roll(1, 1) if x.dtype == torch.int64 else x.flatten(1)[:, :3].argmax(1)
    return wrap(x[:SAMPLES], y[:SAMPLES]), wrap(x[SAMPLES:], y[SAMPLES:])
FabricModel(model, data, loss, optimizer, user_callback=callbacks, **more).train(
    EPOCHS, BATCH, ENGINES, validation_freq={validation}, checkpoint_freq={checkpoint}, num_dataloader_threads={threads})
"""

LOOP = """
import edt
def data():
    g = torch.Generator().manual_seed(1)
    x = {inputs}
    y = x.roll(1, 1) if x.dtype == torch.int64 else x.flatten(1)[:, :3].argmax(1)
    return wrap(x[:SAMPLES], y[:SAMPLES]), wrap(x[SAMPLES:], y[SAMPLES:])
train_set, test_set = data()
{stream}
measures = {{f"measure {{i}}": each for i, each in enumerate(more.get("metrics", ()))}}
def measured(outputs, y):
    return {{name: each(outputs, y) for name, each in measures.items()}}
def evaluate(batch):
    outputs = model(batch.x)
    return {{"loss": loss(outputs, batch.y), **measured(outputs, batch.y)}}
kept = {{f"callback {{i}}": each for i, each in enumerate(callbacks)}}
models, figures = model, collections.deque(maxlen=3)
if isinstance(loss, nn.Module):
    models = [model, loss]
elif hasattr(loss, "tau"):
    kept["loss"] = loss
for each in callbacks:
    each.model, each.params = model, {{"optimizer": optimizer, "epochs": EPOCHS}}
    each.on_train_begin()
    each.on_epoch_begin(0)
for step in edt.elastic(models, optimizer, {dataset}, samples={samples},
                        batch_size=BATCH * ENGINES, parts=ENGINES, epochs=EPOCHS, metrics=list(measures),
                        state={{**kept, "figures": figures}}, test_set=test_set, evaluate=evaluate,
                        collate=more.get("fn_batch_collate"), sampler={sampler}, loader_threads={threads},
                        validation_freq={validation}, checkpoint_freq={checkpoint}):
    optimizer.zero_grad()
    for x, y in step:
        outputs = model(x)
        step.backward(loss(outputs, y), **{how})
        {again}
        step.measure(**measured(outputs, y))
    {clip}
    step.update()
    {stop}
    figures.append(step.mean_loss + random.random() + step.evaluated.get("loss", 0))
    with torch.no_grad():
        list(model.parameters())[-1].add_(1e-4 * max(figures))
    edt.log(figures=max(figures))
    if step.is_last_of_epoch:
        for each in callbacks:
            each.on_epoch_end(step.epoch)
            if step.epoch + 1 < EPOCHS:
                each.on_epoch_begin(step.epoch + 1)
"""
AGAIN = ("pass", "optimizer.zero_grad()\n        step.backward(0.01 * model(x).float().square().mean())")
SAMPLERS = {  # of as many samples as there are
    "": "None",
    "weighted": "torch.utils.data.WeightedRandomSampler([1.0 + i % 3 for i in range(SAMPLES)], SAMPLES)",
    "replacing": "torch.utils.data.RandomSampler(train_set, True, SAMPLES, generator=torch.Generator())",
    "own": "sorted(range(SAMPLES), key=lambda i: i * 7 % 5)",
}
STREAM = """
class Streamed(torch.utils.data.IterableDataset):
    at = 0
    def __init__(self, count):
        self.count = count
    def set_epoch(self, turn):
        self.turn = turn
    def __iter__(self):
        for i in range(self.at, self.count):
            self.at = i + 1
            yield train_set[(random.randrange(SAMPLES) + i + self.turn) % SAMPLES]
        self.at = 0
"""
BEGINS_ANEW = STREAM.replace("    def __iter__(self):\n", "    def __iter__(self):\n        self.at = 0\n")
HAS_LENGTH = """
    def __len__(self):
        return self.count
"""
SAYS_WHERE = """
    def state_dict(self):
        return {"at": self.at}
    def load_state_dict(self, state):
        self.at = state["at"]
"""
STREAMS = {  # the class, one of it, samples of an epoch
    "stream": (BEGINS_ANEW + HAS_LENGTH, "Streamed(SAMPLES)", "None"),
    "stream of short passes": (BEGINS_ANEW, "Streamed(SAMPLES // 2 + 1)", "SAMPLES"),
    "stream that says where it is": (STREAM + SAYS_WHERE, "Streamed(2 * SAMPLES)", "SAMPLES"),
}
CLIPS = ("pass", "nn.utils.clip_grad_norm_(model.parameters(), 0.1)")
NO_LOOP = {"own test", *(piece.name for piece in behaviours.STEPS)}  # what has no meaning where the step is a loop


@dataclass(frozen=True)
class Program:
    seed: int
    engines: int
    steps: int  # of the whole run
    features: tuple[str, ...]
    text: str


ALL = (
    *pieces.MODELS,
    *pieces.CASTS,
    *pieces.GROUPS,
    *pieces.LOSSES,
    *pieces.OPTIMIZERS,
    *pieces.SCHEDULERS,
    *pieces.SCHEDULED,
    *callbacks.CALLBACKS,
    *behaviours.HOOKS,
    *behaviours.STEPS,
    *behaviours.DATA,
    *behaviours.COLLATES,
    *behaviours.TESTS,
    Piece("loop"),
    Piece("early end"),
    *(Piece(f"{name} sampler") for name in SAMPLERS if name),
    *map(Piece, STREAMS),
)


def program(seed: int) -> Program:
    """The program of this seed."""
    form = random.Random(f"form {seed}")
    rng = random.Random(f"program {seed}")
    engines, batch, epochs = rng.choice((1, 2, 2, 3, 3, 4, 4, 6, 8)), rng.choice((2, 3, 4)), rng.choice((3, 4, 4))
    a_step = engines * batch
    left = rng.choice((0, 1, a_step - 1, a_step - batch, rng.randrange(a_step)))  # of the last step: one sample, one engine, any
    chosen = choose(rng)
    if chosen[0].name == "vectors" and left % batch:
        left = 0  # batch norm cannot do with an engine of one sample
    samples = 3 * a_step - left
    steps = epochs * -(-samples // a_step)
    head = HEAD.format(seed=seed, samples=samples, test=rng.choice((1, 5, 9)), batch=batch, engines=engines, epochs=epochs)
    given = {"validation": rng.choice((0, 1, 2)), "checkpoint": rng.choice((0, 1, 2)), "threads": rng.choice((0, 0, 2))}
    names = tuple(piece.name for piece in chosen)
    if loop := form.random() < LOOPS and not NO_LOOP & set(names):
        given |= {"again": form.choice(AGAIN), "clip": form.choice(CLIPS), "how": form.choice(("{}", "{'retain_graph': True}"))}
        sampler = random.Random(f"samples {seed}").choice(list(SAMPLERS))
        stops = random.Random(f"ends {seed}").random() < EARLY
        given |= {"stop": "step.number != step.steps - 3 or step.stop()" if stops else "pass"}
        names += ("early end",) * stops
        streams = random.Random(f"streams {seed}")
        stream, dataset, count = "", "train_set", "None"
        if streams.random() < STREAMED:
            name = streams.choice(list(STREAMS))
            stream, dataset, count = STREAMS[name]
            sampler, names = "", (*names, name)
        names += (f"{sampler} sampler",) * bool(sampler)
        given |= {"sampler": SAMPLERS[sampler], "stream": stream, "dataset": dataset, "samples": count}
    tail = (LOOP if loop else TAIL).format(inputs=SETS[chosen[0].name], **given)
    text = "\n".join((head, chosen[0].text, BUILD, *(piece.text for piece in chosen[1:]), tail))
    return Program(seed, engines, steps, (*names, *["loop"] * loop), text)


def choose(rng: random.Random) -> list[Piece]:
    """The model first, then whatever fits with what is there already, in the order in which it stands in the script."""
    chosen = [rng.choice(pieces.MODELS)]

    def some(among: Sequence[Piece], chance: float = 1.0, most: int = 1) -> bool:
        count = rng.randint(1, most) if rng.random() < chance else 0
        names = {piece.name for piece in chosen}
        barred = {name for piece in chosen for name in piece.bars}
        fit = [p for p in among if (not p.only or chosen[0].name in p.only) and p.name not in barred and not names & set(p.bars)]
        picked = rng.sample(fit, min(count, len(fit)))
        chosen.extend(picked)
        return bool(picked)

    some(pieces.CASTS, 0.4)
    some(pieces.GROUPS)
    some(pieces.LOSSES)
    some(pieces.OPTIMIZERS)
    if some(pieces.SCHEDULERS, 0.6):
        some(pieces.SCHEDULED)
    some(callbacks.CALLBACKS, 0.75, 3)
    some(behaviours.HOOKS, 0.5, 2)
    some(behaviours.STEPS, 0.25)
    some(behaviours.DATA)
    some(behaviours.COLLATES, 0.3)
    some(behaviours.TESTS, 0.4)
    return chosen
