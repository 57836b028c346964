"""A cgroup for each run: what it may take of the machine's memory and processes, and its share of the processors and of the disk by the
slots it holds.

Promise, where the node's notes do not say otherwise: a run's driver goes into the run's group before it boxes itself in, so whatever the
run starts is there from its first instruction, and the box lets it write to no group, its own or another's. So the kernel counts for the
run also what no process is charged with, like shared memory. Where it comes from: cgroups(7), version 2 or 1, whichever has the
controller. The shim of a run stays outside: it must survive to tell how the driver ended.

The groups lie below the one that the host was started in, so that limits of the service or container hold for all. An engine goes on when
the kernel kills one of its workers for want of memory: so a group is not killed as a whole (memory.oom.group of version 2).
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from training_runtime.host.sandbox import cgroup_values as values
from training_runtime.host.sandbox import device_wall
from training_runtime.host.sandbox.cgroup_values import Controller, Limits, Shortage, Version

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Base:
    """The group around those of this host's runs, in one hierarchy. `controllers`: those that are used there."""

    folder: Path
    version: Version
    controllers: tuple[Controller, ...]


class Groups:
    """Those of all runs that this host knows of, and what an earlier one left behind. With no bases everything does nothing. `notes`: what
    could not be had, for people. `minors`: of the machine's GPUs, by their numbers in the studio, as far as the driver tells."""

    def __init__(
        self, bases: tuple[Base, ...] = (), given: Limits | None = None, notes: tuple[str, ...] = (), minors: tuple[int, ...] = ()
    ) -> None:
        self._bases, self._given, self.notes, self._minors = bases, given, notes, minors
        self._before = {leaf.name: Shortage() for base in bases for leaf in leaves(base.folder)}  # at the time when each was made
        self._slots: dict[str, int] = {}
        self._total = -1
        self._walled = next((base for base in bases if "devices" in base.controllers), None)
        found = leaves(self._walled.folder) if self._walled is not None else []
        self._opened: dict[str, frozenset[int] | None] = {
            leaf.name: None for leaf in found if self._walled is not None and device_wall.stands(leaf, self._walled.version)
        }

    def words(self) -> tuple[str, ...]:
        """What a run may have, and then `notes`."""
        said = values.words(self._given, self.controllers) if self._given is not None else ""
        return (*([said] if said else []), *([values.WALLED] if self.keep_devices else []), *self.notes)

    @property
    def controllers(self) -> tuple[Controller, ...]:
        """Those that are used."""
        return tuple(controller for base in self._bases for controller in base.controllers)

    @property
    def limit_memory(self) -> bool:
        return "memory" in self.controllers

    @property
    def keep_devices(self) -> bool:
        """Whether a run can open the GPUs of its slots alone."""
        return self._walled is not None

    def make(self, name: str, most: values.Most | None = None) -> None:
        """With its limits, still empty; `most`: less than those of a run. Raises OSError, and a run that gets no group does not begin."""
        for base in self._bases:
            leaf = base.folder / name
            leaf.mkdir(exist_ok=True)
            for controller in base.controllers:
                assert self._given is not None
                write_all(leaf, values.of_run(values.at_most(self._given, most), controller, base.version))
        if self._walled is not None:
            device_wall.build(self._walled.folder / name, self._walled.version)
            self._opened[name] = frozenset()
        if self._bases:
            self._slots.pop(name, None)
            self._before[name] = self._count(name)

    def widen(self, name: str) -> None:
        """One that was made with less has the limits of a run from here on. Raises OSError."""
        for base in self._bases:
            for controller in base.controllers:
                assert self._given is not None
                write_all(base.folder / name, values.of_run(self._given, controller, base.version)[::-1])  # that of all memory first

    def doors(self, name: str) -> tuple[str, ...]:
        """The files of a run's group into which its first process writes "0", for itself, before it has threads or children."""
        return tuple(str(door(base.folder / name, base.version)) for base in self._bases)

    def put(self, name: str, pid: int) -> None:
        """Another process, which has started nothing yet. One that has ended since is no error."""
        for base in self._bases:
            try:
                write(base.folder / name / "cgroup.procs", str(pid))
            except ProcessLookupError:
                return

    def open_gpus(self, name: str, numbers: Collection[int]) -> None:
        """The GPUs of these numbers and no others can be opened by the processes of a group that was made with a wall. Raises OSError."""
        minors = frozenset(self._minors[number] if number < len(self._minors) else number for number in numbers)
        if self._walled is None or self._opened.get(name, minors) == minors:
            return
        device_wall.change(self._walled.folder / name, self._walled.version, self._opened[name], minors)
        self._opened[name] = minors

    def settle_gpus(self, held: Mapping[str, Collection[int]]) -> None:
        """`held`: by run, the numbers of the GPUs on which anything of it may still be: all others are closed. Tried again at the next call
        where it fails."""
        for name, numbers in held.items():
            try:
                self.open_gpus(name, numbers)
            except FileNotFoundError:
                self._opened.pop(name, None)  # the group has gone with its run
            except OSError as error:
                log.warning("the GPUs that a group may open cannot be set: %s", error)

    def settle(self, slots: Mapping[str, int]) -> None:
        """`slots`: held by each run or build that has not ended. Weights follow them; the groups of all others go as soon as they are
        empty."""
        known = {name: held for name, held in slots.items() if name in self._before}
        for base in self._bases:
            self._weigh(base, known)
        for name in [name for name in self._before if name not in slots]:
            if all([gone(base.folder / name) for base in self._bases]):
                del self._before[name]
                self._opened.pop(name, None)
        self._slots, self._total = known, sum(known.values())

    def _weigh(self, base: Base, slots: Mapping[str, int]) -> None:
        for name, held in slots.items():
            if held != self._slots.get(name):
                for controller in base.controllers:
                    try_write(base.folder / name, values.weights(held, controller, base.version))
        if "cpu" in base.controllers and (total := sum(slots.values())) != self._total:
            # All runs together are never less than one process beside them. Of the disk they have what any group has, however many
            # slots they hold: the studio's database is on it too.
            try_write(base.folder, values.weights(max(1, total), "cpu", base.version))

    def shortage(self, name: str) -> Shortage:
        """What want of memory has done to this run."""
        now, before = self._count(name), self._before.get(name, Shortage())
        return Shortage(max(0, now.kills - before.kills), now.own)

    def explain(self, found: Shortage) -> str:
        """For people, why a run has failed; empty where it was not for want of memory."""
        return values.sentence(found, self._given.memory if self._given is not None else None)

    def _count(self, name: str) -> Shortage:
        for base in self._bases:
            if "memory" in base.controllers:
                wanted = values.shortage_files(base.version)
                return values.shortage({file: read(base.folder / name / file) for file in wanted}, base.version)
        return Shortage()

    def end(self) -> None:
        """Nothing of any run is left, and so is nothing of this."""
        self.settle({})
        for base in self._bases:
            gone(base.folder)


def door(group: Path, version: Version) -> Path:
    """Of version 1 that of the group's threads: who moves itself alone does without the lock that each fork of the machine waits for."""
    return group / ("tasks" if version == 1 else "cgroup.procs")


def leaves(base: Path) -> list[Path]:
    with contextlib.suppress(OSError):
        return [Path(entry.path) for entry in os.scandir(base) if entry.is_dir(follow_symlinks=False)]
    return []


def gone(group: Path) -> bool:
    """Whether it is, now; it stays where there are processes in it, or groups."""
    try:
        group.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def write_all(group: Path, said: tuple[tuple[str, str], ...]) -> None:
    for name, value in said:
        try:
            write(group / name, value)
        except FileNotFoundError:
            if name not in values.OPTIONAL:
                raise


def try_write(group: Path, said: tuple[tuple[str, str], ...]) -> None:
    try:
        write_all(group, said)
    except OSError as error:
        log.warning("the share of a group cannot be set: %s", error)


def write(file: Path, value: str) -> None:
    """Into a file that is there; in one write, as the kernel wants it."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, value.encode())
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(file)) from None
    finally:
        os.close(descriptor)


def read(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""
