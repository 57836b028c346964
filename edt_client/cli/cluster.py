"""The cluster: who holds which slot, live; and the machines."""

from __future__ import annotations

import sys
import time

import click
from rich.live import Live
from rich.table import Table

from edt_client.cli import shown
from edt_client.cli.shown import as_json, console, literal, say_json, with_studio
from edt_client.client import Studio
from edt_client.errors import NoAnswer
from edt_client.things import Slot

EVERY_S = 1.0
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


@click.command("nodes")
@as_json
@with_studio
def nodes(studio: Studio, as_json: bool) -> None:
    """The machines.

    \b
    Example: edt nodes
    """
    found = studio.nodes()
    if as_json:
        say_json(found)
        return
    rows = [
        (each.name, "silent" if each.silent else "draining" if each.draining else "up", len(each.slots), each.cpu_count, len(each.gpus),
         f"{each.memory_bytes / 2**30:.0f} GiB", each.sandbox_level)
        for each in found
    ]  # fmt: skip
    shown.table(("machine", "state", "slots", "processors", "GPUs", "memory", "box"), rows)


COMMANDS = (top, nodes)
