"""`python -m training_runtime.host --home DIR --node NAME [--slots N]`: the node host of one machine, until it is told to end (SIGTERM,
Ctrl-C)."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import logging
import os
import resource
import sys
import time
from pathlib import Path
from typing import IO

from training_runtime import processor, storage
from training_runtime.errors import HostBusy
from training_runtime.host import adoption, state
from training_runtime.host.meter import disk_values, disk_watch, node_facts
from training_runtime.host.meter.free_space import FreeSpaceWatch
from training_runtime.host.node import Node
from training_runtime.host.runs import fabric
from training_runtime.host.sandbox import cgroup_bases, kernel, probe
from training_runtime.host.sandbox.cgroup import Groups
from training_runtime.host.settings import Settings, parse
from training_runtime.host.supervisor import Supervisor

log = logging.getLogger(__name__)


def main() -> int:
    settings = parse(sys.argv[1:], os.environ)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s host %(levelname)s %(message)s")
    os.umask(0o077)
    _allow_files()
    try:
        _make_folder(settings)
        lock = _lock(settings.folder / "host.lock", settings)
    except (HostBusy, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    with lock:
        return _serve(settings)


def _allow_files() -> None:
    """As many open files as the machine allows: two for a run and one for each of its workers. (What a run may open its box says.)"""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _make_folder(settings: Settings) -> None:
    settings.folder.mkdir(parents=True, exist_ok=True)
    for folder in (settings.folder, settings.folder.parent):
        folder.chmod(0o711)  # passable, so that FABRIC_HOME inside can be reached; the files in it are closed one by one


def _lock(path: Path, settings: Settings) -> IO[str]:
    file = open(path, "a+")  # noqa: SIM115 (held until the process ends)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        holder = file.read().strip() or "unknown"
        file.close()
        raise HostBusy(f"Another node host (pid {holder}) already serves node {settings.node} in {settings.home}.") from None
    file.truncate(0)
    file.write(f"{os.getpid()}\n")
    file.flush()
    return file


def _serve(settings: Settings) -> int:
    kernel.become_subreaper()
    watch = FreeSpaceWatch(settings.home / "runs", settings.folder / "reserve", settings.marks, node=settings.node)
    watch.look(time.monotonic())  # before anything is written: there may be no room but the reserve
    storage.patiently(lambda: fabric.build(settings.folder), say=log.error)
    abilities = storage.patiently(lambda: probe.strongest(settings.folder, settings.policy), say=log.error)
    groups = _groups(settings)
    disk = disk_watch.look(settings.home / "runs")
    said = disk_values.words(settings.disk, disk) if disk is not None else ""
    abilities = dataclasses.replace(abilities, notes=(*abilities.notes, *groups.words(), *([said] if said else [])))
    log.info("sandbox level=%s: %s", abilities.level, "; ".join(abilities.notes))
    node = Node(settings.folder, groups)
    try:
        saved = state.load(settings.folder / "state.json")
    except state.Unreadable:
        adoption.search(node, settings.home / "runs", now=time.monotonic())
    else:
        if saved is not None:
            adoption.adopt(node, saved, now=time.monotonic())
    identity = node_facts.identity(settings.folder)
    facts = node_facts.gather(settings.node, abilities, address=settings.address, identity=identity)
    return Supervisor(settings, node=node, facts=facts, abilities=abilities, own_environment=dict(os.environ), space=watch).run()


def _groups(settings: Settings) -> Groups:
    policy = settings.policy
    if policy.mode == "off":
        return Groups()
    return cgroup_bases.begin(
        settings.folder,
        memory=policy.run_memory,
        processes=policy.max_processes,
        machine_bytes=node_facts.memory_bytes(),
        devices=tuple(gpu.minor for gpu in processor.gpu_list()) if policy.devices else None,
    )


if __name__ == "__main__":
    sys.exit(main())
