"""What the studio runs on this machine, in the order in which it is started. One place names every command line."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from training_runtime.environments import network
from training_runtime.protocol import SPOKEN
from webapp.studio import broker, own_machine, preload
from webapp.studio.own_machine import Joining
from webapp.studio.processes import Program

REPOSITORY = Path(__file__).resolve().parents[2]
# What the node host, the parent of user code, may know of the studio's environment. Names, not patterns: a password may have any name.
HOST_SETTINGS = frozenset(
    {
        *("EDT_HOME", "EDT_NODE", "EDT_SLOTS", "EDT_SANDBOX", "EDT_SANDBOX_READ", "EDT_UID_BASE", "EDT_MAX_FILE_BYTES"),
        *("EDT_SANDBOX_DEVICES", "EDT_RUN_MEMORY", "EDT_RUN_PROCESSES", "EDT_RUN_DISK", "EDT_RUN_FILES", "EDT_RUN_LOG"),
        *("EDT_RUN_NETWORK", "EDT_RUN_NETWORK_ALLOW", "EDT_RUN_NETWORK_DENY"),
        *("EDT_STOP_GRACE_S", "EDT_TERM_GRACE_S", "EDT_ORPHAN_GRACE_S", "EDT_STOPPED_DRIVER_S", "EDT_MAX_RESTARTS", "EDT_AGENT_PAUSE_S"),
        *("EDT_RESTART_PAUSE_S", "EDT_STEADY_S", "EDT_CHECKPOINT_MINUTES"),
        *("EDT_DISK_LOW_BYTES", "EDT_DISK_ENOUGH_BYTES", "EDT_DISK_RESERVE_BYTES"),
        *("NOTIFY_SOCKET", "PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "LIBRARY_PATH"),
        *("VIRTUAL_ENV", "PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "PYTHONWARNINGS"),
        *("EDT_ENVIRONMENT_BUILD_S", "EDT_ENVIRONMENT_BUILD_BYTES", "EDT_ENVIRONMENT_SOURCES", "EDT_SPARES"),
        *("NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"),
    }
)
HOST_PREFIXES = ("LC_", "CUDA_", "NCCL_", "GLOO_", "TORCH_", "PYTORCH_", "EDT_PULL_", "EDT_HANG_", "EDT_RELEASE_", network.UV_PREFIX)
COPIES = {"web": "EDT_WEB_PROCESSES", "control": "EDT_CONTROL_PROCESSES"}  # of which there may be several, and the settings that say so
HOST_STOP_S = 20.0  # beside the time that its runs have to suspend,
HOST_WRITES_S = 900.0  # and that in which it waits at most for a run whose state is being written; asked again, it does not
FIRST, RUNS, LAST = range(3)  # when a program is stopped


def all_of_them(*, home: Path, node: str, listener: int, slots: int | None, own_broker: bool, joining: Joining) -> tuple[Program, ...]:
    """`listener`: the number of the listening socket; `slots` overrides how many this machine offers; `joining`: how it
    takes part."""
    environment = {**os.environ, "EDT_HOME": str(home), "EDT_NODE": node, "PYTHONUNBUFFERED": "1"}
    environment["NOTIFY_SOCKET"] = str(notify_socket(home))
    environment["PYTHONWARNINGS"] = "ignore:You're running the worker with superuser"  # Celery means the tasks; no user code runs in them
    environment.setdefault("DJANGO_SETTINGS_MODULE", "webapp.settings")
    if slots is not None:
        environment["EDT_SLOTS"] = str(slots)
    tied = functools.partial(Program, environment=environment, folder=REPOSITORY)
    web = functools.partial(tied, argv=("webapp.studio.web", "--fd", str(listener)), inherited=(listener,), load=preload.web)
    worker = functools.partial(tied, load=preload.worker)
    return (
        *([_broker(home)] if own_broker else []),
        _host(home, node, environment),
        web("web"),
        own_machine.program(home, joining, host_environment(environment), address=environment.get("EDT_NODE_ADDRESS", "")),
        # A process of its own: journals of many runs would take the scheduler's turns, and its interpreter.
        worker("ingest", _celery("ingest", "--queues", "ingest", "--pool", "threads", "--concurrency", "2")),
        *(worker(name, _control(name)) for name in _names("control", environment)),
        *(web(name) for name in _names("web", environment)[1:]),  # they take connections from the same socket as the first
    )


def _host(home: Path, node: str, environment: Mapping[str, str]) -> Program:
    offered = ("--slots", environment["EDT_SLOTS"]) if environment.get("EDT_SLOTS") else ()
    return Program(
        "host",
        (sys.executable, "-m", "training_runtime.host", "--home", str(home), "--node", node, *offered),
        host_environment(environment),
        REPOSITORY,
        tied=False,  # training outlives everything above it
        version=SPOKEN,
        stop_s=HOST_STOP_S + HOST_WRITES_S + float(environment.get("EDT_STOP_GRACE_S") or 10),
        stops=RUNS,
    )


def _names(name: str, environment: Mapping[str, str]) -> list[str]:
    return [name, *(f"{name}-{number + 2}" for number in range(int(environment.get(COPIES[name]) or 1) - 1))]


def _control(name: str) -> tuple[str, ...]:
    """Threads, so that a slow webhook does not hold up the scheduler."""
    return _celery(name, "--queues", "control", "--pool", "threads", "--concurrency", "3")


def notify_socket(home: Path) -> Path:
    """Where the children say that they are alive (NOTIFY_SOCKET, as systemd has it)."""
    return home / "run" / "notify.sock"


def _broker(home: Path) -> Program:
    return Program(
        "broker",
        (broker.server_binary(), "-"),
        {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C.UTF-8"},
        home / "redis",
        standard_input=functools.partial(broker.configuration, home),
        stops=LAST,
    )


def _celery(name: str, *arguments: str) -> tuple[str, ...]:
    """Gossip, mingle and heartbeats serve workers that watch each other; here the database says what is wanted, and they cost a second."""
    quiet = ("--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", os.environ.get("EDT_LOG_LEVEL", "INFO"))
    return ("celery", "--app", "webapp", "--quiet", "worker", "--hostname", f"{name}@%h", *arguments, *quiet)


def host_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """For the node host: its own settings and what an installation of torch needs."""
    # How the machine reaches packages is for who builds environments: the host passes it on to nobody else.
    known = HOST_SETTINGS | network.NAMES
    return {name: value for name, value in environment.items() if name in known or name.startswith(HOST_PREFIXES)}
