"""Kinds of lines of the journal: what a script says of itself by name, and what its process has. Standard library only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

_SETUPS_PER_LINE = 30  # of 520 characters at most
_PER_LINE = 3  # of 6,000 characters at most, each of which JSON may write as twelve bytes: a line has its limit


@dataclass(frozen=True)
class Noted:
    """What the script says of itself by name: parameters and tags. `dropped`: tags that it has taken back, before the new ones count."""

    parameters: dict[str, str]
    tags: dict[str, str]
    dropped: tuple[str, ...] = ()
    kind: Literal["noted"] = "noted"

    @staticmethod
    def of(parameters: dict[str, str], tags: dict[str, str]) -> Iterator[Noted]:
        """The same in records that each fit into a line."""
        entries = [(name, value, True) for name, value in parameters.items()] + [(name, value, False) for name, value in tags.items()]
        for first in range(0, len(entries), _PER_LINE):
            some = entries[first : first + _PER_LINE]
            yield Noted({name: value for name, value, is_parameter in some if is_parameter}, {n: v for n, v, p in some if not p})

    def apply(self, parameters: dict[str, str], tags: dict[str, str]) -> None:
        parameters |= self.parameters
        for name in self.dropped:
            tags.pop(name, None)
        tags |= self.tags


@dataclass(frozen=True)
class Setup:
    """What the script's process has: `arguments` as argparse has parsed them from its command line, defaults too, by their names in the
    namespace; `packages` that it has imported, with their versions; the version of `python`; and the seed that it began with. A later line
    adds to an earlier one."""

    arguments: dict[str, str]
    packages: dict[str, str]
    python: str
    seed: int
    kind: Literal["setup"] = "setup"

    @staticmethod
    def of(arguments: dict[str, str], packages: dict[str, str], *, python: str, seed: int) -> Iterator[Setup]:
        """The same in records that each fit into a line, where names have 120 characters at most and values 400."""
        entries = [(name, value, True) for name, value in arguments.items()] + [(name, value, False) for name, value in packages.items()]
        for first in range(0, len(entries), _SETUPS_PER_LINE):
            some = entries[first : first + _SETUPS_PER_LINE]
            yield Setup({n: v for n, v, a in some if a}, {n: v for n, v, a in some if not a}, python, seed)
