"""The first message to a remote agent: whether it may take part, its machine number, and the run's facts to compare its own with."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass

from training_runtime import json_object
from training_runtime.elastic.build import same_build
from training_runtime.elastic.comm.segment import Layout
from training_runtime.elastic.job import SEGMENT, TrainConfig
from training_runtime.records import build

_SHARED = ("engines", "seed", "max_workers", "machines", "reduce", "wide_sums")  # of a TrainConfig, what all machines share


@dataclass(frozen=True)
class Admission:
    """`lengths`: samples of both datasets; `build`: what the driver's machine computes with; `layout`: of its segment. `refused`: why it
    may not take part, if it may not."""

    engines: int
    seed: int
    max_workers: int
    machines: int
    lengths: tuple[int, ...]
    build: str
    layout: str
    reduce: str = SEGMENT
    wide_sums: bool = False  # a driver that does not say so is of a release that did not
    machine: int = 0
    refused: str = ""

    def configure(self, own: TrainConfig) -> TrainConfig:
        """The remote agent's configuration, with the values that all machines of a run share."""
        return dataclasses.replace(own, **{name: getattr(self, name) for name in _SHARED})

    def answer(self, machine: int, refused: str) -> Admission:
        return dataclasses.replace(self, machine=machine, refused=refused)


def of_run(config: TrainConfig, layout: Layout, lengths: tuple[int, int]) -> Admission:
    shared = {name: getattr(config, name) for name in _SHARED}
    return Admission(**shared, lengths=lengths, build=describe_build(), layout=repr(layout))


def describe_build() -> str:
    return str(same_build())


def encode(admission: Admission) -> bytes:
    return json.dumps(vars(admission)).encode()


def decode(raw: bytes) -> Admission:
    """Raises ProtocolError for anything else."""
    return build(Admission, json_object.parse(raw), lenient=True)
