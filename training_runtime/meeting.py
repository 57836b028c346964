"""Where the driver of a run is met by those of its machines that share no folder with it. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class Meeting:
    """Where the driver of a run can be reached by its remote agents on machines that share no folder with it. `token`: who knows it belongs
    to the run."""

    address: str
    port: int
    token: str = field(repr=False)


@dataclass(frozen=True)
class Meets:
    """Driver -> node host, on connection and when it changes: remote agents of the run can reach it at this port of the machine's
    address."""

    port: int
    token: str = field(repr=False)
    type: Literal["meets"] = "meets"
