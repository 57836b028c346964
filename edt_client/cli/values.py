"""NAME=VALUE,VALUE of `edt sweep` and `edt rerun`: which values an argument is to have."""

from __future__ import annotations

import csv
from collections.abc import Iterable

from edt_client.errors import ClientError


def is_varied(word: str) -> bool:
    return "=" in word and not word.startswith("-")


def grid(words: Iterable[str]) -> dict[str, list[str]]:
    """By the name of the argument; a value with a comma of its own is in double quotes."""
    found: dict[str, list[str]] = {}
    for word in words:
        name, _, said = word.partition("=")
        if name in found:
            raise ClientError(f"{name} is there twice: write its values once, as in {name}=0.1,0.3")
        found[name] = [value.strip() for value in next(csv.reader([said], skipinitialspace=True), [""])]
    return found
