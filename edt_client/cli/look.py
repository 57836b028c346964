"""What there is: projects, runs, their logs, metrics and files, and runs side by side."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click
from click.shell_completion import CompletionItem

from edt_client import operations, points, transport
from edt_client.cli import follow, models, output
from edt_client.cli.output import as_json, console, say_json, with_studio
from edt_client.client import Run, Studio
from edt_client.errors import ClientError
from edt_client.plots import braille, number
from edt_client.things import RunCurves, RunFacts, TableRow


def complete_run(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The newest runs, by their numbers."""
    try:
        with Studio.from_environment() as studio:
            found = studio.runs(most=50)
    except ClientError:
        return []
    return [CompletionItem(str(each.id), help=f"{each.name} ({each.state})") for each in found if str(each.id).startswith(incomplete)]


KINDS = ("checkpoint", "model", "picture", "table", "log", "other")  # of files
run_argument = click.argument("run", type=click.IntRange(1), shell_complete=complete_run)


@click.command("projects")
@as_json
@with_studio
def projects(studio: Studio, as_json: bool) -> None:
    """Your projects.

    \b
    Example: edt projects
    """
    found = studio.projects()
    if as_json:
        say_json(found)
    else:
        output.table(("id", "name", "your role", "made by"), [(each.id, each.name, each.role, each.created_by) for each in found])


@click.command("ls")
@click.option("--project", default="", help="A project's name or number.")
@click.option("--experiment", type=click.IntRange(1), help="An experiment's number.")
@click.option("--state", default="", help="live, ended, or a state: queued, running, suspended, completed, failed, stopped.")
@click.option("--mine", is_flag=True, help="Only what you submitted.")
@click.option("--tag", default="")
@click.option("-q", "--find", default="", help="Part of a name, a command or a note.")
@click.option("--filter", "filter_", default="", help="By value, as in 'lr < 0.1 and accuracy > 0.9'; of one --project.")
@click.option("--sort", default="", help="A column, as in train.loss, with - before it the other way round; of one --project.")
@click.option("--column", "columns", multiple=True, help="state, arg.NAME, train.NAME, best(test.NAME), ...; any number of them.")
@click.option("-n", "--number", "most", default=20, show_default=True, type=click.IntRange(1, 10_000))
@as_json
@with_studio
def ls(
    studio: Studio,
    project: str,
    experiment: int | None,
    state: str,
    mine: bool,
    tag: str,
    find: str,
    filter_: str,
    sort: str,
    columns: tuple[str, ...],
    most: int,
    as_json: bool,
) -> None:
    """Runs, newest first; with --filter, --sort or --column as the run table of their project shows them.

    \b
    Example: edt ls --state live --mine
             edt ls --project Digits --filter 'lr < 0.1' --sort train.loss
    """
    chosen = studio.project(project).id if project else None
    if filter_ or sort or columns:
        if chosen is None or state or mine or tag or find:
            raise click.UsageError("--filter, --sort and --column go with --project and --experiment alone: say the rest in the filter.")
        wanted = {"filter": filter_, "sort": sort, "columns": list(columns), "experiment": experiment}
        _table(studio.do(operations.run_table(chosen, most=most, **wanted)), as_json=as_json)
        return
    submitter = studio.get("/me")["username"] if mine else ""
    asked = {"project": chosen, "experiment": experiment, "state": state, "submitter": submitter, "tag": tag, "q": find}
    found = [run.facts for run in studio.runs(most=most, **asked)]
    if as_json:
        say_json(found)
        return
    output.table(
        ("run", "name", "state", "step", "slots", "time", "metrics"),
        [(f.id, f.name, output.state(f), output.how_far(f), f.slots or "", output.lasted(f), output.best(f)) for f in found],
    )


def _table(rows: list[TableRow], *, as_json: bool) -> None:
    if as_json:
        say_json(rows)
        return
    columns = list(dict.fromkeys(key for row in rows for key in row.values))
    output.table(("run", "name", *columns), [(row.id, row.name, *(_cell(row.values.get(key)) for key in columns)) for row in rows])


def _cell(value: object) -> object:
    return "" if value is None else number(value) if isinstance(value, float) else value


