"""What this machine is: processors, memory, GPUs, the installed torch. Read from the kernel and from package metadata; imports nothing
heavy."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import secrets
from pathlib import Path

from training_runtime.environments import base
from training_runtime.host.sandbox import Abilities
from training_runtime.processor import gpus, processor
from training_runtime.protocol import NodeFacts


def gather(name: str, abilities: Abilities, *, address: str = "", identity: str = "") -> NodeFacts:
    stands_on = base.of_this_machine()
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
        identity=identity,
        base=stands_on.key,
        base_words=stands_on.words,
    )


def identity(folder: Path) -> str:
    """Of the host in this folder: made at its first start, the same ever since."""
    path = folder / "identity"
    with contextlib.suppress(FileExistsError), open(path, "x") as file:
        file.write(secrets.token_hex(16))
    return path.read_text().strip()


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
