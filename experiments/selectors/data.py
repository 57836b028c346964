"""What there is to read: folders to choose from, and the files of a data asset or of the shared data root. No link is followed."""

from __future__ import annotations

import datetime as dt
import os
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from django.db.models import Count, F, IntegerField, OuterRef, Q, QuerySet, Subquery

from experiments.files import datastore, runfiles
from experiments.models import DataAsset, DataUpload, Project
from experiments.selectors import previews
from experiments.selectors.files import moment
from experiments.selectors.previews import Preview

MOST_FOLDERS = 200
LEVELS = 2
MOST_LISTED = 500


@dataclass(frozen=True)
class Entry:
    """A file or a folder; `path` is relative to the data asset. Sizes and times are of files."""

    name: str
    path: str
    is_folder: bool
    size_bytes: int
    modified_at: dt.datetime


@dataclass(frozen=True)
class Listing:
    """A folder: folders first, at most MOST_LISTED of `total`."""

    entries: list[Entry]
    total: int


@dataclass(frozen=True)
class Unfinished:
    """An upload under way and how much of it has arrived."""

    upload: DataUpload
    received_bytes: int


def folders(asset: DataAsset | None = None) -> list[str]:
    """Relative paths of the first folders, two levels deep, by name; of the shared data root for none."""
    root = datastore.root(asset)
    found: list[str] = []
    level = [""]
    for _ in range(LEVELS):
        level = [child for parent in level for child in _children(root, parent)]
        found += level
    return sorted(found)[:MOST_FOLDERS]


def in_their_series(found: QuerySet[DataAsset]) -> QuerySet[DataAsset]:
    """Each with `count`: how many versions its data set has; `newest_id` and `newest_version`: of the newest."""
    of_set = DataAsset.objects.filter(series=OuterRef("series")).order_by("-version")
    counted = of_set.order_by().values("series").annotate(n=Count("pk")).values("n")
    return found.select_related("created_by").annotate(
        count=Subquery(counted, output_field=IntegerField()),
        newest_id=Subquery(of_set.values("pk")[:1]),
        newest_version=Subquery(of_set.values("version")[:1]),
    )


def newest(found: QuerySet[DataAsset]) -> QuerySet[DataAsset]:
    """The data sets, each once: by its newest version. As of `in_their_series`."""
    return in_their_series(found).filter(pk=F("newest_id"))


def assets(project: Project, *, query: str = "") -> QuerySet[DataAsset]:
    """The data sets whose name or description has `query` in it, each by its newest version."""
    found = newest(project.data_assets.all())
    return found.filter(Q(name__icontains=query) | Q(description__icontains=query)) if query else found


def versions(asset: DataAsset) -> QuerySet[DataAsset]:
    """Of its data set, newest first; each with `readers`: how many experiments read it."""
    found = in_their_series(DataAsset.objects.filter(series=asset.series_id))
    return found.annotate(readers=Count("experiments")).order_by("-version")


def newer_than(asset: DataAsset | None) -> DataAsset | None:
    """The newest version of its data set, where that is another one."""
    if asset is None:
        return None
    return DataAsset.objects.filter(series=asset.series_id, version__gt=asset.version).order_by("-version").first()


def unfinished(project: Project, user_id: int) -> list[Unfinished]:
    """The person's own uploads that it would cost something to begin anew."""
    found = [(each, [datastore.Part(*part) for part in each.parts]) for each in project.data_uploads.filter(created_by=user_id)]
    return [
        Unfinished(each, datastore.received_bytes(each.key, parts)) for each, parts in found if not datastore.came_whole(each.key, parts)
    ]


def listing(asset: DataAsset | None, path: str) -> Listing:
    """The folder `path` ("" for the top). Raises FileNotFoundError."""
    at = runfiles.open_folder(datastore.root(asset), path)
    try:
        found = [_entry(one, path) for one in os.scandir(at) if _can_be_listed(one)]
    finally:
        os.close(at)
    found.sort(key=lambda one: (not one.is_folder, one.name))
    return Listing(found[:MOST_LISTED], len(found))


def preview(asset: DataAsset | None, path: str, *, as_text: bool = False) -> Preview:
    """Raises FileNotFoundError for all that is not a regular file."""
    with opened(asset, path) as (file, size):
        return previews.preview(file, size, name=path.rsplit("/", 1)[-1], as_text=as_text)


@contextmanager
def opened(asset: DataAsset | None, path: str) -> Iterator[tuple[BinaryIO, int]]:
    """(open file, size in bytes). Raises FileNotFoundError."""
    with closing(open_file(asset, path)) as file:
        yield file, os.fstat(file.fileno()).st_size


def open_file(asset: DataAsset | None, path: str) -> BinaryIO:
    return os.fdopen(runfiles.open_below(datastore.root(asset), path), "rb")


def _entry(one: os.DirEntry[str], folder: str) -> Entry:
    facts = one.stat(follow_symlinks=False)
    path = f"{folder}/{one.name}" if folder else one.name
    return Entry(one.name, path, stat.S_ISDIR(facts.st_mode), facts.st_size, moment(facts.st_mtime))


def _can_be_listed(one: os.DirEntry[str]) -> bool:
    try:
        one.name.encode()
    except UnicodeEncodeError:
        return False
    return one.is_dir(follow_symlinks=False) or one.is_file(follow_symlinks=False)


def _children(root: Path, parent: str) -> list[str]:
    try:
        with os.scandir(root / parent) as entries:
            names = [e.name for e in entries if e.is_dir(follow_symlinks=False) and not e.name.startswith(".")]
    except OSError:
        return []
    return [f"{parent}/{name}" if parent else name for name in sorted(names)[:MOST_FOLDERS]]
