"""What a run has written: its logs, and its results; files that one from outside is given."""

from __future__ import annotations

import dataclasses
import datetime as dt
import io
from typing import Annotated, Literal, cast

from django.http import Http404, HttpRequest
from django.http.response import HttpResponseBase
from ninja import Field, Query, Router, Schema
from ninja.responses import Status

from experiments import access, selectors
from experiments.api.auth import person
from experiments.api.paging import Page, whole
from experiments.api.problems import Refused
from experiments.api.schemas import BINARY
from experiments.files import filetree
from experiments.models import TrainingRun
from experiments.selectors import logs as searching
from experiments.services import outside
from experiments.views import downloads
from experiments.views.logs import MOST_LOG_BYTES
from training_runtime.tracking.answers import ARTIFACTS

router = Router(tags=["files"])
MOST_FILES = 20_000
MOST_LINES = 10_000


class Log(Schema):
    name: str
    size_bytes: int


class Tail(Schema):
    """`text`: the bytes from `begin` to `end` of `size_bytes`; ask again from `end` on."""

    text: str
    begin: int
    end: int
    size_bytes: int


class TailWanted(Schema):
    """What stands from `offset` on, else the last `tail_lines`."""

    offset: int | None = Field(None, ge=0, le=2**62)
    limit_bytes: int = Field(MOST_LOG_BYTES, ge=1, le=MOST_LOG_BYTES)
    tail_lines: int = Field(200, ge=0, le=MOST_LINES)


class Search(Schema):
    """Lines with the text `q` (`regex`: it is a regular expression), of the level or above."""

    q: str = Field("", max_length=searching.LONGEST_PATTERN)
    regex: bool = False
    level: Literal["", "debug", "info", "warning", "error"] = ""


class Line(Schema):
    number: int
    offset: int
    level: str
    text: str


class LogMatches(Schema):
    """The last lines that match, oldest first, of `total`. `complete`: all of the log was searched."""

    items: list[Line]
    total: int
    complete: bool


Kind = Literal["checkpoint", "model", "picture", "table", "log", "other"]


class File(Schema):
    """`role`: model, checkpoint, log, journal or other, by its folder; `kind`: by its name too, as pages filter by it."""

    path: str
    size_bytes: int
    modified_at: dt.datetime
    role: str
    kind: Kind


class FileFolder(Schema):
    """With the sums of all that is in it, however deep."""

    path: str
    files: int
    size_bytes: int


class Files(Schema):
    """`folders`: those that the files are in; `missing`: why some may not be listed, in sentences."""

    items: list[File]
    folders: list[FileFolder]
    missing: list[str]


class FilesWanted(Schema):
    """Those whose path has every word of `q` in it, of a kind, in a folder, however deep."""

    q: str = Field("", max_length=200)
    kind: Kind | None = None
    folder: str = Field("", max_length=4096)


def _log(run: TrainingRun, name: str) -> str:
    if name not in selectors.log_names(run):
        raise Http404("There is no such log.")
    return name


@router.get("/runs/{int:run}/logs", response=Page[Log])
def logs(request: HttpRequest, run: int) -> Page[Log]:
    """The log of its driver first, then those of its workers."""
    found = access.run(person(request), run)
    names = selectors.log_names(found)
    return whole([Log(name=name, size_bytes=selectors.log_tail(found, name, lines=0, limit_bytes=0).size_bytes) for name in names])


@router.get("/runs/{int:run}/logs/{str:name}", response=Tail)
def log(request: HttpRequest, run: int, name: str, wanted: Annotated[TailWanted, Query()]) -> Tail:
    found = access.run(person(request), run)
    tail = selectors.log_tail(found, _log(found, name), offset=wanted.offset, lines=wanted.tail_lines, limit_bytes=wanted.limit_bytes)
    return Tail(**dataclasses.asdict(tail))


@router.get("/runs/{int:run}/logs/{str:name}/download", response={200: bytes}, openapi_extra=BINARY)
def log_file(request: HttpRequest, run: int, name: str) -> HttpResponseBase:
    """The whole log, or the part of it that `Range` names."""
    return downloads.log_file(request, run, name)


@router.get("/runs/{int:run}/logs/{str:name}/search", response=LogMatches)
def search_log(request: HttpRequest, run: int, name: str, wanted: Annotated[Search, Query()]) -> LogMatches:
    run_ = access.run(person(request), run)
    found = searching.search(run_, _log(run_, name), pattern=wanted.q, regex=wanted.regex, level=wanted.level)
    if found.problem:
        raise Refused(400, found.problem, errors={"q": [found.problem]})
    return LogMatches(items=[Line(**dataclasses.asdict(line)) for line in found.lines], total=found.total, complete=found.complete)


@router.get("/runs/{int:run}/files", response=Files)
def files(request: HttpRequest, run: int, wanted: Annotated[FilesWanted, Query()]) -> Files:
    """Its files by path, of at most 20,000: results, checkpoints, logs."""
    listed = selectors.listed(access.run(person(request), run), limit=MOST_FILES)
    found = filetree.matching(filetree.below(listed.files, wanted.folder.strip("/")), q=wanted.q, kind=wanted.kind or "")
    return Files(
        items=[File(**dataclasses.asdict(each)) for each in found],
        folders=[
            FileFolder(path=each.path, files=each.count, size_bytes=each.size_bytes) for each in filetree.folders(filetree.tree(found))
        ],
        missing=listed.missing,
    )


@router.get("/runs/{int:run}/files/{path:path}", response={200: bytes}, openapi_extra=BINARY)
def file(request: HttpRequest, run: int, path: str) -> HttpResponseBase:
    """The file, or the part of it that `Range` names."""
    return downloads.file(request, run, path)


@router.put(
    "/runs/{int:run}/files/{path:path}",
    response={204: None},
    url_name="api_send_file",
    openapi_extra={"requestBody": {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}},
)
def send_file(request: HttpRequest, run: int, path: str) -> Status[None]:
    """Of a run that the studio did not start: the body, below artifacts/, in the place of what is there."""
    found = access.run(person(request), run, need="write")
    outside.check_written(found)
    if not path.startswith(f"{ARTIFACTS}/"):
        raise Refused(400, f"Files are sent to {ARTIFACTS}/: the rest of the folder is the studio's.")
    try:
        outside.receive_file(found, path, cast(io.BufferedIOBase, request))
    except FileNotFoundError:
        raise Refused(400, "No file can have this name: send it under another one.") from None
    return Status(204, None)


@router.get("/runs/{int:run}/results.zip", response={200: bytes}, openapi_extra=BINARY)
def archive(request: HttpRequest, run: int, folder: Annotated[str, Query(max_length=4096)] = "") -> HttpResponseBase:
    """All of them, or those of `folder`, as a zip that is made while it is sent."""
    return downloads.archive(request, run, folder)
