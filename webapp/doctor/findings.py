"""What the doctor says."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """A sentence that says what is wrong and what to do. `is_error`: something does not work, or is open to others; else it may one day."""

    words: str
    is_error: bool = True


def warning(words: str) -> Finding:
    return Finding(words, is_error=False)
