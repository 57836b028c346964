"""The settings of a node host: from its command line and environment, parsed once."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from training_runtime.host import rootless
from training_runtime.host.meter import disk_values
from training_runtime.host.meter.free_space import Marks
from training_runtime.host.reconcile import LATER_THAN_THE_DRIVER, Rules
from training_runtime.host.sandbox import network
from training_runtime.host.sandbox.cgroup_values import LEAST_BYTES
from training_runtime.host.sandbox.levels import LEVELS, Level, Policy
from training_runtime.user_ids import mapped_ids

DRIVER = "training_runtime.elastic.driver.main:main"
_PRELOAD = "torch,torch.distributed,numpy"
ADDRESS = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|[0-9A-Fa-f:]*:[0-9A-Fa-f:.]*)?")

LEAST_PROCESSES = 16
FIRST_BASE = 1_000_000


@dataclass(frozen=True)
class Building:
    """Limits of building an environment; `sources`: packages without a wheel are built, which runs code of theirs."""

    limit_s: float = 1800.0
    limit_bytes: int = 20 << 30
    sources: bool = True


@dataclass(frozen=True)
class Settings:
    """`slots`: how many slots of this node the studio shares out, None where it does not say; drivers get it as EDT_NODE_SLOTS. `address`:
    where other machines reach this one, drivers and remote agents get it as EDT_ADDRESS; empty: it shares no run with other machines.
    `spares`: how many processes may wait with the packages of an environment imported (see `spares`). `lease_s`: so many seconds after the
    studio was last heard of what runs here is suspended, since it may be given up for lost and go on elsewhere; 0: never."""

    home: Path
    node: str
    slots: int | None
    driver: str
    preload: tuple[str, ...]
    rules: Rules
    policy: Policy
    address: str = ""
    marks: Marks = field(default_factory=Marks)
    checkpoint_minutes: float = 10.0
    building: Building = field(default_factory=Building)
    disk: disk_values.Limits = field(default_factory=disk_values.Limits)
    spares: int = 2
    lease_s: float = 0.0

    @property
    def folder(self) -> Path:
        return self.home / "host" / self.node


def _parser(environment: Mapping[str, str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m training_runtime.host", description="Start and watch the training processes of one machine."
    )
    parser.add_argument("--home", type=Path, required=True, help="the studio's home folder (EDT_HOME)")
    parser.add_argument("--node", required=True, help="this machine's name in the studio")
    parser.add_argument("--slots", type=int, help="how many slots of this machine are shared out")
    parser.add_argument(
        "--address",
        default=environment.get("EDT_NODE_ADDRESS", ""),
        help="host name or IP under which other machines reach this one, for runs over several machines (default: EDT_NODE_ADDRESS)",
    )
    parser.add_argument(
        "--lease", type=float, default=0.0, help="seconds without a word of the studio after which runs are suspended (default: never)"
    )
    parser.add_argument("--driver", default=DRIVER, help="package.module:function that runs in a driver process (default: %(default)s)")
    parser.add_argument("--preload", default=_PRELOAD, help="modules that the warm process imports (default: %(default)s)")
    return parser


def parse(arguments: Sequence[str], environment: Mapping[str, str]) -> Settings:
    """Ends the process with status 2 and one sentence when something is wrong, as argparse does."""
    parser = _parser(environment)
    given = parser.parse_args(arguments)
    _check(parser, given)
    try:
        rules, policy, marks = _rules(environment), sandbox_policy(environment, home=given.home.resolve()), _marks(environment)
        checkpoint_minutes = _number(environment, "EDT_CHECKPOINT_MINUTES", 10.0)
        building, disk = _building(environment), disk_limits(environment)
        spares = int(_number(environment, "EDT_SPARES", Settings.spares))
    except (ValueError, OSError) as error:
        parser.error(str(error))
    modules = (*filter(None, given.preload.split(",")), given.driver.split(":")[0])
    preload = tuple(dict.fromkeys(modules))
    return Settings(
        given.home.resolve(),
        given.node,
        given.slots,
        given.driver,
        preload,
        rules,
        policy,
        given.address,
        marks,
        checkpoint_minutes,
        building,
        disk,
        spares,
        given.lease,
    )


def _check(parser: argparse.ArgumentParser, given: argparse.Namespace) -> None:
    """Ends the process where an argument cannot be."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", given.node):
        parser.error(f"--node {given.node!r}: letters, digits, dot, dash and underscore only, at most 63")
    if not re.fullmatch(r"[\w.]+:\w+", given.driver):
        parser.error(f"--driver {given.driver!r} is not of the form package.module:function")
    if given.slots is not None and given.slots < 1:
        parser.error(f"--slots {given.slots} must be at least 1")
    if not 0 <= given.lease < 86400:
        parser.error(f"--lease {given.lease:g} must be a number of seconds, at most a day")
    if not ADDRESS.fullmatch(given.address):
        parser.error(f"--address {given.address!r} (or EDT_NODE_ADDRESS): one host name or IP address, without a port")
    if not given.home.is_dir():
        parser.error(f"--home {given.home} is not a folder")