@click.command("show")
@run_argument
@as_json
@with_studio
def show(studio: Studio, run: int, as_json: bool) -> None:
    """All of a run's facts.

    \b
    Example: edt show 7
    """
    facts = studio.get_run(run).facts
    if as_json:
        say_json(facts)
        return
    rows: list[tuple[str, object]] = [
        ("name", facts.name),
        ("state", output.state(facts).append_text(output.literal(f" {facts.state_reason}"))),
        ("plan", facts.plan_reason if not facts.has_ended else ""),
        ("command", facts.command),
        ("submitted", f"by {facts.submitted_by}, {facts.submitted_at:%Y-%m-%d %H:%M} UTC"),
        ("slots", f"{facts.slots} of {facts.min_slots} to {facts.max_slots}, priority {facts.priority}"),
        ("step", output.how_far(facts)),
        ("time", f"{output.lasted(facts)}{f', {output.span(facts.remaining_s)} left' if facts.remaining_s is not None else ''}"),
        ("exact", {None: "", True: "yes", False: f"not promised: {'; '.join(facts.exact_reasons)}"}[facts.exact]),
        *((name, number(value)) for name, value in facts.metrics.items() if value is not None),
        ("tags", ", ".join(facts.tags)),
        ("note", facts.note),
        ("error", facts.error_message),
        ("page", facts.url),
    ]
    output.table(("run", str(facts.id)), [row for row in rows if row[1] != ""])
    if facts.error_traceback:
        click.echo(facts.error_traceback)


@click.command("logs")
@run_argument
@click.option("-f", "--follow", "follows", is_flag=True, help="As it is written, until the run ends; the exit status is the run's.")
@click.option("--log", "name", default="driver", show_default=True, help="driver, worker-0, ...; --list names them.")
@click.option("--list", "lists", is_flag=True, help="Name its logs.")
@click.option("-n", "--lines", default=200, show_default=True, type=click.IntRange(0, 10_000))
@as_json
@with_studio
def logs(studio: Studio, run: int, follows: bool, name: str, lists: bool, lines: int, as_json: bool) -> int:
    """A run's log.

    \b
    Example: edt logs -f 7
    """
    if lists:
        found = studio.do(operations.logs(run))
        say_json(found) if as_json else output.table(("log", "bytes"), [(each.name, each.size_bytes) for each in found])
        return 0
    chosen = studio.get_run(run)
    if follows and name == follow.LOG:
        return follow.watch(chosen, as_json=as_json)
    if follows:
        for text in chosen.log_lines(name):
            click.echo(text, nl=False)
        return chosen.facts.exit_status
    tail = studio.do(operations.log(run, name, lines=lines))
    say_json(tail) if as_json else click.echo(tail.text, nl=False)
    return 0


@click.command("metrics")
@run_argument
@click.argument("name", default="")
@click.option("--plot", is_flag=True, help="Draw them.")
@click.option("--csv", "as_csv", is_flag=True, help="All points as CSV.")
@as_json
@with_studio
def metrics(studio: Studio, run: int, name: str, plot: bool, as_csv: bool, as_json: bool) -> None:
    """A run's metrics: the last value of each, or of NAME alone; drawn, or all points.

    \b
    Example: edt metrics 7 loss --plot
    """
    if as_csv:
        sys.stdout.write(studio.do(operations.table(run, name=name)).decode())
        return
    if plot or (as_json and name):
        curves = studio.do(operations.curves(run, name=name))
        if as_json:
            say_json(curves)
            return
        width = max(20, min(100, console().width - 12))
        for curve in curves:
            click.echo("\n".join(braille(curve, width=width)))
        return
    found = [each for each in studio.do(operations.metrics(run)) if name in ("", each.name)]
    if as_json:
        say_json(found)
    else:
        rows = [
            (f"{each.group} {each.name}", "" if each.last is None else number(each.last), each.last_step, each.points) for each in found
        ]
        output.table(("metric", "last", "step", "points"), rows)


@click.command("compare")
@click.argument("runs", nargs=-1, required=True, type=click.IntRange(1), shell_complete=complete_run)
@click.option("--plot", "metrics", multiple=True, metavar="METRIC", help='Draw a metric of each run instead: "train loss". Repeatable.')
@as_json
@with_studio
def compare(studio: Studio, runs: tuple[int, ...], metrics: tuple[str, ...], as_json: bool) -> None:
    """Runs of any projects side by side: what differs between them, and how they ended up.

    \b
    Example: edt compare 7 8 9
    """
    if metrics:
        found_curves = studio.do(points.curves(runs, metrics))
        say_json(found_curves) if as_json else _draw(found_curves)
        return
    compared = studio.do(operations.compare(runs))
    if as_json:
        say_json(compared)
        return
    found = compared.runs
    rows: list[list[object]] = [["name", *(facts.name for facts in found)], ["state", *(output.state(facts) for facts in found)]]
    told = [fact for fact in compared.facts if fact.differs and fact.kind in ("argument", "text") and fact.name != "Execution command"]
    rows += [[fact.name, *("" if value is None else str(value) for value in fact.values)] for fact in told]
    scores = list(dict.fromkeys(name for facts in found for name in facts.metrics))
    rows += [[name, *(_score(facts, name) for facts in found)] for name in scores]
    rows += [["step", *map(output.how_far, found)], ["time", *map(output.lasted, found)]]
    output.table(("", *(str(facts.id) for facts in found)), rows)


