"""What is done with a folder's code (operations, see `calls`): it is saved, and run once, with several values, or by a search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edt_client import operations, searches, sending
from edt_client.calls import Operation
from edt_client.packing import Packed
from edt_client.searches import SearchFacts, Values
from edt_client.things import RunFacts, Version


def save(packed: Packed, attributes: Mapping[str, str], *, project: str, name: str = "") -> Operation[tuple[int, Version]]:
    """The number of the project, which is made where there is none, and the version, of the type that its code asks for where nobody says
    another."""
    found = yield from operations.project_of(project, make=True)
    version, _ = yield from sending.save_code(found.id, name or packed.name, packed.zip, {"distributed": sending.BY_CODE, **attributes})
    return found.id, version


def run(
    packed: Packed, command: str, *, project: str, name: str, slots: int | None, distributed: str = sending.BY_CODE, **said: Any
) -> Operation[RunFacts]:
    attributes = {"command": command, "distributed": distributed, **({"max_slots": str(slots)} if slots else {})}
    number, version = yield from save(packed, attributes, project=project)
    return (yield from operations.start(number, version.id, command=command, name=name, **said))


def sweep(
    packed: Packed, command: str, grid: Mapping[str, Sequence[str]], *, project: str, name: str, **said: Any
) -> Operation[list[RunFacts]]:
    number, version = yield from save(packed, {"command": command}, project=project)
    title = name or f"{packed.name} {' '.join(grid)}"[:120]
    return (yield from operations.sweep(number, version.id, grid=grid, command=command, name=title, **said))


def search(
    packed: Packed, command: str, parameters: Mapping[str, Values], *, metric: str, project: str, name: str, **said: Any
) -> Operation[SearchFacts]:
    number, version = yield from save(packed, {"command": command}, project=project)
    title = name or f"{packed.name} {' '.join(parameters)}"[:120]
    return (yield from searches.begin(number, version.id, parameters, metric=metric, name=title, command=command, **said))
