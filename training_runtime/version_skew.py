"""Whether two sides of a conversation that are of different releases understand each other, and else which of them is behind. Pure,
standard library only.

Each side says which version of the messages it speaks and the oldest that it can work with; normally that is the version before. A version
is raised by one whenever a message changes (`tests/runtime/previous` records every one), so versions one apart work in both directions:
the newer side knows what the older one lacks. Kubernetes calls such a rule its version skew policy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Behind = Literal["", "ours", "theirs"]


@dataclass(frozen=True)
class ProtocolVersion:
    """`version`: of the messages that a side sends. `oldest`: the oldest version of the other side with which it works."""

    version: int
    oldest: int

    def __str__(self) -> str:
        understood = f", and understands {self.oldest} and newer" if self.oldest < self.version else ", and understands no older one"
        return f"version {self.version}{understood}"


def too_far_behind(ours: ProtocolVersion, theirs: ProtocolVersion) -> Behind:
    """Which side has to be upgraded before the two can work together; empty where they can as they are."""
    if theirs.version < ours.oldest:
        return "theirs"
    if ours.version < theirs.oldest:
        return "ours"
    return ""
