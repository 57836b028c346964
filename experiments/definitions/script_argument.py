"""An argument of a training script, as its text declares it."""

from __future__ import annotations

from dataclasses import dataclass

MOST_ARGUMENTS = 200
MOST_CHOICES = 100
LONGEST_TEXT = 400


@dataclass(frozen=True)
class Argument:
    """`flags` as on a command line, the longest name first; a positional argument has its bare name.

    `kind`: "whole", "number", "choice", "flag", "text", or "words" for several. `default` as it would be typed; None where there is none,
    or it is computed, and then `computed` is its text. A flag's `default` is "on" or "off"; `off` is the flag that turns it off, if any.
    """

    flags: tuple[str, ...]
    kind: str
    default: str | None
    help: str
    choices: tuple[str, ...] = ()
    required: bool = False
    computed: str = ""
    off: str = ""

    @property
    def name(self) -> str:
        return self.flags[0]

    @property
    def positional(self) -> bool:
        return not self.name.startswith("-")
