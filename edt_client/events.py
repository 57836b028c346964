"""Server-sent events: lines in, events out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from edt_client.things import Event


class Reader:
    """Fed line by line. Comments, which only say that the connection lives, are left out."""

    def __init__(self) -> None:
        self._data: list[str] = []

    def feed(self, line: str) -> Event | None:
        """The event that the line ends."""
        if line.startswith("data:"):
            self._data.append(line.removeprefix("data:").removeprefix(" "))
        if line or not self._data:
            return None
        text, self._data = "\n".join(self._data), []
        try:
            said = json.loads(text)
        except (ValueError, RecursionError):
            return None
        return Event(str(said.get("type", "")), said) if isinstance(said, dict) else None


def events(lines: Iterable[str]) -> Iterator[Event]:
    reader = Reader()
    for line in lines:
        if (event := reader.feed(line.rstrip("\r\n"))) is not None:
            yield event
