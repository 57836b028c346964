"""What models, their aliases and their versions may be called, and how somebody names one of them. Pure.

An alias is never a number, and neither "latest" nor "v3": these mean versions themselves, here and to MLflow's client.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

LATEST = "latest"
LONGEST_NUMBER = 9  # digits
MOST_TAGS, TAG_NAME_LIMIT, TAG_LIMIT = 50, 100, 1000
_ALIAS = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_LIKE_A_VERSION = re.compile(r"v[0-9]+", re.IGNORECASE)
_SIGNS = "@/:\\"


def refused_name(name: str) -> str:
    """Why a model cannot be called so, in a sentence; empty where it can."""
    sign = next((each for each in _SIGNS if each in name), "")
    return f"The name has a {sign} in it, which stands before an alias or a version: leave it out." if sign else ""


def refused_alias(alias: str) -> str:
    """Why an alias cannot be called so, in a sentence; empty where it can."""
    if alias.lower() == LATEST:
        return f"{LATEST} is always the newest version: choose another alias."
    if _LIKE_A_VERSION.fullmatch(alias):
        return f"{alias} would be taken for a version: choose an alias such as champion or production."
    if not _ALIAS.fullmatch(alias):
        return "An alias begins with a letter and has letters, digits, - and _ alone, at most 64 of them: champion, say."
    return ""


def refused_tags(tags: Mapping[str, str]) -> str:
    """Why a model or a version cannot have these, in a sentence; empty where it can."""
    if len(tags) > MOST_TAGS:
        return f"{len(tags)} tags are too many: keep at most {MOST_TAGS}."
    for name, value in tags.items():
        if not name.strip() or len(name) > TAG_NAME_LIMIT or not name.isprintable() or "=" in name:
            return f"A tag's name has 1 to {TAG_NAME_LIMIT} characters, no line break and no =: correct {name[:40]!r}."
        if len(value) > TAG_LIMIT or not value.replace("\n", "").isprintable():
            return f"The tag {name} has more than {TAG_LIMIT} characters, or some that cannot be shown: shorten it."
    return ""


def number(which: str) -> int | None:
    """The number of a version that is named by it; None where `which` is an alias."""
    return int(which) if which.isascii() and which.isdigit() and len(which) <= LONGEST_NUMBER else None


def parsed(address: str) -> tuple[str, str]:
    """(name, which) of "digits@champion", "digits@3" and "digits", which is its newest version."""
    name, at, which = address.rpartition("@")
    return (name, which) if at else (address, LATEST)
