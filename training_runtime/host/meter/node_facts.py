"""What this machine is: processors, memory, GPUs, the installed torch. Read from the kernel and from package metadata; imports nothing
heavy."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import logging
import os
import secrets
import subprocess
import sys
from pathlib import Path

from training_runtime.host.sandbox.levels import Abilities
from training_runtime.processor import gpus, processor
from training_runtime.protocol import NodeFacts

log = logging.getLogger(__name__)


def gather(name: str, abilities: Abilities, *, address: str = "", identity: str = "") -> NodeFacts:
    base, base_words = _stands_on()
    return NodeFacts(
        name=name,
        cpu_count=len(os.sched_getaffinity(0)),
        memory_bytes=memory_bytes(),
        gpus=gpus(),
        torch_version=_torch_version(),
        sandbox_level=abilities.level,
        sandbox_notes=abilities.notes,
        address=address,
        processor=processor(),
        identity=identity,
        base=base,
        base_words=base_words,
    )


def _stands_on() -> tuple[str, str]:
    """The key of what environments stand on, and its words; found out in a process of its own, which needs packages that the host does not
    import. Empty where these are missing: then none are built here."""
    command = [sys.executable, "-m", "training_runtime.environments.base"]
    done = subprocess.run(command, cwd=Path(__file__).resolve().parents[3], capture_output=True, text=True, check=False)
    if done.returncode:
        log.error("no environments are built here: %s", (done.stderr.strip().splitlines() or ["it said nothing"])[-1])
        return "", ""
    found = json.loads(done.stdout)
    return found["key"], found["words"]


def identity(folder: Path) -> str:
    """Of the host in this folder: made at its first start, the same ever since."""
    path = folder / "identity"
    with contextlib.suppress(FileNotFoundError):
        if known := path.read_text().strip():
            return known
    beside = path.with_suffix(".new")
    beside.write_text(secrets.token_hex(16))
    beside.replace(path)  # whole or not at all: there may be no room
    return path.read_text()


def memory_bytes(which: str = "MemTotal") -> int:
    """Of the machine; 0 where the kernel does not say. `which`: as /proc/meminfo calls it."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith(f"{which}:"):
            return int(line.split()[1]) * 1024
    return 0


def _torch_version() -> str:
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return ""
