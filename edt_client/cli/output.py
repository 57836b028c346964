"""How answers are printed: as tables for people, as JSON for programs."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from edt_client import operations
from edt_client.client import Studio
from edt_client.plots import number
from edt_client.things import Project, RunFacts

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
STATES = {"completed": "green", "running": "cyan", "failed": "red", "stopped": "yellow", "suspended": "yellow"}


WIDE = 200  # characters of a line where no terminal says how many it has
# Words of metrics: of those that are not what is looked for, and that are looked at first.
ASIDE = frozenset({"lr", "learning", "epoch", "step", "norm", "time", "runtime", "momentum", "second", "tokens"})
KINDS = ({"loss"}, {"accuracy", "acc"}, {"reward", "rewards", "rew", "return", "returns"})  # of metrics, by a word in their names
KEPT_WHOLE = 12  # characters of a first column that is not folded: of longer ones a narrow terminal would show nothing else


def console() -> Console:
    return Console(highlight=False, width=None if sys.stdout.isatty() else WIDE)


def plain(thing: Any) -> Any:
    """As JSON has it."""
    if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        return {name: plain(value) for name, value in vars(thing).items()}
    if isinstance(thing, dt.datetime):
        return thing.isoformat()
    if isinstance(thing, dict):
        return {name: plain(value) for name, value in thing.items()}
    return [plain(each) for each in thing] if isinstance(thing, (list, tuple)) else thing


def say_json(thing: Any) -> None:
    click.echo(json.dumps(plain(thing)))


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    shown = Table(box=None, pad_edge=False, header_style="bold")
    lines = [[cell if isinstance(cell, Text) else literal("" if cell is None else str(cell)) for cell in row] for row in rows]
    longest = max((line[0].cell_len for line in lines), default=0)
    for place, name in enumerate(columns):
        shown.add_column(name, overflow="fold", no_wrap=place == 0 and longest <= KEPT_WHOLE)
    for line in lines:
        shown.add_row(*line)
    console().print(shown)


def literal(text: str, style: str = "") -> Text:
    """What somebody wrote, as it is: no markup of rich's, and nothing that moves a terminal's cursor or colours what follows."""
    return Text("".join(each if each.isprintable() or each == "\n" else "\N{REPLACEMENT CHARACTER}" for each in text), style)


def project_for(studio: Studio, named: str) -> Project:
    """Where something is to go: the project that is named, or one's own; made where there is none."""
    return studio.do(operations.project_of(named, make=True) if named else operations.own_project())


def state(facts: RunFacts) -> Text:
    return literal(facts.state, STATES.get(facts.state, ""))


def how_far(facts: RunFacts) -> str:
    if not facts.step:
        return ""
    return f"{facts.step}/{facts.total_steps}" if facts.total_steps else str(facts.step)


def span(seconds: float | None) -> str:
    if seconds is None:
        return ""
    whole = int(seconds)
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02} min"
    return f"{whole // 60} min {whole % 60:02} s" if whole >= 60 else f"{whole} s"


def lasted(facts: RunFacts) -> str:
    if facts.started_at is None:
        return ""
    return span(max(0.0, ((facts.ended_at or dt.datetime.now(dt.UTC)) - facts.started_at).total_seconds()))  # clocks differ


def best(facts: RunFacts) -> str:
    """The metrics that people look at first: none that says how it is trained, of a test, of the shortest path, a loss, an accuracy or a
    reward, of the shortest name; one of each of these three before a second one."""

    def rank(name: str) -> tuple[object, ...]:
        return not _words(name).isdisjoint(ASIDE), name[:4] != "test", name.count("/"), not _kinds(name), len(name), name

    found = {name: value for name, value in facts.metrics.items() if value is not None}
    ranked = sorted(found, key=rank)
    firsts = {kind: name for name in reversed(ranked) for kind in _kinds(name)}
    chosen = sorted(ranked, key=lambda name: name not in firsts.values())[:3]
    return ", ".join(f"{name} {number(found[name])}" for name in sorted(chosen, key=rank))


def _kinds(name: str) -> list[int]:
    return [kind for kind, words in enumerate(KINDS) if not words.isdisjoint(_words(name))]


def _words(name: str) -> set[str]:
    return set(re.split(r"[^a-z]+", name.lower()))


def with_studio(do: Callable[..., Any]) -> Callable[..., Any]:
    """The command's first argument is the studio that one is logged in to, which is closed after it."""

    @click.pass_context
    def command(context: click.Context, /, **given: Any) -> Any:
        studio = Studio.from_environment()
        context.call_on_close(studio.close)
        return do(studio, **given)

    command.__doc__, command.__name__ = do.__doc__, do.__name__
    command.__click_params__ = getattr(do, "__click_params__", [])  # type: ignore[attr-defined]  # click keeps options there
    return command
