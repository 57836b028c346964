"""What this machine is: processors, memory, GPUs, the installed torch. Read from the kernel and from package metadata; imports nothing
heavy."""

from __future__ import annotations

import importlib.metadata
import os
from pathlib import Path

from training_runtime.host.sandbox import Abilities
from training_runtime.processor import gpus, processor
from training_runtime.protocol import NodeFacts


def gather(name: str, abilities: Abilities, *, address: str = "") -> NodeFacts:
    return NodeFacts(
        name=name,
        cpu_count=len(os.sched_getaffinity(0)),
        memory_bytes=_memory_bytes(),
        gpus=gpus(),
        torch_version=_torch_version(),
        sandbox_level=abilities.level,
        sandbox_notes=abilities.notes,
        address=address,
        processor=processor(),
    )


def _memory_bytes() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    return 0


def _torch_version() -> str:
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return ""
