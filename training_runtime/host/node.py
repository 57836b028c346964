"""What the acting parts of the host share: the runs of this node, the selector's registrations, the state file, and what has to be told.

`talk`, `ending`, `begin` and `adoption` are the acts; each does one thing to one run and writes what happened into its `LiveRun`. When to
do what is decided in `reconcile`, and `supervisor` is the loop that asks it.
"""

from __future__ import annotations

import logging
import selectors
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from training_runtime import storage
from training_runtime.host import processes, state
from training_runtime.host.runs.live import LiveRun
from training_runtime.host.sandbox.cgroup import Groups
from training_runtime.host.sockets import LineSocket

log = logging.getLogger(__name__)
_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


class HasFileno(Protocol):
    def fileno(self) -> int: ...


Watched = HasFileno | int


@dataclass(eq=False)
class _Registration:
    """One watching of one descriptor: its number may soon be another's."""

    callback: Callable[[int], None]


class Node:
    """`changed`: observers should know, and the state file is out of date. `grown`: runs whose journal grew since this was last emptied.
    `unsaved`: why the state file could not be written when last tried. `groups`: the control groups of runs. `warm_pid`, `helpers`:
    children that are no run's, the warm process and those that build and delete environments. `reaped`: exit codes of drivers that became
    our children because their shim was killed. `spares`: processes that wait for a run; at the beginning those of an earlier host.
    """

    def __init__(self, folder: Path, groups: Groups | None = None) -> None:
        self.folder = folder
        self.groups = groups or Groups()
        self.runs: dict[int, LiveRun] = {}
        self.revision = 0
        self.changed = False
        self.grown: set[int] = set()
        self.warm_pid: int | None = None
        self.helpers: set[int] = set()
        self.reaped: dict[int, int] = {}
        self.spares: set[state.SavedSpare] = set()
        self.unsaved = ""
        self._selector = selectors.DefaultSelector()
        self._registered: dict[int, _Registration] = {}

    def socket_file(self, run: LiveRun) -> Path:
        """Where its driver listens: to whoever knows the attempt's secret (see `protocol.Authenticate`)."""
        return self.folder / f"run-{run.run}.{run.attempt}.sock"

    def exit_file(self, run: LiveRun) -> Path:
        """Where the shim of this attempt writes the driver's exit code."""
        return self.folder / f"run-{run.run}.{run.attempt}.exit"

    def watch(self, source: Watched, callback: Callable[[int], None]) -> None:
        """`callback` gets the selector's mask. A line socket is also watched for room to write while it holds unsent bytes."""
        mask = _READ | _WRITE if isinstance(source, LineSocket) and source.has_unsent else _READ
        number = self._fileno(source)
        if (known := self._registered.get(number)) is not None:
            known.callback = callback
            self._selector.modify(source, mask, known)
        else:
            self._registered[number] = _Registration(callback)
            self._selector.register(source, mask, self._registered[number])

    def unwatch(self, source: Watched) -> None:
        """Before it is closed."""
        if self._registered.pop(self._fileno(source), None) is not None:
            self._selector.unregister(source)

    def wait(self, timeout_s: float | None) -> None:
        """Runs the callbacks of everything that is ready, after at most `timeout_s`."""
        for key, mask in self._selector.select(timeout_s):
            # An earlier callback of this round may have closed the descriptor, and a later one been given its number: what was ready was
            # the closed one, and nothing is known of the other.
            registered = self._registered.get(key.fd)
            if registered is not None and registered is key.data:
                registered.callback(mask)

    @staticmethod
    def _fileno(source: Watched) -> int:
        return source if isinstance(source, int) else source.fileno()

    def save(self) -> bool:
        """Whether it is written down. Where it cannot be, `unsaved` says why, and nothing may begin that the next host has to know of."""
        runs = tuple(run.saved() for run in self.runs.values())
        saved = state.Saved(processes.boot_id(), self.revision, runs, tuple(self.spares), processes.first_ticks())
        try:
            state.save(self.folder / "state.json", saved)
        except OSError as error:
            if error.errno not in storage.UNAVAILABLE:
                raise
            if not self.unsaved:
                log.error("the state file cannot be written: %s", error)
            self.unsaved = f"{self.folder / 'state.json'}: {error.strerror}"
            return False
        self.unsaved = ""
        return True
