"""How a benchmark ends: a table for people, then one line of JSON for machines."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    shown = [[f"{cell:.3f}" if isinstance(cell, float) else str(cell) for cell in row] for row in rows]
    widths = [max(len(line[i]) for line in [list(columns), *shown]) for i in range(len(columns))]
    print(f"\n{title}")
    for line in [list(columns), ["-" * w for w in widths], *shown]:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def finish(name: str, figures: Mapping[str, object], peers: Mapping[str, object] | None = None) -> None:
    print(flush=True)
    print(json.dumps({"benchmark": name, "figures": dict(figures), "peers": dict(peers or {})}), flush=True)
