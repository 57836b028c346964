"""Which values arguments are to have: NAME=VALUE,VALUE of `edt sweep` and `edt rerun`, or a sweep file of Weights & Biases."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path

from edt_client import sweep_files
from edt_client.errors import ClientError
from edt_client.sweep_files import SweepFile


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


def sweep_file(folder: Path, words: Sequence[str], *, grid: bool) -> SweepFile | None:
    """That the words begin with, in the folder or from here; None where they begin with something else. `grid`: every combination is to
    be run."""
    if not words or not sweep_files.is_sweep_file(words[0]):
        return None
    path = next((each for each in (folder / words[0], Path(words[0])) if each.is_file()), None)
    if path is None:
        raise ClientError(f"There is no file {words[0]} in {folder}.")
    found = sweep_files.parse(path.read_text(errors="replace"), str(path))
    if found.grid != grid:
        command, why = ("edt sweep", "of every combination") if found.grid else ("edt search", "that is chosen by what came before")
        raise ClientError(f"{path} asks for a run {why}: {command} {folder} {words[0]}")
    return found


def common(words: Sequence[str], varied: Sequence[str], file: SweepFile | None) -> tuple[str, ...]:
    """The script, or -m and a module, and the arguments that all of its runs have."""
    said = tuple(word for word in words if word not in varied)
    return (*file.begins, *file.arguments, *said[1:]) if file else said
