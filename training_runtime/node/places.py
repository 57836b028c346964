"""Names of folders that mean the same on two machines: `code/SHA256/...`, `runs/NAME`, `assets/KEY/...` and `data/...`. Pure.

The studio and each joined machine have a home of their own; what lies under these names in it is theirs to say.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any

from training_runtime.errors import ProtocolError
from training_runtime.protocol import Apply, RunSpec

ROOMS = ("code", "runs", "assets")
DATA = "data"
_PATHS = ("code_dir", "result_dir", "data_dir", "data_root", "continue_from")


def place_of(path: str, *, home: str, data: str) -> str:
    """What a path of this machine is called on the stream; empty for none. Raises ProtocolError where it is in no place that another
    machine can have."""
    if not path:
        return ""
    found = PurePosixPath(path)
    if found.is_relative_to(data):
        return str(PurePosixPath(DATA) / found.relative_to(data))
    if found.is_relative_to(home) and found.relative_to(home).parts[:1] and found.relative_to(home).parts[0] in ROOMS:
        return str(found.relative_to(home))
    raise ProtocolError(f"{path} is a folder of the studio's machine that no other machine has")


def path_of(place: str, *, home: str, data: str) -> str:
    """Where that is on this machine. Raises ProtocolError for what is no place."""
    if not place:
        return ""
    parts = place.split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise ProtocolError(f"{place!r} is no place")
    if parts[0] == DATA:
        return str(PurePosixPath(data, *parts[1:]))
    if parts[0] in ROOMS and len(parts) > 1:
        return str(PurePosixPath(home, *parts))
    raise ProtocolError(f"{place!r} is no place")


def agent_folder(node: str) -> str:
    """What a run's folder for what comes from its remote agent on the node is called, and its log's."""
    return f"agent-{re.sub(r'[^A-Za-z0-9._-]+', '_', node)[:56]}"


def translated(apply: Apply, translate: Callable[[str], str]) -> Apply:
    """The same with every path of its runs gone through `translate`."""
    runs = tuple(dataclasses.replace(wish, spec=_spec(wish.spec, translate)) for wish in apply.runs)
    return dataclasses.replace(apply, runs=runs)


def _spec(spec: RunSpec, translate: Callable[[str], str]) -> RunSpec:
    paths: Any = {name: translate(getattr(spec, name)) for name in _PATHS}
    return dataclasses.replace(spec, **paths)


def trees(spec: RunSpec) -> tuple[tuple[str, str], ...]:
    """The trees that a run needs before it can begin, as (room, name): of a spec whose paths are places. Its own folder is not among them,
    nor is shared data, which is there or not."""
    needed = []
    for place in (spec.code_dir, spec.data_dir, spec.continue_from):
        room, _, rest = place.partition("/")
        if room in ROOMS and rest:
            needed.append((room, rest.split("/", 1)[0]))
    return tuple(dict.fromkeys(needed))
