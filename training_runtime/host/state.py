"""What a node host writes down so that the next one finds its processes again: one small JSON file, replaced as a whole on every change.

It survives the death of the host (the page cache does). It need not survive a power cut, after which there is no process left to be found:
the boot's id tells, and in a container, which is started anew under the same kernel, when its first process began.
"""

from __future__ import annotations

import dataclasses
import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training_runtime.errors import ProtocolError
from training_runtime.host.reconcile import Phase
from training_runtime.protocol import SlotRef, Worker
from training_runtime.records import build

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SentMembers:
    """A Members message that was sent: its revision and slot ids."""

    revision: int
    slots: tuple[int, ...]


@dataclass(frozen=True)
class SavedRun:
    """A run as it was last known; fields as in `live.LiveRun`. A field that is added gets a default: the next version must find this one's
    runs. `gpus`: those of its slots that have one."""

    run: int
    attempt: int
    restarts: int
    phase: Phase
    pid: int
    start_ticks: int
    shim: int
    shim_ticks: int
    socket_token: str
    uid: int | None
    result_dir: str
    journal_start: int
    told: tuple[SentMembers, ...]
    workers: tuple[Worker, ...]
    exit_code: int | None
    interrupted: bool
    stop_asked: bool
    detail: str
    busy_s: float | None = None
    counted_s: float = 0.0
    remote: bool = False
    losses: int = 0
    spare: str = ""
    gpus: tuple[SlotRef, ...] = ()


@dataclass(frozen=True)
class SavedSpare:
    """A process that waits for a run (see `spares`), and its shim."""

    pid: int
    shim: int
    shim_ticks: int
    start_ticks: int = 0


@dataclass(frozen=True)
class Saved:
    """`boot_id`, `first_ticks`: of the start of the machine, and of the container (see `processes`)."""

    boot_id: str
    revision: int
    runs: tuple[SavedRun, ...]
    spares: tuple[SavedSpare, ...] = ()
    first_ticks: int = 0


class Unreadable(Exception):
    """What an earlier host wrote down cannot be read; the file was set aside."""


def load(path: Path) -> Saved | None:
    """None where there is nothing to be found again. A file that cannot be read is set aside, not overwritten. Raises Unreadable then."""
    try:
        return build(Saved, _as_called_now(json.loads(path.read_bytes())), lenient=True)
    except FileNotFoundError:
        return None
    except (ValueError, ProtocolError) as error:
        aside = path.with_suffix(".unreadable")
        log.error("the state file cannot be read, it was set aside: %s file=%s", error, aside)
        path.replace(aside)
        raise Unreadable(str(error)) from None


def _as_called_now(said: Any) -> Any:
    """A host of before its shims were called so may have written it, whose runs still train: they must be found."""
    lists = [said.get(name) for name in ("runs", "spares")] if isinstance(said, dict) else []
    for each in (each for found in lists if isinstance(found, list) for each in found if isinstance(each, dict)):
        for new, old in (("shim", "keeper"), ("shim_ticks", "keeper_ticks"), ("remote", "station")):
            if old in each:
                each.setdefault(new, each.pop(old))
    return said


def save(path: Path, saved: Saved) -> None:
    """OSError where the storage does not take it; what was saved before stays."""
    beside = path.with_suffix(".new")
    beside.write_text(json.dumps(dataclasses.asdict(saved), separators=(",", ":")))
    beside.replace(path)
