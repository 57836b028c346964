"""A look into a file of a run or of data without fetching it whole: what a boxed child has read of it."""

from __future__ import annotations

from typing import Annotated

from django.http import Http404, HttpRequest
from ninja import Query, Router, Schema

from experiments import access, selectors
from experiments.api.auth import person
from experiments.boxed import arrays, tables
from experiments.models import DataAsset
from experiments.selectors import data, previews

router = Router(tags=["files"])


class PreviewColumn(Schema):
    name: str
    numbers: bool


class PreviewRow(Schema):
    label: str
    cells: list[str]


class TableBeginning(Schema):
    """The first rows and columns; `said`: how much that is, and what could not be read."""

    columns: list[PreviewColumn]
    rows: list[PreviewRow]
    said: list[str]


class ArrayBeginning(Schema):
    """One of a .npy or .npz. `facts`: what is known of it, by name; `table`: its first values."""

    name: str
    kind: str
    shape: str
    facts: dict[str, str]
    table: TableBeginning | None
    said: list[str]


class FilePreview(Schema):
    """`text`: its beginning, all of it if `whole`; `table`, `arrays`: laid out; `image`: the type of a picture: fetch the file.
    `said`: what a reader must know; `instead`: where nothing can be shown, what it is and what to do with it."""

    size_bytes: int
    text: str | None
    whole: bool
    image: str
    table: TableBeginning | None
    arrays: list[ArrayBeginning]
    said: list[str]
    instead: str


class AsText(Schema):
    """`as_text`: a table or JSON as it stands, not laid out."""

    as_text: bool = False


@router.get("/runs/{int:run}/previews/{path:path}", response=FilePreview)
def preview_file(request: HttpRequest, run: int, path: str, wanted: Annotated[AsText, Query()]) -> FilePreview:
    """The beginning of one of its files: text, the first rows of a table, the first values of an array."""
    try:
        opened, size = selectors.open_file(access.run(person(request), run), path)
    except FileNotFoundError:
        raise Http404("There is no such file in this run.") from None
    with opened:
        return _preview_response(previews.preview(opened, size, name=path.rsplit("/", 1)[-1], as_text=wanted.as_text))


@router.get("/data/{int:data}/previews/{path:path}", response=FilePreview)
def preview_file_of_data(request: HttpRequest, data: int, path: str, wanted: Annotated[AsText, Query()]) -> FilePreview:
    return _of_data(access.data_asset(person(request), data), path, wanted)


@router.get("/shared-data/previews/{path:path}", response=FilePreview)
def preview_shared_file(request: HttpRequest, path: str, wanted: Annotated[AsText, Query()]) -> FilePreview:
    person(request)
    return _of_data(None, path, wanted)


def _of_data(asset: DataAsset | None, path: str, wanted: AsText) -> FilePreview:
    try:
        return _preview_response(data.preview(asset, path, as_text=wanted.as_text))
    except FileNotFoundError:
        raise Http404("There is no such file in this data.") from None


def _preview_response(found: previews.Preview) -> FilePreview:
    return FilePreview(
        table=_table(found.table),
        arrays=[_array(each) for each in found.arrays],
        **{name: getattr(found, name) for name in ("size_bytes", "text", "whole", "image", "said", "instead")},
    )


def _table(found: tables.Table | None) -> TableBeginning | None:
    if found is None:
        return None
    return TableBeginning(
        columns=[PreviewColumn(name=name, numbers=numbers) for name, numbers in found.columns],
        rows=[PreviewRow(label=label, cells=[text for text, _ in cells]) for label, cells in found.rows],
        said=found.said,
    )


def _array(found: arrays.Array) -> ArrayBeginning:
    same = {name: getattr(found, name) for name in ("name", "kind", "shape", "said")}
    return ArrayBeginning(facts=dict(found.facts), table=_table(found.table), **same)
