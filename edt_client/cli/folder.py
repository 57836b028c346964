"""`edt run .`: a folder's code is packed, saved and run; `edt sweep`: many times, with other arguments."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from edt_client import data, operations, packing, sending
from edt_client.cli import follow, output, values
from edt_client.cli.output import as_json, project_for, say_json, with_studio
from edt_client.client import Run, Studio
from edt_client.errors import ClientError
from edt_client.things import Project, Version

TYPES = {"elastic": "elastic", "single": "single", "torchrun": "torchrun", "torchrun-elastic": "torchrun_elastic"}


def options(command: Any) -> Any:
    """Of the commands that run a folder's code."""
    for each in reversed(
        (
            click.option("--project", default="", help="Name or number; made where there is none. Default: one of your own."),
            click.option("--name", default="", help="Of the run."),
            click.option("--definition", default="", help="Name of the training definition. Default: the folder's."),
            click.option("--slots", type=click.IntRange(1, 4096), help="The most that it uses."),
            click.option("--type", "kind", type=click.Choice(list(TYPES)), help="Default: what the script asks for."),
            click.option("--network", is_flag=True, help="Its script reaches the internet."),
            click.option("--data", default="", help="A data asset of the project: NAME, its newest version; NAME@2; or a number."),
            click.option("--source-folder", default="", help="A folder in that data, or in the data that everybody shares."),
            click.option("--env", multiple=True, metavar="NAME=VALUE", help="A variable that it finds in its environment."),
            as_json,
        )
    ):
        command = each(command)
    return command


@dataclass(frozen=True)
class Job:
    """Code that is saved, and what its runs have in common; `begins`: with what their commands do."""

    project: Project
    version: Version
    begins: list[str]
    said: dict[str, Any]


@click.command("run", context_settings={"ignore_unknown_options": False})
@click.argument("folder", type=click.Path(path_type=Path), default=".")
@click.argument("words", nargs=-1)
@options
@click.option("--program", default="", help="Of a package, in the script's place; WORDS are its arguments.")
@click.option("--module", "-m", default="", help="In the script's place, as python -m has it; WORDS are its arguments.")
@click.option("--detach", "-d", is_flag=True, help="Do not follow it.")
@with_studio
def run(studio: Studio, folder: Path, words: tuple[str, ...], detach: bool, as_json: bool, **said: Any) -> int:
    """Run a folder's code, and follow its log.

    WORDS are the script and, behind --, its arguments. The folder is sent as git would keep it (.gitignore and .edtignore are honoured).
    The exit status is the run's: 0 completed, 1 failed, 130 stopped.

    \b
    Examples: edt run . main.py --slots 4 -- --epochs 10 --lr 0.1
              edt run . -m letters.train -- --epochs 10
              edt run . --program yolo -- detect train data=digits.yaml
    """
    job, arguments = saved(studio, folder, words, as_json=as_json, **said)
    facts = studio.do(operations.start(job.project.id, job.version.id, command=shlex.join([*job.begins, *arguments]), **job.said))
    if as_json:
        say_json({"event": "submitted", "run": facts.id, "url": facts.url, "command": facts.command})
    else:
        click.echo(f"Run {facts.id}: {facts.url}", err=True)
    return 0 if detach else follow.watch(Run(studio, facts), as_json=as_json)


