"""`edt import`: runs that other tools have kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from edt_client import importing, operations
from edt_client.cli.shown import as_json, own_project, say_json, with_studio
from edt_client.client import Studio
from edt_client.importing import Kept

project_option = click.option("--project", default="", help="Name or number; made where there is none. Default: one of your own.")
files_option = click.option("--files/--no-files", default=True, help="Send their files as well (default: yes).")


@click.group("import")
def import_() -> None:
    """Bring runs that MLflow or TensorBoard has kept, with their curves, parameters and files.

    They hold no slots. Brought again, only what is new is sent.
    """


@import_.command("mlflow")
@click.argument("store")
@click.option("--experiment", "experiments", multiple=True, help="Only this one; as often as you like.")
@project_option
@files_option
@as_json
@with_studio
def mlflow(studio: Studio, store: str, experiments: tuple[str, ...], project: str, files: bool, as_json: bool) -> None:
    """Runs of a tracking store: a folder, a database, or a server's address.

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


def _bring(studio: Studio, kept: Iterator[Kept], project: str, *, files: bool, as_json: bool) -> None:
    found = None
    for each in kept:
        found = found or studio.do(operations.project_of(project or own_project(studio), make=True))
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


COMMANDS = (import_,)