def _rules(environment: Mapping[str, str]) -> Rules:
    return Rules(
        stop_grace_s=_number(environment, "EDT_STOP_GRACE_S", 10.0),
        term_grace_s=_number(environment, "EDT_TERM_GRACE_S", 2.0),
        orphan_grace_s=_number(environment, "EDT_ORPHAN_GRACE_S", 30.0),
        stopped_driver_s=_number(environment, "EDT_STOPPED_DRIVER_S", 20.0),
        max_restarts=int(_number(environment, "EDT_MAX_RESTARTS", 6)),
        agent_pause_s=_number(environment, "EDT_AGENT_PAUSE_S", 0.5),
        restart_pause_s=_number(environment, "EDT_RESTART_PAUSE_S", 0.5),
        driver_steady_s=_number(environment, "EDT_STEADY_S", 600.0),
        release_grace_s=LATER_THAN_THE_DRIVER * _number(environment, "EDT_RELEASE_GRACE_S", 30.0),
    )


def _marks(environment: Mapping[str, str]) -> Marks:
    usual = Marks()
    low = int(_number(environment, "EDT_DISK_LOW_BYTES", float(usual.low)))
    enough = int(_number(environment, "EDT_DISK_ENOUGH_BYTES", float(2 * low)))
    if enough < low:
        raise ValueError(f"EDT_DISK_ENOUGH_BYTES={enough} must not be less than EDT_DISK_LOW_BYTES, {low}")
    return Marks(low, enough, int(_number(environment, "EDT_DISK_RESERVE_BYTES", float(usual.reserve))))


def _building(environment: Mapping[str, str]) -> Building:
    sources = environment.get("EDT_ENVIRONMENT_SOURCES", "") or "true"
    if sources.lower() not in ("true", "false", "1", "0"):
        raise ValueError(f"EDT_ENVIRONMENT_SOURCES={sources!r}: true or false")
    usual = Building()
    return Building(
        limit_s=_number(environment, "EDT_ENVIRONMENT_BUILD_S", usual.limit_s),
        limit_bytes=int(_number(environment, "EDT_ENVIRONMENT_BUILD_BYTES", float(usual.limit_bytes))),
        sources=sources.lower() in ("true", "1"),
    )


def uid_base(home: Path, *, ids: int) -> int:
    """First of the user ids of this studio's runs: all processes of a run's user end with it, so two studios must not share them.

    It is kept beside the runs, whose folders belong to these users: every machine that shares them finds it there. The first host makes it
    from the home's path. `ids`: how many there are from 0 on; where they are as few as in a user namespace all studios have the same.
    """
    if rootless.NEEDED <= ids < FIRST_BASE:
        return rootless.UID_BASE
    path = home / "runs" / ".uid-base"
    if not path.exists():
        made = FIRST_BASE + 50_000 * (int.from_bytes(hashlib.sha256(str(home).encode()).digest()[:4]) % 20_000)
        path.parent.mkdir(exist_ok=True, mode=0o755)
        beside = path.with_name(f".uid-base.{os.getpid()}")
        beside.write_text(f"{made}\n")
        with contextlib.suppress(FileExistsError):
            os.link(beside, path)  # whole, and the first one wins
        beside.unlink()
    return int(path.read_text())