@click.command("sweep")
@click.argument("folder", type=click.Path(path_type=Path))
@click.argument("words", nargs=-1)
@options
@with_studio
def sweep(studio: Studio, folder: Path, words: tuple[str, ...], as_json: bool, **said: Any) -> None:
    """A run for each combination of arguments, in an experiment of their own.

    WORDS are the script, NAME=VALUE,VALUE,... for each argument --NAME that differs (a value with a comma of its own in double quotes),
    and behind -- the arguments that all have. In place of the script, a sweep file of Weights & Biases may be named whose method is grid.

    \b
    Example: edt sweep . main.py lr=0.1,0.3 batch-size=32,64 -- --epochs 10
    """
    varied = [word for word in words if values.is_varied(word)]
    file = values.sweep_file(folder, words, grid=True)
    if not (varied or file):
        raise ClientError("Say what differs: edt sweep . main.py lr=0.1,0.3 batch-size=32,64")
    job, arguments = saved(studio, folder, values.common(words, varied, file), as_json=as_json, **said)
    grid = {**(file.parameters if file else {}), **values.grid(varied)}
    common = {**job.said, "name": job.said["name"] or f"{job.version.name} {' '.join(grid)}"[:120]}
    made = studio.do(operations.sweep(job.project.id, job.version.id, grid=grid, command=shlex.join([*job.begins, *arguments]), **common))
    if as_json:
        say_json({"experiment": made[0].experiment, "runs": made})
        return
    output.table(("run", "command", "state"), [(facts.id, facts.command, output.state(facts)) for facts in made])
    follow_up = f"edt ls --experiment {made[0].experiment} shows them again, edt compare"
    click.echo(f"{follow_up} {' '.join(str(facts.id) for facts in made[:4])} compares.", err=True)


def saved(studio: Studio, folder: Path, words: tuple[str, ...], *, as_json: bool, **said: Any) -> tuple[Job, list[str]]:
    """What is to be run, and the arguments of the script. `said`: as the options say it."""
    packed = packing.pack(folder)
    if links := packing.said_of_links(packed.left_out):
        click.echo(links, err=True)
    begins, arguments = _begins(folder, words, packed.files, program=said.get("program", ""), module=said.get("module", ""))
    project = project_for(studio, said["project"])
    attributes = {
        "command": shlex.join(begins),
        "distributed": TYPES[said["kind"]] if said["kind"] else sending.BY_CODE,
        "network": "outward" if said["network"] else "none",
        **({"max_slots": str(said["slots"])} if said["slots"] else {}),
    }
    version, new = studio.do(sending.save_code(project.id, said["definition"] or packed.name, packed.zip, attributes))
    if not as_json:
        files = "1 file" if len(packed.files) == 1 else f"{len(packed.files)} files"
        sent = f"{files}, {max(1, len(packed.zip) >> 10)} KiB" if new else "not sent: as it was"
        kind = next(kind for kind, value in TYPES.items() if value == version.distributed)
        click.echo(f"{version.name} v{version.number} in {project.name} ({sent}; type {kind})", err=True)
    common = {
        "name": said["name"],
        "data": _data(studio, project.id, said["data"]),
        "source_folder": said["source_folder"],
        "environment": _environment(said["env"]),
    }
    return Job(project, version, begins, common), arguments


def _begins(folder: Path, words: tuple[str, ...], files: tuple[str, ...], *, program: str, module: str) -> tuple[list[str], list[str]]:
    """The beginning of a command, and the arguments behind it."""
    if program and module:
        raise ClientError(f"A run begins with one of --program {program} and --module {module}: leave the other out.")
    if program:
        return [program], list(words)
    words = packing.without_python(words)
    if not module and words[:1] == ("-m",) and words[1:]:
        _, module, *rest = words
        words = tuple(rest)
    if module:
        return ["python", "-m", module], list(words)
    named = words[0] if words and words[0].endswith((".py", ".ipynb")) else ""
    script, arguments = named or packing.script_of(files), list(words[1:] if named else words)
    if script not in files:
        raise ClientError(f"{folder} has no {script} to send: check the name, and whether .gitignore leaves it out.")
    return [script], arguments


def _environment(given: tuple[str, ...]) -> dict[str, str]:
    if wrong := next((each for each in given if "=" not in each), None):
        raise ClientError(f"--env {wrong} has no value: write NAME=VALUE.")
    return {name: value for name, _, value in (each.partition("=") for each in given)}


def _data(studio: Studio, project: int, named: str) -> int | None:
    if not named or named.isdigit():
        return int(named) if named else None
    return studio.do(data.version_of(project, named)).id


COMMANDS = (run, sweep)
