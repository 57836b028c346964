"""How busy the processors are that this process may use, from /proc/stat. Linux."""

from __future__ import annotations

import os
from pathlib import Path

_IDLE, _WAITS = 3, 4  # columns: nothing to do; nothing to do but wait for a disk
_KINDS = 8  # user, nice, system, idle, iowait, irq, softirq, steal; what follows is counted among them already


class Processors:
    """`count`: how many this process may use."""

    def __init__(self, stat: Path = Path("/proc/stat")) -> None:
        self._stat = stat
        self._mine = {f"cpu{n}" for n in os.sched_getaffinity(0)}
        self.count = len(self._mine)
        self._before = self._ticks()

    def busy(self) -> float:
        """How many of them were busy on average since this was last asked, whoever kept them so; 0.0 where no time has passed."""
        before, self._before = self._before, self._ticks()
        worked, passed = (now - then for now, then in zip(self._before, before, strict=True))
        return self.count * worked / passed if passed > 0 else 0.0

    def _ticks(self) -> tuple[int, int]:
        """Of all of them together: at work, and in all."""
        worked = passed = 0
        for line in self._stat.read_text().splitlines():
            name, *fields = line.split()
            if name in self._mine:
                ticks = [int(field) for field in fields[:_KINDS]]
                passed += sum(ticks)
                worked += sum(ticks) - ticks[_IDLE] - ticks[_WAITS]
        return worked, passed
