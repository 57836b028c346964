"""What the archive of a project says beside its experiments: the saved tables of their runs, and their searches for hyperparameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class View:
    """A saved table of runs that all members see: of an `experiment`, by number, else of the whole project. `query`: of its address."""

    name: str
    query: str
    experiment: int | None
    by: str
    at: str


@dataclass(frozen=True)
class Trial:
    """`run`: the number of one, which need not travel; `values`: a JSON object."""

    run: int
    place: int
    number: int
    values: str
    result: float | None
    ended_early: bool = False


@dataclass(frozen=True)
class Search:
    """Of an `experiment`, by number. `spec`: a JSON object; one that is not over when it is exported is over where it arrives."""

    experiment: int
    spec: str
    at: str
    ended_at: str
    state: Literal["finished", "stopped", "failed"]
    reason: str
    trials: tuple[Trial, ...]
