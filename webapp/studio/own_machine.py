"""This machine's part in the studio: it joins as others do, by a link, and shares the studio's folders. Its node host is a process of the
studio beside the link, and outlives it."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from training_runtime.host.processes import alive, holder
from webapp.studio.checks import Refusal
from webapp.studio.processes import Program

REPOSITORY = Path(__file__).resolve().parents[2]
FOLDER = "node"
NAME = "link"


@dataclass(frozen=True)
class Joining:
    """`studio`: the address of the studio as this machine reaches it. `token`: asked for when the link is started. `data`: where scripts
    find shared data."""

    studio: str
    token: Callable[[], str]
    data: Path


def program(home: Path, joining: Joining, environment: Mapping[str, str], *, address: str) -> Program:
    """The link. `environment`: what the node host may know, which is all that a link needs. `address`: where other machines reach this one;
    it tells the host, while an administrator lets runs use several."""
    argv = [
        *(sys.executable, "-m", "training_runtime.node", "join", joining.studio, "--token", "-", "--insecure", "--no-host"),
        *("--home", str(home / FOLDER), "--shares", str(home), "--data-root", str(joining.data)),
        *("--address", address or "none"),
        *(("--slots", environment["EDT_SLOTS"]) if environment.get("EDT_SLOTS") else ()),
    ]
    return Program(NAME, tuple(argv), environment, REPOSITORY, standard_input=lambda: f"{joining.token()}\n".encode())


def token_file(home: Path) -> Path:
    """Of the token with which this machine joins; in a folder of the link's own."""
    return home / FOLDER / "token"


def refuse_host_of_before(home: Path) -> None:
    """Raises Refusal where a node host or a run is alive that a release before has started with EDT_NODE_JOINS=1, with folders of its own:
    two would hold the same slots."""
    for folder in (home / FOLDER / "host").glob("*"):
        host = holder(folder / "host.lock")
        if left := f"The node host of this machine (process {host.pid})" if host is not None else _run_left(folder / "state.json"):
            raise Refusal(
                f"{left} was started by an earlier release with EDT_NODE_JOINS=1 and still runs: start the studio as that release once "
                "more and stop it (manage.py stop), then start it like this."
            )


def _run_left(state: Path) -> str:
    """A run whose host was killed and has it written down: it trains on for a while."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        for run in json.loads(state.read_text())["runs"]:
            if alive(int(run["pid"]), int(run["start_ticks"])):
                return f"Run {int(run['run'])} (process {int(run['pid'])})"
    return ""
