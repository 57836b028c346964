"""Messages of kinds that are not known, as a side of a newer version sends them: they are left out, with a line in the log. Standard
library only."""

from __future__ import annotations

import logging

from training_runtime.errors import UnknownMessage

MOST_KINDS = 16


class LeftOut:
    """Messages of kinds that are not known, each kind logged once: a side that is ahead may send it every second."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._kinds: set[str] = set()

    def note(self, error: UnknownMessage, *, of: str) -> None:
        """`of`: who has sent it."""
        if error.kind not in self._kinds and len(self._kinds) < MOST_KINDS:
            self._kinds.add(error.kind)
            self._log.warning("a message of %s is left out, which a newer version may have sent: %s", of, error)
