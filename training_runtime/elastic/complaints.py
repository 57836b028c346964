"""Bounds what is said of errors that may come with every step: the first few, then each time there are ten times as many. Pure."""

from __future__ import annotations

FIRST = 3


class Complaints:
    """Of one source, say a logger callback."""

    def __init__(self) -> None:
        self._count = self._told = 0
        self._last = ""

    def add(self, message: str) -> str:
        """What should be said now, empty where nothing."""
        self._count, self._last = self._count + 1, message
        power = self._count >= 10 and str(self._count).strip("0") == "1"
        if self._count > FIRST and not power:
            return ""
        self._told = self._count
        return message if self._count <= FIRST else f"{message} ({self._count} times by now)"

    def rest(self) -> str:
        """At the end: what has not been said, in one line."""
        untold, self._told = self._count - self._told, self._count
        return f"{self._last} ({self._count} times in all)" if untold else ""
