"""This machine's part in the studio, where it joins as others do (EDT_NODE_JOINS): a link with a home of its own below EDT_HOME, and under
it a node host. Both outlive the studio; the next one starts the link anew, which finds the host."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from training_runtime.host.processes import Process, alive, holder
from webapp.studio.checks import Refusal
from webapp.studio.processes import Program

REPOSITORY = Path(__file__).resolve().parents[2]
FOLDER = "node"
NAME = "node"
LINK_STOP_S = 150.0  # beside the time of its host: for the last files of runs to arrive


@dataclass(frozen=True)
class Joining:
    """`studio`: the address of the studio as this machine reaches it. `token`: asked for when the link is started. `data`: where scripts
    find shared data."""

    studio: str
    token: Callable[[], str]
    data: Path


def program(home: Path, joining: Joining, environment: Mapping[str, str], *, stop_s: float, stops: int) -> Program:
    """The link. `environment`: what the node host may know; `stop_s`: how long that may take to end; `stops`: as in Program."""
    argv = [
        sys.executable,
        "-m",
        "training_runtime.node",
        "join",
        joining.studio,
        "--token",
        "-",
        "--insecure",
        "--home",
        str(home / FOLDER),
    ]
    argv += ["--data-root", str(joining.data), "--address", environment.get("EDT_NODE_ADDRESS") or "none"]
    if slots := environment.get("EDT_SLOTS"):
        argv += ["--slots", slots]
    return Program(
        NAME,
        tuple(argv),
        {name: value for name, value in environment.items() if name != "NOTIFY_SOCKET"},  # its host is no child of the studio
        REPOSITORY,
        standard_input=lambda: f"{joining.token()}\n".encode(),
        tied=False,
        anew=True,
        stop_s=stop_s + LINK_STOP_S,
        stops=stops,
    )


def written_token(home: Path) -> str:
    """With which this machine has joined; empty where it has not."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        return str(json.loads((home / FOLDER / "node.json").read_text()).get("token", ""))
    return ""


def host_of(home: Path, node: str, *, joins: bool) -> Process | None:
    """The node host that runs on this machine, as one that has joined or as the studio's own child."""
    return holder((home / FOLDER if joins else home) / "host" / node / "host.lock")


def refuse_other_host(home: Path, node: str, *, joins: bool) -> None:
    """Raises Refusal where runs of this machine have been left training in the other way of taking part, with or without their host."""
    host = host_of(home, node, joins=not joins)
    left = f"The node host of this machine (process {host.pid})" if host else _run_left(home, node, joins=not joins)
    if left:
        before = "without EDT_NODE_JOINS" if joins else "with EDT_NODE_JOINS=1"
        raise Refusal(
            f"{left} was started {before} and still runs: start the studio {before} once more and stop it (manage.py stop), then start it "
            "like this."
        )


def _run_left(home: Path, node: str, *, joins: bool) -> str:
    """A run whose host was killed and has it written down: it trains on for a while, and nobody else may have its folder."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        saved = json.loads(((home / FOLDER if joins else home) / "host" / node / "state.json").read_text())
        for run in saved["runs"]:
            if alive(int(run["pid"]), int(run["start_ticks"])):
                return f"Run {int(run['run'])} (process {int(run['pid'])})"
    return ""
