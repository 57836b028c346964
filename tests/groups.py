"""Control groups of hosts under test. What a killed host leaves behind its next start removes, and after a test nobody else does."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import tempfile
from pathlib import Path

from training_runtime.host.meter import node_facts
from training_runtime.host.sandbox import cgroup, cgroup_bases
from training_runtime.host.sandbox.cgroup_values import WITHOUT, Controller, name_of, places


@functools.cache
def _of_this_machine() -> cgroup.Groups:
    with tempfile.TemporaryDirectory() as folder:
        groups = cgroup_bases.begin(Path(folder), memory=None, processes=100, machine_bytes=node_facts.memory_bytes())
        groups.end()
        return groups


def missing() -> tuple[str, ...]:
    """What cannot be had on this machine, but for shares of its disk, which few have."""
    return tuple(note for note in _of_this_machine().notes if not note.startswith(WITHOUT["io"]))


def used() -> tuple[Controller, ...]:
    """The controllers that can be had here."""
    return _of_this_machine().controllers


def group_of(pid: int, controller: Controller) -> Path:
    found = places(Path(f"/proc/{pid}/cgroup").read_text(), Path("/proc/self/mountinfo").read_text())
    name = name_of(controller, 1)
    return Path(found.own[name][0] if name in found.own else (found.unified or ("/", ""))[0])


def around_runs(host: Path) -> list[Path]:
    """Of the host with this folder, one a hierarchy."""
    file = host / "cgroups.json"
    return sorted({Path(base) for base in json.loads(file.read_text()).values()}) if file.exists() else []


def members(host: Path) -> dict[int, str]:
    """The processes in them, whosever, and which group that is."""
    found: dict[int, str] = {}
    for base in around_runs(host):
        for folder, _, _ in os.walk(base):  # which passes over one that goes meanwhile
            with contextlib.suppress(OSError):
                found |= dict.fromkeys(map(int, Path(folder, "cgroup.procs").read_text().split()), folder)
    return found


def are_gone(host: Path) -> bool:
    """Removes them; the kernel takes a moment to empty one whose processes were killed."""
    for base in around_runs(host):
        for group in (*(entry for entry in base.glob("*") if entry.is_dir()), base):
            with contextlib.suppress(OSError):
                group.rmdir()
    return not any(base.exists() for base in around_runs(host))