def sandbox_policy(environment: Mapping[str, str], *, home: Path) -> Policy:
    mode = environment.get("EDT_SANDBOX", "best-effort")
    least: dict[str, Level] = {"best-effort": "off", "off": "off", "required": "user", **{each: each for each in LEVELS}}
    if mode not in least:
        raise ValueError(f"EDT_SANDBOX={mode!r}: one of best-effort, off, required (user), or the weakest level: {', '.join(LEVELS[:-1])}")
    return Policy(
        mode="off" if mode == "off" else "best-effort",
        least=least[mode],
        uid_base=int(_number(environment, "EDT_UID_BASE", 0)) if environment.get("EDT_UID_BASE") else uid_base(home, ids=mapped_ids()),
        extra_read=tuple(filter(None, environment.get("EDT_SANDBOX_READ", "").split(":"))),
        max_file_bytes=int(_number(environment, "EDT_MAX_FILE_BYTES", float(1 << 40))),
        max_processes=_processes(environment),
        run_memory=_run_memory(environment),
        network=_network(environment),
        opened=_networks(environment, "EDT_RUN_NETWORK_ALLOW"),
        closed=_networks(environment, "EDT_RUN_NETWORK_DENY"),
        devices=_devices(environment),
    )


def _network(environment: Mapping[str, str]) -> network.Mode:
    modes: dict[str, network.Mode] = {"": "best-effort", "best-effort": "best-effort", "required": "required", "shared": "shared"}
    mode = environment.get("EDT_RUN_NETWORK", "")
    if mode not in modes:
        raise ValueError(f"EDT_RUN_NETWORK={mode!r}: one of best-effort, required, shared")
    return modes[mode]


def _devices(environment: Mapping[str, str]) -> bool:
    said = environment.get("EDT_SANDBOX_DEVICES", "")
    if said not in ("", "0", "1"):
        raise ValueError(f"EDT_SANDBOX_DEVICES={said!r}: 1, or 0 for none")
    return said == "1"


def _networks(environment: Mapping[str, str], name: str) -> tuple[str, ...]:
    try:
        return network.networks(environment.get(name, ""))
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _processes(environment: Mapping[str, str]) -> int:
    count = int(_number(environment, "EDT_RUN_PROCESSES", float(Policy.max_processes)))
    if count < LEAST_PROCESSES:
        raise ValueError(f"EDT_RUN_PROCESSES={count} must be at least {LEAST_PROCESSES}: processes and threads of one run")
    return count


def _run_memory(environment: Mapping[str, str]) -> float | None:
    if not environment.get("EDT_RUN_MEMORY"):
        return None
    memory = _number(environment, "EDT_RUN_MEMORY", 0.0)
    if 1 < memory < LEAST_BYTES:
        raise ValueError(
            f"EDT_RUN_MEMORY={memory:g}: a share of the machine's memory up to 1, or bytes from {LEAST_BYTES} on; 0: no limit of its own"
        )
    return memory


def disk_limits(environment: Mapping[str, str]) -> disk_values.Limits:
    usual = disk_values.Limits()
    disk = _number(environment, "EDT_RUN_DISK", 0.0) if environment.get("EDT_RUN_DISK") else None
    if disk is not None and 1 < disk < disk_values.LEAST_BYTES:
        raise ValueError(
            f"EDT_RUN_DISK={disk:g}: a share of the file system up to 1, or bytes from {disk_values.LEAST_BYTES} on; 0: no limit of its own"
        )
    files = int(_number(environment, "EDT_RUN_FILES", float(usual.files)))
    if 0 < files < disk_values.LEAST_FILES:
        raise ValueError(f"EDT_RUN_FILES={files} must be at least {disk_values.LEAST_FILES}, files and folders together; 0: no limit")
    log = int(_number(environment, "EDT_RUN_LOG", float(usual.log)))
    if 0 < log < disk_values.LEAST_LOG:
        raise ValueError(f"EDT_RUN_LOG={log} must be at least {disk_values.LEAST_LOG}, bytes of a log; 0: no limit")
    return disk_values.Limits(disk, files, log)


def _number(environment: Mapping[str, str], name: str, default: float) -> float:
    raw = environment.get(name, "")
    try:
        value = float(raw) if raw else default
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"{name}={raw!r} is not a number")
    if value < 0:
        raise ValueError(f"{name}={raw} must not be negative")
    return value
