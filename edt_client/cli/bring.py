"""`edt import`: runs that other tools have kept, and whole projects of studios; `edt export`: such a project."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from edt_client import importing
from edt_client.cli.output import as_json, project_for, say_json, with_studio
from edt_client.client import Studio
from edt_client.importing import RecordedRun
from edt_client.things import Import
from edt_client.wandb_runs import wandb_runs

project_option = click.option("--project", default="", help="Name or number; made where there is none. Default: one of your own.")
files_option = click.option("--files/--no-files", default=True, help="Send their files as well (default: yes).")


@click.group("import")
def import_() -> None:
    """Bring runs that MLflow, TensorBoard or Weights & Biases has kept, or a whole project of a studio."""


@import_.command("mlflow")
@click.argument("store")
@click.option("--experiment", "experiments", multiple=True, help="Only this one; as often as you like.")
@project_option
@files_option
@as_json
@with_studio
def mlflow(studio: Studio, store: str, experiments: tuple[str, ...], project: str, files: bool, as_json: bool) -> None:
    """Runs of a tracking store: a folder, a database, or a server's address.

    They hold no slots. Brought again, only what is new is sent.

    \b
    Example: edt import mlflow mlruns --project "Old runs"
    """
    _bring(studio, importing.mlflow_runs(store, experiments), project, files=files, as_json=as_json)


@import_.command("tensorboard")
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@project_option
@files_option
@as_json
@with_studio
def tensorboard(studio: Studio, folder: Path, project: str, files: bool, as_json: bool) -> None:
    """Runs below a folder that `tensorboard --logdir` takes: one for each folder with event files.

    \b
    Example: edt import tensorboard runs --project "Old runs"
    """
    _bring(studio, importing.tensorboard_runs(folder), project, files=files, as_json=as_json)


@import_.command("wandb")
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@project_option
@files_option
@as_json
@with_studio
def wandb(studio: Studio, folder: Path, project: str, files: bool, as_json: bool) -> None:
    """Runs of Weights & Biases that lie on this machine, sent to its server or not: the folder wandb beside the script.

    \b
    Example: edt import wandb wandb --project "Old runs"
    """
    _bring(studio, wandb_runs(folder), project, files=files, as_json=as_json)


def _bring(studio: Studio, kept: Iterator[RecordedRun], project: str, *, files: bool, as_json: bool) -> None:
    found = None
    for each in kept:
        found = found or project_for(studio, project)
        done = studio.do(importing.bring(found.id, each, files=files))
        if as_json:
            say_json(done)
        elif done.run is None:
            click.echo(f"{done.name}: left out, {done.left_out}")
        else:
            sent = done.left_out or f"{done.points:,} points, {done.files} files"
            click.echo(f"Run {done.run.id} ({done.name}): {done.run.state}, {sent}")
            for why in done.refused:
                click.echo(f"  left out: {why}", err=True)
    if found is None:
        click.echo("There are no runs to bring.", err=True)


@import_.command("project")
@click.argument("archive", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--name", default="", help="Of the project. Default: as it was called.")
@as_json
@with_studio
def project(studio: Studio, archive: Path, name: str, as_json: bool) -> None:
    """A new project of the .zip that `edt export` made, of this studio or of another.

    One that was cut off on its way is gone on with.

    \b
    Example: edt import project digits.zip --name "Digits, from the lab"
    """
    said: list[Import] = []

    def seen(now: Import) -> None:
        if now.says and not now.is_over and (not said or said[-1].says != now.says):
            click.echo(now.says, err=True)
        said.append(now)

    made = studio.import_project(archive, name=name, seen=seen)
    notes = said[-1].notes
    if as_json:
        say_json({"project": made, "notes": notes})
        return
    click.echo(f"Project {made.id} ({made.name}): {made.url}")
    for note in notes:
        click.echo(f"  {note}", err=True)


@click.command("export")
@click.argument("project")
@click.option("--to", type=click.Path(path_type=Path), default=".", help="A folder, or the file's new name.", show_default=True)
@as_json
@with_studio
def export(studio: Studio, project: str, to: Path, as_json: bool) -> None:
    """A project as one .zip: code, data, experiments, and runs that have ended with metrics, logs and files.

    \b
    Example: edt export "My digits" --to digits.zip
    """
    target = studio.export_project(project, to)
    say_json({"file": str(target), "size_bytes": target.stat().st_size}) if as_json else click.echo(target)


COMMANDS = (import_, export)
