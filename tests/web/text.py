"""Pages as text, for tests that compare what a reader sees."""

from __future__ import annotations


def one_line(page: str) -> str:
    """With a space for any run of whitespace, as browsers show it outside of `pre`: where a template breaks its lines says nothing."""
    return " ".join(page.split())
