"""What of a Ray cluster an administrator of the studio may choose for a pilot: those options of `ray job submit` that name resources, and
none that say what a job runs, where, or in which environment. Pure."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any

MOST = 1e15  # bytes of memory are the largest number
_OPTION = re.compile(r"--(entrypoint-[a-z-]+)=(.*)", re.DOTALL)
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,126}")
_VALUE = re.compile(r"[A-Za-z0-9_.:/,()! -]{0,254}")


def request(words: Sequence[str]) -> dict[str, Any]:
    """The words as fields of the Jobs API. Raises ValueError with what is wrong with them. One resource at least: a job that asks for none
    is put on the head node."""
    found: dict[str, Any] = {}
    for word in words:
        match = _OPTION.fullmatch(word)
        if match is None or match[1] not in _READERS:
            possible = ", ".join(f"--{name}" for name in _READERS)
            name = word.split("=")[0][:60]
            raise ValueError(f"{name!r} cannot be chosen here: write --entrypoint-num-cpus=4 or the like. Possible are {possible}.")
        field = match[1].replace("-", "_")
        if field in found:
            raise ValueError(f"--{match[1]} is there twice.")
        found[field] = _READERS[match[1]](f"--{match[1]}", match[2])
    amounts = [value for name, value in found.items() if isinstance(value, int | float) and name.startswith("entrypoint_")]
    if not any((*amounts, *found.get("entrypoint_resources", {}).values())):
        raise ValueError("Say what a pilot holds, as in --entrypoint-num-cpus=4: a job that asks for nothing is put on the head node.")
    return found


def _amount(option: str, text: str) -> float:
    try:
        amount = float(text)
    except ValueError:
        amount = math.nan
    return _checked(option, amount)


def _whole(option: str, text: str) -> int:
    if not text.isascii() or not text.isdecimal():
        raise ValueError(f"{option}: give a whole number of bytes.")
    return int(_checked(option, int(text)))


def _checked(option: str, amount: object) -> float:
    if isinstance(amount, bool) or not isinstance(amount, int | float) or not 0 <= amount <= MOST:
        raise ValueError(f"{option}: give a number of 0 or more.")
    return amount


def _resources(option: str, text: str) -> dict[str, float]:
    return {_named(option, name): _checked(option, amount) for name, amount in _object(option, text).items()}


def _labels(option: str, text: str) -> dict[str, str]:
    found = _object(option, text)
    for value in found.values():
        if not isinstance(value, str) or not _VALUE.fullmatch(value):
            raise ValueError(f'{option}: a label\'s value is a word, as in \'{{"ray.io/accelerator-type": "A100"}}\'.')
    return {_named(option, name): str(value) for name, value in found.items()}


def _object(option: str, text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ValueError(f"{option}: give names and values as JSON in quotes, as in '{{\"name\": 1}}'.")
    return found


def _named(option: str, name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{option}: {name[:60]!r} is no name of Ray's.")
    return name


_READERS = {
    "entrypoint-num-cpus": _amount,
    "entrypoint-num-gpus": _amount,
    "entrypoint-memory": _whole,
    "entrypoint-resources": _resources,
    "entrypoint-label-selector": _labels,
}
