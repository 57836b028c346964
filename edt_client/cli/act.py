"""What is done to runs: stop, pause, resume, priority, slots, continue, rerun."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from edt_client import comments, operations
from edt_client.calls import Operation
from edt_client.cli import output, values
from edt_client.cli.look import complete_run, run_argument
from edt_client.cli.output import as_json, say_json, with_studio
from edt_client.client import Studio
from edt_client.errors import ClientError
from edt_client.things import RunFacts

runs_argument = click.argument("runs", nargs=-1, required=True, type=click.IntRange(1), shell_complete=complete_run)
reason_option = click.option("--reason", default="", help="Others can read it.")


def _each(studio: Studio, runs: tuple[int, ...], do: Callable[[int], Operation[RunFacts]], *, as_json: bool) -> None:
    done = [studio.do(do(run)) for run in runs]
    if as_json:
        say_json(done)
        return
    for facts in done:
        click.echo(f"Run {facts.id} ({facts.name}): {facts.state}{', paused' if facts.paused else ''}")


@click.command("stop")
@runs_argument
@reason_option
@as_json
@with_studio
def stop(studio: Studio, runs: tuple[int, ...], reason: str, as_json: bool) -> None:
    """End runs at their next step.

    \b
    Example: edt stop 7 8
    """
    _each(studio, runs, lambda run: operations.stop(run, reason=reason), as_json=as_json)


@click.command("pause")
@runs_argument
@reason_option
@as_json
@with_studio
def pause(studio: Studio, runs: tuple[int, ...], reason: str, as_json: bool) -> None:
    """Let runs give their slots back and keep their state.

    \b
    Example: edt pause 7
    """
    _each(studio, runs, lambda run: operations.pause(run, reason=reason), as_json=as_json)


@click.command("resume")
@runs_argument
@reason_option
@as_json
@with_studio
def resume(studio: Studio, runs: tuple[int, ...], reason: str, as_json: bool) -> None:
    """Let paused runs have slots again.

    \b
    Example: edt resume 7
    """
    _each(studio, runs, lambda run: operations.resume(run, reason=reason), as_json=as_json)


@click.command("priority")
@run_argument
@click.argument("value", type=click.IntRange(1, 10_000))
@as_json
@with_studio
def priority(studio: Studio, run: int, value: int, as_json: bool) -> None:
    """Set a run's priority: 1 to 10000, higher first.

    \b
    Example: edt priority 7 8000
    """
    facts = studio.do(operations.change(run, priority=value))
    say_json(facts) if as_json else click.echo(f"The priority of run {facts.id} is {facts.priority}.")


@click.command("slots")
@run_argument
@click.argument("least", type=click.IntRange(1, 4096))
@click.argument("most", type=click.IntRange(1, 4096))
@as_json
@with_studio
def slots(studio: Studio, run: int, least: int, most: int, as_json: bool) -> None:
    """Set how many slots a run uses, at least and at most.

    \b
    Example: edt slots 7 1 4
    """
    facts = studio.do(operations.change(run, min_slots=least, max_slots=most))
    say_json(facts) if as_json else click.echo(f"Run {facts.id} uses {facts.min_slots} to {facts.max_slots} slots.")


@click.command("continue")
@run_argument
@click.option("--command", default="", help="Another command than it had.")
@as_json
@with_studio
def go_on(studio: Studio, run: int, command: str, as_json: bool) -> None:
    """A new run from the last checkpoint of one that has ended.

    \b
    Example: edt continue 7
    """
    facts = studio.do(operations.go_on(run, command=command))
    say_json(facts) if as_json else output.table(("run", "command", "state"), [(facts.id, facts.command, output.state(facts))])


@click.command("rerun")
@run_argument
@click.argument("words", nargs=-1, metavar="[NAME=VALUE,VALUE...]...")
@click.option("--command", default="", help="Another command than it had.")
@click.option("--version", type=click.IntRange(1), help="Another version of its training definition, by its id.")
@click.option("--slots", nargs=2, type=click.IntRange(1, 4096), metavar="LEAST MOST", help="How many it uses.")
@click.option("--priority", type=click.IntRange(1, 10_000), help="Higher first.")
@as_json
@with_studio
def rerun(studio: Studio, run: int, words: tuple[str, ...], slots: tuple[int, int] | None, as_json: bool, **said: Any) -> None:
    """New runs in the experiment of another one, with changes.

    WORDS are NAME=VALUE for each argument --NAME that is to be another; several values with commas between them make a run each.

    \b
    Example: edt rerun 7 lr=0.1,0.3 --slots 1 2
    """
    if wrong := next((word for word in words if not values.is_varied(word)), None):
        raise ClientError(f"{wrong} says no value: write NAME=VALUE, as in lr=0.3.")
    changes = {name: value for name, value in said.items() if value}
    if slots:
        changes |= {"min_slots": slots[0], "max_slots": slots[1]}
    made = studio.do(operations.rerun(run, grid=values.grid(words), **changes))
    if as_json:
        say_json(made)
    else:
        output.table(("run", "command", "state"), [(facts.id, facts.command, output.state(facts)) for facts in made])


@click.command("checkpoints")
@run_argument
@click.option("--last", type=click.IntRange(1, 1000), help="Keep so many of the newest.")
@click.option("--best", type=click.IntRange(0, 1000), default=0, help="And so many of the best by --metric.")
@click.option("--metric", default="", help='A curve as its chart is called: "test loss".')
@click.option("--max/--min", "greatest", default=False, help="The highest values are the best, or (as it is without) the lowest.")
@click.option("--all", "everything", is_flag=True, help="Keep all of them.")
@as_json
@with_studio
def checkpoints(
    studio: Studio, run: int, last: int | None, best: int, metric: str, greatest: bool, everything: bool, as_json: bool
) -> None:
    """A run's checkpoints, the best marked; or which of them it keeps while it lives.

    \b
    Example: edt checkpoints 7
             edt checkpoints 7 --last 3 --best 1 --metric "test loss"
    """
    if best and last is None:
        raise click.UsageError("Say how many of the newest are kept, too: --last 1, say.")
    if everything or last is not None:
        said = studio.do(operations.set_checkpoints(run, last=last or 0, best=best, metric=metric, greatest=greatest))
    else:
        said = studio.do(operations.checkpoints(run))
    if as_json:
        say_json(said)
        return
    found = said["best"]
    words = ((each["removed"] and "removed") or (found and found["step"] == each["step"] and "best") or "" for each in said["items"])
    rows = [(each["epoch"], each["step"], each["size_bytes"], word) for each, word in zip(said["items"], words, strict=True)]
    output.table(("epoch", "step", "bytes", ""), rows)


@click.command("comment")
@run_argument
@click.argument("text", default="")
@as_json
@with_studio
def comment(studio: Studio, run: int, text: str, as_json: bool) -> None:
    """Say something about a run, in Markdown; @bob tells Bob. Without a text, what has been said.

    \b
    Example: edt comment 7 "@bob the warm-up helps"
             edt comment 7
    """
    if text:
        made = studio.do(comments.comment(run, text))
        say_json(made) if as_json else click.echo(f"Comment {made['id']} on run {run}.")
        return
    found = studio.do(comments.comments(run))
    say_json(found) if as_json else output.table(("author", "at", "text"), [(each["author"], each["at"], each["text"]) for each in found])


COMMANDS = (stop, pause, resume, priority, slots, checkpoints, comment, go_on, rerun)
