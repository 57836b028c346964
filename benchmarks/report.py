"""How a benchmark is asked, and how it ends: a table for people, then one line of JSON for machines."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence


def asked_quick(description: str | None, arguments: Sequence[str]) -> bool:
    """Of a benchmark that knows no argument but --quick; --help, and any other, end the process."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds: the figures are rough")
    return bool(parser.parse_args(arguments).quick)


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    shown = [[f"{cell:.3f}" if isinstance(cell, float) else str(cell) for cell in row] for row in rows]
    widths = [max(len(line[i]) for line in [list(columns), *shown]) for i in range(len(columns))]
    print(f"\n{title}")
    for line in [list(columns), ["-" * w for w in widths], *shown]:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def finish(name: str, figures: Mapping[str, object], peers: Mapping[str, object] | None = None) -> None:
    print(flush=True)
    print(json.dumps({"benchmark": name, "figures": dict(figures), "peers": dict(peers or {})}), flush=True)
