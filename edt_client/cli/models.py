"""`edt models`, `edt register`, `edt alias`: registered models, from a shell."""

from __future__ import annotations

from pathlib import Path

import click

from edt_client import registry
from edt_client.cli import output
from edt_client.cli.output import as_json, say_json, with_studio
from edt_client.client import Studio
from edt_client.errors import ClientError
from edt_client.plots import number
from edt_client.registry import ModelVersion, RegisteredModel

project_option = click.option("--project", default="", help="A project's name or number, where several have a model of this name.")


@click.command("models")
@click.argument("name", default="")
@project_option
@as_json
@with_studio
def models(studio: Studio, name: str, project: str, as_json: bool) -> None:
    """Your registered models; with a NAME, its versions.

    \b
    Example: edt models digits
    """
    if not name:
        found = studio.models(project=project)
        say_json(found) if as_json else output.table(("id", "name", "newest", "aliases", "versions"), [_row(each) for each in found])
        return
    model = studio.do(registry.model_of(name, project=studio.number_of(project)))
    versions = studio.do(registry.versions(model.id))
    if as_json:
        say_json(versions)
    else:
        output.table(("version", "aliases", "run", "made of", "bytes", "figures"), [_version_row(each) for each in versions])


def _row(model: RegisteredModel) -> tuple[object, ...]:
    aliases = ", ".join(f"{alias} → {version}" for alias, version in sorted(model.aliases.items()))
    return model.id, model.name, model.newest, aliases, model.versions


def _version_row(version: ModelVersion) -> tuple[object, ...]:
    figures = [f"{name} {number(value)}" for name, value in version.lineage.get("metrics", {}).items() if value is not None]
    return version.number, ", ".join(version.aliases), version.run, version.path, version.size_bytes, ", ".join(figures[:3])


@click.command("register")
@click.argument("run", type=click.IntRange(1))
@click.option("--name", required=True, help="Of the model; made where there is none.")
@click.option("--path", default="", help="A file or a folder of the run. Default: its final model, or what looks most like it.")
@click.option("--alias", "aliases", multiple=True, help="That is to point to it, such as champion; as often as you like.")
@click.option("--note", default="", help="Markdown.")
@click.option("--tag", "tags", multiple=True, help="NAME=VALUE; as often as you like.")
@as_json
@with_studio
def register(
    studio: Studio, run: int, name: str, path: str, aliases: tuple[str, ...], note: str, tags: tuple[str, ...], as_json: bool
) -> None:
    """Register what a run has written as the next version of a model.

    It is a copy: it stays when the run is deleted.

    \b
    Example: edt register 7 --name digits --alias champion
    """
    pairs = dict(each.partition("=")[::2] for each in tags)
    made = studio.do(registry.register(run, name, path=path, note=note, tags=pairs, aliases=aliases))
    if as_json:
        say_json(made)
        return
    click.echo(f"{made.name} version {made.number}, of {made.path}: {made.url}")
    for why in made.left_out:
        click.echo(f"  {why}", err=True)


@click.command("alias")
@click.argument("model")
@click.argument("alias")
@click.option("--remove", is_flag=True, help="Let it point to nothing any more.")
@project_option
@as_json
@with_studio
def alias(studio: Studio, model: str, alias: str, remove: bool, project: str, as_json: bool) -> None:
    """Let an alias point to a version of a model.

    \b
    Example: edt alias digits@1 production
    """
    if remove:
        found = studio.do(registry.model_of(registry.parsed(model)[0], project=studio.number_of(project)))
        studio.do(registry.drop_alias(found.id, alias))
        say_json({"model": found.id, "alias": alias, "version": None}) if as_json else click.echo(f"{alias} points to nothing any more.")
        return
    now = studio.set_alias(model, alias, project=project)
    say_json(now) if as_json else click.echo(f"{alias} points to version {now.aliases[alias]} of {now.name}.")


def fetch(studio: Studio, address: str, to: Path, *, project: str, lists: bool, as_json: bool) -> None:
    """`edt download model`: the files of a version into a folder, or their names."""
    if not address:
        raise ClientError("Name a model: edt download model NAME@alias, NAME@3, or NAME for its newest version.")
    if lists:
        files = studio.model(address, project=project).its_files
        say_json(files) if as_json else output.table(
            ("path", "bytes", "sha256"), [(each.path, each.size_bytes, each.sha256) for each in files]
        )
        return
    found = studio.download_model(address, "" if to == Path() else to, project=project)
    say_json({"files": [str(each) for each in found]}) if as_json else click.echo("\n".join(map(str, found)))


COMMANDS = (models, register, alias)