def _draw(found: Sequence[RunCurves]) -> None:
    width = max(20, min(100, console().width - 12))
    for run in found:
        for curve in run.curves:
            click.echo("\n".join(braille(curve, width=width, who=f"run {run.run}")))
        if not run.curves:
            click.echo(f"run {run.run} has {'no metric' if not run.metrics else 'only: ' + ', '.join(run.metrics)}.")


def _score(facts: RunFacts, name: str) -> str:
    value = facts.metrics.get(name)
    return "" if value is None else number(value)


def number_of_run(said: str) -> int:
    if not (said.isascii() and said.isdigit() and len(said) < 19 and int(said)):
        raise click.BadParameter(f"{said!r} is no number of a run.", param_hint="'RUN'")
    return int(said)


@click.command("download")
@click.argument("what", metavar="RUN", shell_complete=complete_run)
@click.argument("path", default="")
@click.option("--to", type=click.Path(path_type=Path), default=".", help="A folder, or the file's new name.", show_default=True)
@click.option("--list", "lists", is_flag=True, help="Name its files; of a folder, where PATH is one.")
@click.option("--kind", type=click.Choice(KINDS), help="With --list: of this kind.")
@click.option("--match", default="", help="With --list: with these words in their path.")
@click.option("--project", default="", help="Of a model: its project, where several have one of its name.")
@as_json
@with_studio
def download(
    studio: Studio, what: str, path: str, to: Path, lists: bool, kind: str | None, match: str, project: str, as_json: bool
) -> None:
    """A file of a run; a folder of it (PATH ends with /) or all of it as a zip; or a version of a model.

    A file that broke off goes on where it stopped.

    \b
    Example: edt download 7 model/model.pth
             edt download 7 model/
             edt download 7 --list --kind checkpoint
             edt download model digits@champion --to champion
    """
    if what == "model":
        models.fetch(studio, path, to, project=project, lists=lists, as_json=as_json)
        return
    run = number_of_run(what)
    if lists:
        found = studio.do(operations.files(run, q=match, kind=kind or "", folder=path.strip("/")))
        rows = [(each.path, each.size_bytes, each.kind or each.role) for each in found]
        say_json(found) if as_json else output.table(("path", "bytes", "kind"), rows)
        return
    if path and not path.endswith("/"):
        target = Run(studio, studio.do(operations.run(run))).download(path, to)
    else:
        target = _download_zip(studio, run, path.strip("/"), to)
    say_json({"file": str(target), "size_bytes": target.stat().st_size}) if as_json else click.echo(target)


def _download_zip(studio: Studio, run: int, folder: str, to: Path) -> Path:
    name = "-".join(["run", str(run), *(folder.split("/") if folder else [])])
    target = transport.anew(to, f"{name}.zip")
    studio.download(f"/runs/{run}/results.zip{f'?folder={quote(folder)}' if folder else ''}", target)
    return target


@click.command("open")
@run_argument
@click.option("--print", "prints", is_flag=True, help="Print the address instead.")
@with_studio
def open_page(studio: Studio, run: int, prints: bool) -> None:
    """A run's page in the browser.

    \b
    Example: edt open 7
    """
    url = studio.get_run(run).facts.url
    if prints or click.launch(url) != 0:
        click.echo(url)


@click.command("api")
@click.argument("path")
@click.option("-X", "--method", default="GET", show_default=True, type=click.Choice(["GET", "POST", "PATCH", "PUT", "DELETE"]))
@click.option("--body", default="", help="JSON; - reads the standard input.")
@with_studio
def api(studio: Studio, path: str, method: str, body: str) -> None:
    """Any call of the API, with your token; its answer as JSON.

    \b
    Example: edt api "/runs?state=live"
    """
    text = sys.stdin.read() if body == "-" else body
    try:
        said: Any = json.loads(text) if text else None
    except ValueError as error:
        raise ClientError(f"--body is no JSON: {error}.") from None
    at, _, query = path.removeprefix("/api/v1").partition("?")
    whole = f"/{at.strip('/')}{f'?{query}' if query else ''}"
    say_json(studio.do(operations.send(method, whole, said)))


COMMANDS = (projects, ls, show, logs, metrics, compare, download, open_page, api)
