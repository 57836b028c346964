"""Curves of several runs, as calls of the API."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from edt_client.calls import Call, Operation
from edt_client.errors import NoAnswer
from edt_client.things import STRANGE, Curve, RunCurves, read


def curves(numbers: Iterable[int], metrics: Sequence[str] = (), *, max_points: int = 1000) -> Operation[list[RunCurves]]:
    """In the order of the runs, at most 100. `metrics`: as "train loss", at most 6; without, the one that most look at."""
    said = (yield Call("GET", "/points", {**_query(numbers, metrics), "max_points": max_points, "format": "json"})).json()
    if not isinstance(said, dict) or not isinstance(said.get("runs"), list):
        raise NoAnswer(STRANGE)
    return [_of_run(each) for each in said["runs"]]


def table(numbers: Iterable[int], metrics: Sequence[str] = ()) -> Operation[bytes]:
    """All points, as CSV."""
    return (yield Call("GET", "/points", {**_query(numbers, metrics), "format": "csv"})).body


def _query(numbers: Iterable[int], metrics: Sequence[str]) -> dict[str, Any]:
    return {"run": ",".join(map(str, dict.fromkeys(numbers))), "metric": list(metrics)}


def _of_run(said: Any) -> RunCurves:
    if not isinstance(said, dict):
        raise NoAnswer(STRANGE)
    return read(RunCurves, {**said, "curves": [read(Curve, each) for each in said.get("curves", [])]})
