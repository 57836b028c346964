"""How the building of an environment, or a step of it, comes to nothing."""

from __future__ import annotations


class Failed(Exception):
    """A step did not work; the message is the sentence for people."""


class Step(Exception):
    """uv ended with an error, and this is what it said."""


class Older(Exception):
    """Wheels alone make a `lock` that has older versions than those that there are; the message names them."""

    def __init__(self, lock: str, names: str) -> None:
        super().__init__(names)
        self.lock = lock
