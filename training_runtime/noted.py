"""A kind of line of the journal: what a script says of itself by name. Standard library only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

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
