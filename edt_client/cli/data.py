"""`edt upload`, `edt data`: data sets and their versions, from a shell."""

from __future__ import annotations

from pathlib import Path

import click

from edt_client import data, operations, packing
from edt_client.cli import output
from edt_client.cli.output import as_json, project_for, say_json, with_studio
from edt_client.client import Studio
from edt_client.errors import ClientError
from edt_client.things import DataAsset


@click.command("upload")
@click.argument("path", type=click.Path(path_type=Path, exists=True))
@click.option("--project", default="", help="Name or number; made where there is none. Default: one of your own.")
@click.option("--name", default="", help="Default: the folder's.")
@click.option("--next-of", default="", metavar="DATA", help="Add it as the next version of this data set of the project.")
@click.option("--note", default="", help="With --next-of: what is new, in one line.")
@as_json
@with_studio
def upload(studio: Studio, path: Path, project: str, name: str, next_of: str, note: str, as_json: bool) -> None:
    """A folder, or a file, as a data asset, which runs find as DATA_DIR.

    It is a data set of its own, or the next version of one, which the project then has too; versions never change.

    \b
    Example: edt upload data --name digits
             edt upload data --next-of digits --note "without duplicates"
    """
    if next_of and name:
        raise ClientError("A version has the name of its data set: leave --name out.")
    if note and not next_of:
        raise ClientError("--note says what is new in a version: name the data set by --next-of.")
    if links := packing.said_of_links(data.left_out(path)):
        click.echo(links, err=True)
    found = project_for(studio, project)
    if next_of:
        before = studio.do(data.version_of(found.id, next_of, only=True))
        asset = studio.do(data.add_version(before.id, path, note=note))
    else:
        asset = studio.do(data.upload(found.id, name or path.resolve().name, path))
    if as_json:
        say_json(asset)
    else:
        called = f"{asset.name} v{asset.version}"
        click.echo(f"Data asset {asset.id} ({called}) in {found.name}: {asset.files} files, {asset.size_bytes:,} bytes. {asset.url}")


@click.command("data")
@click.argument("address", metavar="[DATA]", default="")
@click.option("--project", default="", help="Name or number. Default: one of your own.")
@click.option("--delete", is_flag=True, help="Delete this version: NAME@2, or a number.")
@click.option("--delete-all", is_flag=True, help="Delete all versions of it.")
@click.option("--yes", is_flag=True, help="Do not ask before deleting.")
@as_json
@with_studio
def data_sets(studio: Studio, address: str, project: str, delete: bool, delete_all: bool, yes: bool, as_json: bool) -> None:
    """The data sets of a project; of a DATA (NAME, NAME@2 or a number) its versions.

    \b
    Example: edt data digits
    """
    found = studio.do(operations.project_of(project, make=False) if project else operations.own_project())
    if not address:
        if delete or delete_all:
            raise ClientError("Name what to delete: edt data NAME@2 --delete, or edt data NAME --delete-all.")
        sets = studio.do(data.sets(found.id))
        say_json(sets) if as_json else output.table(("id", "name", "newest", "versions", "files", "bytes"), [_row(each) for each in sets])
        return
    asset = studio.do(data.version_of(found.id, address, only=True))
    if delete or delete_all:
        _delete(studio, asset, address, all_versions=delete_all, yes=yes, as_json=as_json)
        return
    versions = studio.do(data.versions(asset.id))
    columns = ("id", "version", "note", "files", "bytes", "uploaded by")
    say_json(versions) if as_json else output.table(columns, [_version_row(each) for each in versions])


def _delete(studio: Studio, asset: DataAsset, address: str, *, all_versions: bool, yes: bool, as_json: bool) -> None:
    if not all_versions and asset.versions > 1 and address == asset.name:
        raise ClientError(f"{asset.name} has {asset.versions} versions: name one ({asset.name}@{asset.version}), or say --delete-all.")
    what = f"all {asset.versions} versions of {asset.name}" if all_versions else f"{asset.name} v{asset.version}"
    if not yes:
        click.confirm(f"Delete {what} with its files?", abort=True, err=True)
    studio.do(data.delete(asset.id, all_versions=all_versions))
    say_json({"deleted": what}) if as_json else click.echo(f"Deleted {what}.")


def _row(asset: DataAsset) -> tuple[object, ...]:
    return asset.id, asset.name, f"v{asset.version}", asset.versions, asset.files, asset.size_bytes


def _version_row(asset: DataAsset) -> tuple[object, ...]:
    return asset.id, f"v{asset.version}", asset.note, asset.files, asset.size_bytes, asset.created_by


COMMANDS = (upload, data_sets)
