"""What a run's process tells its node host of what it has imported. Part of the protocol."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class SetBefore:
    """An environment variable that had this value (None: was not there any more) when a process of a run came to import the module
    `before`, and not when it began."""

    before: str
    name: str
    value: str | None


@dataclass(frozen=True)
class Imported:
    """Driver -> node host, once, of a run in an environment: the modules of packages that it has imported so far, in that order, and the
    variables that were set meanwhile, by its script or by packages."""

    modules: tuple[str, ...]
    variables: tuple[SetBefore, ...] = ()
    type: Literal["imported"] = "imported"
