"""The cluster: who holds which slot, live; and who used what."""

from __future__ import annotations

import csv
import sys
import time
from typing import Any

import click
from rich.live import Live
from rich.table import Table

from edt_client.cli import output
from edt_client.cli.output import as_json, console, literal, say_json, with_studio
from edt_client.client import Studio
from edt_client.errors import NoAnswer
from edt_client.things import Slot

EVERY_S = 1.0
DAY = click.DateTime(["%Y-%m-%d"])
COLOURS = ("cyan", "magenta", "yellow", "green", "blue", "red")


@click.command("top")
@click.option("--once", is_flag=True, help="Print it once.")
@as_json
@with_studio
def top(studio: Studio, once: bool, as_json: bool) -> None:
    """Who holds which slot, live. Ctrl-C ends it.

    \b
    Example: edt top
    """
    if as_json:
        say_json(studio.get("/cluster"))
        return
    if once or not sys.stdout.isatty():
        console().print(_lanes(studio.slots()))
        return
    with Live(_lanes(studio.slots()), console=console(), refresh_per_second=4, screen=True) as live:
        while True:
            time.sleep(EVERY_S)
            try:
                live.update(_lanes(studio.slots()))
            except NoAnswer as lost:
                live.update(literal(str(lost)))


def _lanes(slots: list[Slot]) -> Table:
    """A line for each slot."""
    held = sum(slot.run is not None for slot in slots)
    table = Table(box=None, pad_edge=False, header_style="bold", title=f"{held} of {len(slots)} slots held", title_justify="left")
    for name in ("machine", "slot", "state", "run", "of"):
        table.add_column(name)
    for slot in slots:
        style, words = "dim", "····"
        if slot.run:
            style, words = COLOURS[slot.run % len(COLOURS)], f"████ {slot.run} {slot.run_name}"
        if slot.reserved_for:
            words += f" (reserved for {slot.reserved_for})"
        cells = (literal(slot.node), literal(slot.label), literal(slot.state), literal(words, style), literal(slot.person or ""))
        table.add_row(*cells)
    return table


@click.command("usage")
@click.option("--by", default="person", show_default=True, type=click.Choice(("person", "project", "run")))
@click.option("--days", default=7, show_default=True, type=click.IntRange(1, 366), help="The last days.")
@click.option("--from", "first", type=DAY, help="Instead: from this day, as in 2026-11-01.")
@click.option("--to", "last", type=DAY, help="To this day, included.")
@click.option("--zone", default="UTC", show_default=True, help="Whose midnight begins the days, as in Europe/Berlin.")
@click.option("--csv", "as_csv", is_flag=True, help="Comma-separated, with slot-seconds and costs as they are.")
@as_json
@with_studio
def usage(studio: Studio, as_json: bool, as_csv: bool, **asked: Any) -> None:
    """Slot-hours held, and what they cost.

    \b
    Examples: edt usage --by project --days 30
              edt usage --from 2026-11-01 --to 2026-11-30 --csv
    """
    days = {name: asked[name].date().isoformat() for name in ("first", "last") if asked[name]}
    found = studio.get("/cluster/usage", by=asked["by"], days=asked["days"], zone=asked["zone"], **days)
    if as_json:
        say_json(found)
        return
    cells = ("key", "name", "runs", "cpu_slot_s", "gpu_slot_s", "busy_slot_s", "known_slot_s", "cost", "priced_slot_s")
    if as_csv:
        writer = csv.writer(sys.stdout)
        writer.writerow(cells)
        writer.writerows([_no_formula(row[name]) for name in cells] for row in found["items"])
        return
    rows: list[tuple[object, ...]] = [
        (literal(row["name"]), row["runs"], *_hours(row), _share(row), row["cost"] if row["priced_slot_s"] else "")
        for row in found["items"]
    ]
    if rows:
        rows.append(("total", "", "", "", f"{found['slot_s'] / 3600:.2f}", "", found["cost"] if float(found["cost"]) else ""))
    cost = f"cost {found['currency']}".strip()
    output.table((asked["by"], "runs", "CPU slot-hours", "GPU slot-hours", "slot-hours", "utilization", cost), rows)


def _no_formula(cell: object) -> object:
    """Text that a spreadsheet would take for a formula is marked as text."""
    return f"'{cell}" if isinstance(cell, str) and cell[:1] in tuple("=+-@\t\r") else cell


def _hours(row: dict[str, Any]) -> tuple[str, str, str]:
    cpu, gpu = row["cpu_slot_s"] / 3600, row["gpu_slot_s"] / 3600
    return f"{cpu:.2f}", f"{gpu:.2f}", f"{cpu + gpu:.2f}"


def _share(row: dict[str, Any]) -> str:
    return f"{100 * row['busy_slot_s'] / row['known_slot_s']:.1f} %" if row["known_slot_s"] else "unknown"


COMMANDS = (top, usage)
