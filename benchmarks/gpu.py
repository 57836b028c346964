"""What elasticity costs on one GPU: `python -m benchmarks.gpu [--quick] [--cpu]`.

A ResNet-50 and a GPT-2 small, with 1, 2 and 4 slots that share the GPU and as many engines, against a plain loop on the same global batch
in one process; and the pauses when members change, with 0.2 and 1.5 GB of state. The plain loop reads no loss and logs nothing. --cpu takes
processor slots and toy sizes of both models instead: it shows that the benchmark works, its figures mean nothing.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import torch

from benchmarks import report
from benchmarks.pause import change
from tests.engine.harness import ROOT, Run, Warm

SLOTS = (1, 2, 4)
START = """
import sys
import torch
from torch import nn
torch.manual_seed(0)
toy, engines = sys.argv[1] == "toy", int(sys.argv[2])
"""
RESNET = """
batch, widths, depths, side = (4, (4, 8, 16, 32), (1, 1, 1, 1), 32) if toy else (32, (64, 128, 256, 512), (3, 4, 6, 3), 224)

class Block(nn.Module):
    def __init__(self, into, width, stride):
        super().__init__()
        out = 4 * width
        self.body = nn.Sequential(
            nn.Conv2d(into, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, out, 1, bias=False), nn.BatchNorm2d(out),
        )
        same = stride == 1 and into == out
        self.beside = nn.Identity() if same else nn.Sequential(nn.Conv2d(into, out, 1, stride, bias=False), nn.BatchNorm2d(out))
    def forward(self, x):
        return torch.relu(self.body(x) + self.beside(x))

layers, into = [nn.Conv2d(3, widths[0], 7, 2, 3, bias=False), nn.BatchNorm2d(widths[0]), nn.ReLU(), nn.MaxPool2d(3, 2, 1)], widths[0]
for stage, (width, depth) in enumerate(zip(widths, depths)):
    for place in range(depth):
        layers.append(Block(into, width, 2 if stage and not place else 1))
        into = 4 * width
model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(into, 1000))
x, y = torch.randn(8 * batch, 3, side, side), torch.randint(0, 1000, (8 * batch,))
make_optimizer = lambda parameters: torch.optim.SGD(parameters, 0.01, momentum=0.9)
"""
GPT = """
batch, depth, width, heads, length, words = (2, 2, 32, 2, 16, 100) if toy else (8, 12, 768, 12, 512, 50257)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.place = nn.Embedding(words, width), nn.Parameter(torch.zeros(length, width))
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, 0.1, "gelu", batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, depth, nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(length))
    def forward(self, tokens):
        return self.head(self.body(self.embed(tokens) + self.place, self.mask, is_causal=True)).transpose(1, 2)

model = Net()
x, y = (torch.randint(0, words, (32 * batch, length)) for _ in range(2))
make_optimizer = lambda parameters: torch.optim.AdamW(parameters, 1e-4)
"""
OURS = """
from fabric_model import FabricModel
def data():
    return torch.utils.data.TensorDataset(x, y), None
FabricModel(model, data, nn.functional.cross_entropy, make_optimizer(model.parameters())).train(10**6, batch, engines, checkpoint_freq=0)
"""
PLAIN = """
import time
device, seconds = torch.device(sys.argv[3]), float(sys.argv[4])
if device.type == "cpu":
    torch.set_num_threads(1)
model.to(device)
optimizer, done, began = make_optimizer(model.parameters()), 0, 0.0
while done <= 10 or time.monotonic() - began < seconds:
    index = torch.randperm(len(x))[: batch * engines]
    loss = nn.functional.cross_entropy(model(x[index].to(device)), y[index].to(device))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    done += 1
    if device.type == "cuda" and done % 10 == 0:
        torch.cuda.synchronize()
    if done == 10:
        began = time.monotonic()
if device.type == "cuda":
    torch.cuda.synchronize()
print((done - 10) / (time.monotonic() - began))
"""
MODELS = {"resnet50": RESNET, "gpt2_small": GPT}


def plain(name: str, size: str, engines: int, device: str, seconds: float) -> float:
    """Steps a second of a plain loop."""
    command = [sys.executable, "-c", START + MODELS[name] + PLAIN, size, str(engines), device, str(seconds)]
    return float(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)


def ours(warm: Warm, name: str, size: str, slots: int, kind: str, seconds: float) -> float:
    """Steps a second with so many slots."""
    with tempfile.TemporaryDirectory() as folder:
        run = Run(warm, Path(folder), START + MODELS[name] + OURS, size, str(slots), max_slots=slots, device=kind, gpus=1)
        try:
            run.members(*range(slots))
            run.until_step(10)
            first = next(line for line in run.lines() if line.event.kind == "train" and line.event.step == 10)
            run.until(lambda: run.lines()[-1].t - first.t > seconds, what="time is up")
            last = [line for line in run.lines() if line.event.kind == "train"][-1]
            return float((last.event.step - 10) / (last.t - first.t))
        finally:
            run.close()


def pauses(warm: Warm, name: str, size: str, kind: str, rounds: int, settle: int) -> tuple[list[float], list[float]]:
    """Milliseconds of each grow 1 -> 2 -> 4 and shrink 4 -> 2 -> 1."""
    grow: list[float] = []
    shrink: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        run = Run(warm, Path(folder), START + MODELS[name] + OURS, size, "4", device=kind, gpus=1)
        try:
            run.members(0)
            run.until_step(settle + 5)
            for _ in range(rounds):
                grow += [change(run, slots, settle)[0] for slots in ((0, 1), (0, 1, 2, 3))]
                shrink += [change(run, slots, settle)[0] for slots in ((0, 1), (0,))]
        finally:
            run.close()
    return grow, shrink


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short round")
    parser.add_argument("--cpu", action="store_true", help="toy models on processor slots: it works")
    told = parser.parse_args(arguments)
    quick, toy = told.quick, told.cpu
    if not toy and not torch.cuda.is_available():
        print("no GPU that torch can use: --cpu shows that the benchmark works, with toy models on processor slots", file=sys.stderr)
        return report.finish("gpu", {})
    size, kind, device = ("toy", "cpu", "cpu") if toy else ("full", "gpu", "cuda")
    seconds, rounds, settle = (3.0, 1, 8) if quick else (10.0, 3, 20)
    figures: dict[str, float] = {}
    rows, changes = [], []
    warm = Warm()
    try:
        for name in MODELS:
            for slots in SLOTS:
                mine, theirs = ours(warm, name, size, slots, kind, seconds), plain(name, size, slots, device, seconds)
                rows.append((name, slots, mine, theirs, mine / theirs))
                figures[f"{name}_ratio_{slots}"] = round(mine / theirs, 3)
            for what, found in zip(("grow", "shrink"), pauses(warm, name, size, kind, rounds, settle), strict=True):
                changes.append((name, what, len(found), median(found), max(found)))
                figures[f"{name}_{what}_ms"] = round(median(found), 1)
    finally:
        warm.close()
    report.table("Throughput on one GPU", ("model", "slots", "ours 1/s", "plain loop 1/s", "ratio"), rows)
    report.table("Pauses", ("model", "change", "times", "p50 ms", "max ms"), changes)
    return report.finish("gpu", figures)


if __name__ == "__main__":
    main(sys.argv[1:])
