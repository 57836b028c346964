"""Figures that a script writes into a table as it trains: `metrics.csv` with a header (Lightning's CSVLogger, Keras, Ultralytics), or a
JSON object a line. Pure: bytes in, scalars out; standard library only. What is no table of figures by steps or epochs gives none."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from training_runtime.elastic.script_logs.event_files import Chunk, Scalar
from training_runtime.elastic.script_logs.printed import number, of

FILE_NAME = re.compile(r"(metrics|scalars|history|progress|results|log|training_log|summary)\.(csv|jsonl|ndjson)|(scalars|metrics)\.json")
MOST_HEADER_BYTES = 1 << 14
MOST_LINE_BYTES = 1 << 16


def header_of(data: bytes) -> bytes:
    """The first line with its end, of what stands at the beginning; empty where it has none."""
    return data[: data.find(b"\n", 0, MOST_HEADER_BYTES) + 1]


def read(name: str, header: bytes, data: bytes, offset: int) -> Chunk:
    """`data` is what the file `name` has at `offset`, which is the beginning of a line; one without an end waits for it."""
    end = data.rfind(b"\n") + 1 or (len(data) if len(data) > MOST_LINE_BYTES else 0)
    lines = data[:end].decode(errors="replace").splitlines()
    if name.endswith(".csv"):
        records: Iterable[Mapping[str, Any]] = _rows(header, lines[1:] if offset == 0 else lines)
    else:
        records = _objects(lines)
    return Chunk(tuple(scalar for record in records for scalar in _scalars(record)), offset + end)


def _rows(header: bytes, lines: list[str]) -> Iterator[dict[str, str]]:
    try:
        names = [name.strip() for name in next(csv.reader([header.decode(errors="replace")]), [])]
        for row in csv.reader(lines):
            yield dict(zip(names, (cell.strip() for cell in row), strict=False))
    except csv.Error:  # of a line that is too long or has a byte of 0
        return


def _objects(lines: list[str]) -> Iterator[dict[str, Any]]:
    for line in lines:
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            yield found


def _scalars(record: Mapping[str, Any]) -> Iterator[Scalar]:
    figures = of(record)
    if figures is None:
        return
    step = figures.step if figures.step is not None else int(min(number(record["epoch"]) or 0.0, 2.0**53))
    for name, value in figures.values.items():
        yield Scalar(name, step, value, 0.0)
