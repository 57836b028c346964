"""What the node host tells who builds an environment, and what that says in the end. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass

from training_runtime.host.sandbox.levels import Box

FACTS = "environment.json"  # in a built folder: it is whole
WORK = ".building"


@dataclass(frozen=True)
class BuildSpec:
    """`store`: the folder of built environments. `trusted`: the box for uv alone, whose `write` holds the shared cache; `strange`: that in
    which code of packages may run, made for this build alone; None: nothing is built from source, and why not, where it is not the setting.
    `network`: see that module. `isolated`: code of packages may not have the machine's network."""

    key: str
    requirements: str
    lock: str
    prefer: str
    node: str
    store: str
    uv: str
    trusted: Box
    strange: Box | None
    network: dict[str, str]
    isolated: bool
    why_not: str
    limit_s: float
    limit_bytes: int
    free_bytes: int


@dataclass(frozen=True)
class Result:
    """`problem`: why there is no environment, for whoever wrote the requirements; empty where there is one, in `folder`."""

    problem: str = ""
    folder: str = ""
    lock: str = ""
    log: str = ""
    size_bytes: int = 0
    seconds: float = 0.0
