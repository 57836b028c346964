"""What a run waits for before it can be planned: pure. Builds of its environment on machines in, a verdict with its reason out.

A run is in the plan for the machines where its environment is ready, and for no other: so it holds no slot while one is built, and nobody
is displaced for a run that cannot start yet. It fails only when no machine can build it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

State = Literal["wanted", "building", "ready", "failed"]


@dataclass(frozen=True)
class Build:
    """An environment on one machine. `detail`: what is being done. `problem`: why it failed."""

    state: State
    detail: str = ""
    problem: str = ""


@dataclass(frozen=True)
class Verdict:
    """`on`: the machines where it is ready. `waits`, `fails`: why it is on none of them yet, or never will be."""

    on: frozenset[str] = frozenset()
    waits: str = ""
    fails: str = ""


def decide(builds: Mapping[str, Build]) -> Verdict:
    """`builds`: by the name of each machine that could run it."""
    ready = frozenset(node for node, build in builds.items() if build.state == "ready")
    if ready:
        return Verdict(on=ready)
    if not builds:
        return Verdict(waits="waits for a machine to build its environment on")
    going = [(node, build) for node, build in sorted(builds.items()) if build.state != "failed"]
    if going:
        node, build = next(((n, b) for n, b in going if b.state == "building"), going[0])
        what = f": {build.detail}" if build.detail else ""
        return Verdict(waits=f"Building the environment on {node}{what}")
    node, build = sorted(builds.items())[0]
    return Verdict(fails=build.problem or f"Its environment could not be built on {node}.")
