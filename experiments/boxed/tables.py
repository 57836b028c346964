"""A table that users or their programs wrote, as CSV, TSV or JSON lines: its first rows and columns, as text to be escaped.

From the beginning of the file, which the caller reads; never from all of it. Nothing is refused: what cannot be read as meant is said.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

READ_BYTES = 512 * 1024
MOST_ROWS, MOST_COLUMNS = 300, 40
MOST_CELL, MOST_CHARACTERS = 160, 200_000  # characters, of a cell and of a table
MOST_LINE = 64 * 1024  # of JSON lines
DELIMITERS = ",\t;|"
NOT_AN_OBJECT = "(value)"
_MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))


@dataclass(frozen=True)
class Table:
    """The columns' names, and for each row its label and its cells, each with whether its column is one of numbers.

    `said`: what the reader must know: how much is shown, what could not be read."""

    columns: list[tuple[str, bool]]
    rows: list[tuple[str, list[tuple[str, bool]]]]
    said: list[str]


def decoded(data: bytes, *, whole: bool) -> tuple[str, list[str]]:
    """As text, by its mark or as UTF-8; what is neither is spelled out and said. A character cut in two at the end is left away."""
    encoding = next((name for mark, name in _MARKS if data.startswith(mark)), "utf-8")
    try:
        return codecs.getincrementaldecoder(encoding)("strict").decode(data, final=whole), []
    except UnicodeDecodeError:
        said = f"Not all of it is {encoding.upper().removesuffix('-SIG')}: bytes that are not are shown as \\xNN."
        return codecs.getincrementaldecoder(encoding)("backslashreplace").decode(data, final=whole), [said]


def delimited(data: bytes, *, whole: bool, tabs: bool = False) -> Table:
    """The beginning of a file of which each line is a row; `whole`: it is all of the file."""
    text, said = _complete(data, whole=whole)
    first = text.partition("\n")[0]
    delimiter = "\t" if tabs else max(DELIMITERS, key=lambda each: (first.count(each), -DELIMITERS.index(each)))
    rows: list[list[str]] = []
    count = 0
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        for row in reader:
            if row:
                count += 1
                if len(rows) <= MOST_ROWS:  # one more: the first may be the names
                    rows.append(row)
    except csv.Error as error:
        said.append(f"From line {reader.line_num} on it cannot be read as a table: {error}.")
        whole = False
    names = rows.pop(0) if len(rows) > 1 and not any(_is_number(cell) for cell in rows[0]) else None
    wide = max(map(len, rows), default=0)
    columns = [*(names or ()), *(f"{place}" for place in range(len(names or ()) + 1, wide + 1))]
    total = count - (names is not None)
    return table(columns, [(str(place), row) for place, row in enumerate(rows, 1)], total=total if whole else None, said=said)


def json_lines(data: bytes, *, whole: bool) -> Table:
    """The beginning of a file of which each line is a JSON object: a row each, a column for each key."""
    text, said = _complete(data, whole=whole)
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    rows, broken = [], []
    for number, line in lines[:MOST_ROWS]:
        row = _parsed(line)
        if row is None:
            broken.append(number)
        rows.append((str(number), row or {NOT_AN_OBJECT: line.strip()}))
    if broken:
        more = f" and {len(broken) - 5} more" if len(broken) > 5 else ""
        said.append(f"Not JSON, or too long to be read: line {', '.join(map(str, broken[:5]))}{more}.")
    columns = list(dict.fromkeys(key for _, row in rows for key in row))
    shown = [(label, [row.get(key, "") for key in columns[: MOST_COLUMNS + 1]]) for label, row in rows]
    return table(columns, shown, total=len(lines) if whole else None, said=said)


def table(columns: Sequence[str], rows: Iterable[tuple[str, Sequence[str]]], *, total: int | None, said: Sequence[str] = ()) -> Table:
    """Cut to what a page can hold. `total`: how many rows there are, None where nobody has counted."""
    kept: list[tuple[str, list[str]]] = []
    room = MOST_CHARACTERS
    wide = min(MOST_COLUMNS, len(columns))
    for label, row in rows:
        cells = [_cut(cell) for cell in row[:wide]]
        room -= sum(map(len, cells))
        if len(kept) == MOST_ROWS or room < 0:
            break
        kept.append((label, cells + [""] * (wide - len(cells))))
    numeric = [all(_is_number(cells[place]) for _, cells in kept if cells[place]) for place in range(wide)]
    head = list(zip((_cut(name) for name in columns[:wide]), numeric, strict=True))
    body = [(label, list(zip(cells, numeric, strict=True))) for label, cells in kept]
    return Table(head, body, [_extent(len(kept), total, wide, len(columns)), *said])


def _extent(rows: int, total: int | None, columns: int, wide: int) -> str:
    """How much of it is shown."""
    of_rows = f"{total:,} row{'' if total == 1 else 's'}" if total == rows else f"The first {rows:,} rows"
    if total is not None and total > rows:
        of_rows = f"The first {rows:,} of {total:,} rows"
    of_columns = f"{wide:,} column{'' if wide == 1 else 's'}"
    return f"{of_rows}, {of_columns}." if wide <= columns else f"{of_rows}, the first {columns} of {of_columns}."


def _complete(data: bytes, *, whole: bool) -> tuple[str, list[str]]:
    """The text without the last line where the file goes on: it may be cut."""
    text, said = decoded(data, whole=whole)
    if not whole and "\n" in text:
        text = text[: text.rindex("\n") + 1]
    return text, said


def _parsed(line: str) -> dict[str, str] | None:
    """The cells of a line by their keys. None for what is not JSON."""
    if len(line) > MOST_LINE:
        return None
    try:
        found = json.loads(line, parse_int=_Literal, parse_float=_Literal)
        row = found if isinstance(found, dict) else {NOT_AN_OBJECT: found}
        return {key: value if isinstance(value, str) else _spelled(value) for key, value in row.items()}
    except (ValueError, RecursionError):
        return None


class _Literal(str):
    """A number as it was written: of any length, with any number of digits."""


def _spelled(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_inner, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json.dumps(key, ensure_ascii=False)}: {_inner(each)}' for key, each in value.items())}}}"
    return json.dumps(value)


def _inner(value: object) -> str:
    if isinstance(value, _Literal):
        return value
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else _spelled(value)


def _is_number(cell: str) -> bool:
    try:
        float(cell.removesuffix("…"))
    except ValueError:
        return False
    return True


def _cut(cell: str) -> str:
    return cell if len(cell) <= MOST_CELL else cell[: MOST_CELL - 1] + "…"
