"""`edt search`: a folder's code is run some times, with arguments that are chosen by what came of the runs before; `edt trials`."""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import Any

import click

from edt_client import searches
from edt_client.cli import output, values
from edt_client.cli.folder import options, saved
from edt_client.cli.output import as_json, say_json, with_studio
from edt_client.client import Studio
from edt_client.errors import ClientError, NoAnswer
from edt_client.plots import number
from edt_client.searches import SearchFacts, Trial
from edt_client.sweep_files import SweepFile

EXAMPLE = 'edt search . main.py "lr=0.0001..0.1 log" batch-size=32,64 --metric "test loss"'
AGAIN_S = 2.0
USUAL = {"goal": "minimize", "method": "tpe", "trials": 20}
STATUS = {"finished": 0, "stopped": 130}


@click.command("search")
@click.argument("folder", type=click.Path(path_type=Path))
@click.argument("words", nargs=-1)
@click.option("--metric", help='The curve that says which is best, as its chart names it: "test loss".')
@click.option("--maximize", "goal", flag_value="maximize", help="The highest of it is best.")
@click.option("--minimize", "goal", flag_value="minimize", help="The lowest is (default).")
@click.option("--method", type=click.Choice(["tpe", "random"]), help="How values are chosen (default: tpe).")
@click.option("--trials", type=click.IntRange(1, 1000), help=f"Runs in all (default: {USUAL['trials']}).")
@click.option("--at-once", type=click.IntRange(1, 1000), default=2, show_default=True, help="Runs at a time.")
@click.option("--early-stop", is_flag=True, help="End runs whose metric is worse than half of the others had at the same epoch.")
@click.option("--detach", "-d", is_flag=True, help="Do not follow it.")
@options
@with_studio
def search(studio: Studio, folder: Path, words: tuple[str, ...], detach: bool, as_json: bool, **said: Any) -> int:
    """Search for the best values of arguments, by runs in an experiment of their own.

    WORDS are the script, NAME=VALUES for each argument --NAME that is searched for, and behind -- the arguments that all have. VALUES are a
    range, 0.0001..0.1 or 1..4, with " log" behind it where it goes over powers of ten, or several values with commas between them.
    In place of the script, a sweep file of Weights & Biases may be named; what is said beside it holds.
    The exit status: 0 a best was found, 1 none, 130 stopped.

    \b
    Example: edt search . main.py "lr=0.0001..0.1 log" batch-size=32,64 --metric "test loss" -- --epochs 5
    """
    varied = [word for word in words if values.is_varied(word)]
    file = values.sweep_file(folder, words, grid=False)
    if not (varied or file):
        raise ClientError(f"Say what to search for: {EXAMPLE}")
    asked = _wishes(file, {name: said.pop(name) for name in ("metric", "goal", "method", "trials", "at_once", "early_stop")})
    job, arguments = saved(studio, folder, values.common(words, varied, file), as_json=as_json, **said)
    parameters = {**(file.parameters if file else {}), **searches.parameters(varied)}
    name = job.said.pop("name") or (file.name if file else "") or f"{job.version.name} {' '.join(parameters)}"[:120]
    command = shlex.join([*job.begins, *arguments])
    begun = studio.do(searches.begin(job.project.id, job.version.id, parameters, name=name, command=command, **asked, **job.said))
    if as_json:
        say_json({"event": "submitted", "experiment": begun.experiment, "url": begun.url})
    else:
        click.echo(f"Search {begun.experiment}: {begun.url}", err=True)
    return 0 if detach else _followed(studio, begun, as_json=as_json)


def _wishes(file: SweepFile | None, said: dict[str, Any]) -> dict[str, Any]:
    """What is said, else what the file says, else what is usual."""
    asked = {**USUAL, **_filled(file.asked if file else {}), **_filled(said)}
    if "metric" not in asked:
        raise ClientError(f"Say which curve tells what is best, as its chart names it: {EXAMPLE}")
    return asked


def _filled(of: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in of.items() if value}


@click.command("trials")
@click.argument("experiment", type=click.IntRange(1, 2**62))
@click.option("--follow", "-f", is_flag=True, help="Until it has ended.")
@click.option("--stop", is_flag=True, help="Try nothing more, and stop the trials that run.")
@as_json
@with_studio
def trials(studio: Studio, experiment: int, follow: bool, stop: bool, as_json: bool) -> int:
    """The trials of a search, by the number of its experiment, the best first.

    \b
    Example: edt trials 12
    """
    facts = studio.do(searches.stop(experiment) if stop else searches.of_experiment(experiment))
    if follow:
        return _followed(studio, facts, as_json=as_json)
    if as_json:
        say_json(facts)
        return 0
    sign = 1 if facts.objective == "minimize" else -1
    ranked = sorted(facts.its_trials, key=lambda each: (each.result is None, sign * (each.result or 0.0), each.run))
    names = list(dict.fromkeys(name for each in ranked for name in each.values))
    rows = [(each.run, _result(each), *(each.values.get(name, "") for name in names)) for each in ranked]
    output.table(("run", facts.metric, *names), rows)
    click.echo(f"{facts.state}, {facts.ended} of {facts.most} have ended. {facts.reason}".strip(), err=True)
    return 0


def _followed(studio: Studio, facts: SearchFacts, *, as_json: bool) -> int:
    """Ctrl-C leaves it alone."""
    try:
        return _to_the_end(studio, facts, as_json=as_json)
    except KeyboardInterrupt:
        number = facts.experiment
        click.echo(f"\nThe search goes on: edt trials {number} -f follows it again, edt trials {number} --stop ends it.", err=True)
        return 130


def _to_the_end(studio: Studio, facts: SearchFacts, *, as_json: bool) -> int:
    """A line for each trial as it ends, and the best one at the end."""
    told: set[int] = set()
    while True:
        for trial in facts.its_trials:
            if trial.ended and trial.run not in told:
                told.add(trial.run)
                say_json({"event": "trial", "trial": trial}) if as_json else click.echo(_line(facts, trial))
        if facts.has_ended:
            break
        time.sleep(AGAIN_S)
        try:
            facts = studio.do(searches.of_experiment(facts.experiment))
        except NoAnswer as lost:
            click.echo(f"{lost} The search goes on; trying again.", err=True)
    if as_json:
        say_json({"event": "ended", "state": facts.state, "reason": facts.reason, "best": facts.its_best})
    else:
        best = facts.its_best
        click.echo(f"{facts.state}: {facts.reason}" + (f"\nbest: {_line(facts, best)}" if best else ""), err=True)
    return STATUS.get(facts.state, 1)


def _line(facts: SearchFacts, trial: Trial) -> str:
    result = f"{facts.metric} {_result(trial)}" if trial.result is not None else _result(trial)
    return "  ".join([f"run {trial.run}", result, *(f"{name}={value}" for name, value in trial.values.items())])


def _result(trial: Trial) -> str:
    if trial.result is not None:
        return number(trial.result) + (" (ended early)" if trial.ended_early else "")
    return "no result" if trial.ended else "runs"


COMMANDS = (search, trials)
