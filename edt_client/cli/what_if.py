"""When runs end, and would end if something were otherwise; and the last days under another policy. Nothing is changed by it."""

from __future__ import annotations

import datetime as dt
from typing import Any

import click

from edt_client.cli import output
from edt_client.cli.output import as_json, console, literal, say_json, with_studio
from edt_client.client import Studio

POLICIES = click.Choice(("fair_share", "priority"))
weights = click.option("--weight", multiple=True, metavar="PERSON:NUMBER", help="Somebody's weight, as in bob:2; several times if need be.")


@click.command("what-if")
@click.option("--more", default=0, type=click.IntRange(0, 16), help="So many more machines.")
@click.option("--like", default="", metavar="MACHINE", help="Each like this one.")
@click.option("--drain", "without", multiple=True, metavar="MACHINE", help="A machine that is drained; several times if need be.")
@click.option("--policy", type=POLICIES)
@weights
@click.option("--run-hours", "job_hours", type=click.FloatRange(0, min_open=True), help="A new run that takes so long on all its slots.")
@click.option("--run-slots", "job_slots", default=4, show_default=True, type=click.IntRange(1), help="Up to so many slots for it.")
@click.option("--run-of", "job_person", default="", metavar="PERSON", help="Whose it is; yours otherwise.")
@click.option("--run-on", "job_device", type=click.Choice(("gpu", "cpu")))
@click.option("--run-priority", "job_priority", default=5000, show_default=True, type=click.IntRange(1, 10_000))
@click.option("--run-in", "job_in", default=0.0, type=click.FloatRange(0), help="Submitted in so many hours.")
@as_json
@with_studio
def what_if(studio: Studio, as_json: bool, **asked: Any) -> None:
    """When every run ends, and when it would.

    \b
    Examples: edt what-if
              edt what-if --more 1
              edt what-if --weight bob:2 --run-hours 3 --run-slots 4
    """
    found = studio.get("/cluster/what-if", **{name: value for name, value in asked.items() if value not in (None, "", (), [])})
    if as_json:
        say_json(found)
        return
    rows = [
        (row["run"] or "new", literal(row["name"]), row["person"], _slots(row), _end(row, "today"), _end(row, "then"), _later(row))
        for row in found["runs"]
    ]
    output.table(("run", "name", "of", "slots at first", "ends today", "ends then", "difference"), rows)
    for each in found["assumed"]:
        console().print(literal(each, "dim"))


def _slots(row: dict[str, Any]) -> str:
    today, then = row["slots_today"], row["slots_then"]
    return f"{then}" if today == then or not row["run"] else f"{today} -> {then}"


def _end(row: dict[str, Any], which: str) -> str:
    end, begin = row[f"ends_{which}"], row[f"begins_{which}"]
    if end is not None:
        return f"{dt.datetime.fromisoformat(end).astimezone():%a %d %b %H:%M}"
    if which == "today" and not row["run"]:
        return ""
    return ("not known" if not row["known"] else "not in 30 days") if begin else "waits"


def _later(row: dict[str, Any]) -> str:
    seconds = row["difference_s"]
    if seconds is None or abs(seconds) < 60:
        return ""
    return f"{output.span(abs(seconds))} {'later' if seconds > 0 else 'sooner'}"


@click.command("replay")
@click.option("--policy", type=POLICIES, help="The policy that there would have been.")
@weights
@click.option("--days", default=7, show_default=True, type=click.IntRange(1, 30))
@as_json
@with_studio
def replay(studio: Studio, as_json: bool, policy: str | None, weight: tuple[str, ...], days: int) -> None:
    """The last days under another policy: waits and ends by person.

    \b
    Example: edt replay --policy priority --days 7
    """
    asked: dict[str, Any] = {"days": days, "weight": list(weight)} | ({"policy": policy} if policy else {})
    found = studio.get("/cluster/replay", **asked)
    if as_json:
        say_json(found)
        return
    words = {"was": "as it was", "same": "replayed as it is", "other": "replayed otherwise"}
    rows = [
        (each["person"], each["runs"], said, output.span(means["wait_s"]), output.span(means["end_s"]), output.span(means["slot_s"]))
        for each in found["people"]
        for which, said in words.items()
        for means in (each[which],)
    ]
    output.table(("person", "runs", "rules", "wait", "submission to end", "slot time"), rows)
    for each in found["assumed"]:
        console().print(literal(each, "dim"))


COMMANDS = (what_if, replay)
