"""What one can do with `Studio`, one can do with `AsyncStudio`, in the same words."""

from __future__ import annotations

import inspect
import re

import pytest

from edt_client import aio, client

PAIRS = [(client.Studio, aio.AsyncStudio), (client.Run, aio.AsyncRun), (client.Search, aio.AsyncSearch)]
FOR_A_CELL = {"plot"}  # of a notebook, which it holds until the run has ended


def words(kind: type) -> dict[str, str]:
    """Its public methods and properties, and how each is asked."""
    found = {name: inspect.getattr_static(kind, name) for name in dir(kind) if not name.startswith("_") and name not in FOR_A_CELL}
    return {name: said(each) if inspect.isfunction(each) else type(each).__name__ for name, each in found.items()}


def said(method: object) -> str:
    assert callable(method)
    return re.sub(r"<function .*? at \w+>", "...", str(inspect.signature(method)).partition(" ->")[0])


@pytest.mark.parametrize(("waits", "awaits"), PAIRS, ids=lambda kind: str(kind.__name__))
def test_both_have_the_same_words(waits: type, awaits: type) -> None:
    assert words(waits) == words(awaits)


@pytest.mark.parametrize("awaits", [awaits for _, awaits in PAIRS], ids=lambda kind: str(kind.__name__))
def test_whatever_asks_the_studio_is_awaited(awaits: type) -> None:
    methods = {name: each for name, each in inspect.getmembers(awaits, inspect.isfunction) if not name.startswith("_")}
    assert methods
    assert all(inspect.iscoroutinefunction(each) or inspect.isasyncgenfunction(each) for each in methods.values())
