"""Where files are in a run's folder that a machine has written on which the run has workers but not its driver: pure.

Its logs are where they would be with a shared folder, since no other machine writes them. All else is in a folder that is called after the
machine, as user code there saw it: what it writes under one name on two machines is two files.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from training_runtime.node.places import agent_folder


@dataclass(frozen=True)
class Guest:
    """A machine: its name, and its slots by their numbers in the studio."""

    node: str
    slots: Collection[int]

    @property
    def _folder(self) -> str:
        return agent_folder(self.node)

    def place_of(self, path: str) -> str:
        """Of a file as the machine calls it."""
        return path if self._is_log(path) else f"{self._folder}/{path}"

    def path_of(self, place: str) -> str | None:
        """What the machine calls that; None where it is none of its files."""
        if self._is_log(place):
            return place
        path = place.removeprefix(f"{self._folder}/")
        return path if path != place and not self._is_log(path) else None

    def _is_log(self, path: str) -> bool:
        parts = path.split("/")
        own = {self._folder, *(f"worker-{slot}" for slot in self.slots)}
        return len(parts) > 2 and parts[0] == "log" and parts[1] in own
