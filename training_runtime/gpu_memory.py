"""Who has the memory of a GPU: processes as its driver counts them in, runs and strangers with their bytes out. Pure, standard library
only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

MOST_HOLDERS = 8  # that are told, those with most memory first


@dataclass(frozen=True)
class GpuProcess:
    """One process with memory on a GPU, as the GPU's driver names it. `used_bytes`: None where the driver does not say."""

    pid: int
    used_bytes: int | None


@dataclass(frozen=True)
class GpuMemoryHolder:
    """Has `used_bytes` of a GPU's memory: all processes of `run` together; or, where that is 0, the process `pid`, called `name`, which is
    of no run. `pid` 0: processes that this machine does not see, as those outside a container."""

    used_bytes: int
    run: int = 0
    pid: int = 0
    name: str = ""


def holders(processes: Iterable[GpuProcess], runs: Mapping[int, int], names: Mapping[int, str]) -> tuple[GpuMemoryHolder, ...]:
    """Those who have most, most first. `runs`: the run of each pid that is of one; `names`: of the pids that were seen here."""
    used: Counter[tuple[int, int, str]] = Counter()
    for process in processes:
        run = runs.get(process.pid, 0)
        is_seen = process.pid in names and not run
        used[run, process.pid if is_seen else 0, names[process.pid] if is_seen else ""] += process.used_bytes or 0
    found = [GpuMemoryHolder(size, *who) for who, size in used.items() if size]
    return tuple(sorted(found, key=lambda each: (-each.used_bytes, each.run, each.pid))[:MOST_HOLDERS])


def crowding(gpu: int, found: Iterable[GpuMemoryHolder], *, own: int, device_bytes: int | None) -> str:
    """One sentence on who beside the run `own` has memory of the GPU of this number, for when it had too little; empty: nobody."""
    others = [f"{_who(each)} had {_gib(each.used_bytes)}" for each in found if each.run != own or not own]
    of_all = f" the {_gib(device_bytes)} of" if device_bytes else ""
    return f"Of{of_all} GPU {gpu}'s memory {', '.join(others)} when last looked at." if others else ""


def _who(holder: GpuMemoryHolder) -> str:
    if holder.run:
        return f"run {holder.run}"
    return f"{holder.name} (process {holder.pid}, no run's)" if holder.pid else "processes that this machine does not see"


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB"
