"""Files to take away: one as it is, or all of a run as one zip that is made while it is sent.

Always attachments, but for pictures of a kind that runs no script: nothing that somebody wrote is shown as a page.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from typing import BinaryIO

from asgiref.sync import sync_to_async
from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.utils.http import content_disposition_header
from django.utils.text import slugify
from django.views.decorators.http import require_safe

from experiments import access, selectors
from experiments.files import filetree
from experiments.files.zipstream import ZipStream, pieces
from experiments.models import TrainingRun
from experiments.selectors import RunFile, previews
from experiments.views import http_ranges
from experiments.views.responses import person

MOST_FILES = 20_000


@require_safe
def file(request: HttpRequest, pk: int, path: str) -> HttpResponseBase:
    run = access.run(person(request), pk)
    try:
        opened, _ = selectors.open_file(run, path)
    except FileNotFoundError:
        raise Http404("There is no such file in this run.") from None
    return attachment(request, opened, name=path.rsplit("/", 1)[-1])


@require_safe
def log_file(request: HttpRequest, pk: int, name: str) -> HttpResponseBase:
    """A whole log, named after its run: several land in one downloads folder."""
    run = access.run(person(request), pk)
    if name not in selectors.log_names(run):
        raise Http404("There is no such log.")
    try:
        opened, _ = selectors.open_file(run, f"log/{name}/console.log")
    except FileNotFoundError:
        raise Http404("This log has not been written yet.") from None
    return attachment(request, opened, name=f"run-{run.pk}-{name}.log", kind="text/plain; charset=utf-8")


@require_safe
def archive(request: HttpRequest, pk: int, folder: str | None = None) -> StreamingHttpResponse:
    """All of the run's files, or those of one folder (else ?folder=), however deep."""
    run = access.run(person(request), pk)
    folder = (request.GET.get("folder", "") if folder is None else folder).strip("/")
    found = filetree.below(selectors.files(run, limit=MOST_FILES), folder)
    if folder and not found:
        raise Http404("There is no such folder in this run.")
    name = f"run-{run.pk}-{slugify(run.name)[:60] or 'results'}"
    called = f"{name}-{slugify(folder.replace('/', '-'))[:60] or 'folder'}" if folder else name
    return streamed(_zip(run, found, name), name=f"{called}.zip", kind="application/zip")


def attachment(request: HttpRequest, opened: BinaryIO, *, name: str, kind: str = "application/octet-stream") -> HttpResponseBase:
    """An open file, or the part of it that is asked for, sent piece by piece and closed."""
    facts = os.fstat(opened.fileno())
    size, mark = facts.st_size, http_ranges.mark_of(facts)
    try:
        part = http_ranges.requested_part(request, size=size, mark=mark)
    except http_ranges.NotThere:
        opened.close()
        return HttpResponse(status=416, headers={"Content-Range": f"bytes */{size}"})
    opened.seek(part.begin if part else 0)
    response = streamed(pieces(opened, part.size if part else size), name=name, kind=kind)
    response["Content-Length"] = str(part.size if part else size)
    response["Accept-Ranges"], response["ETag"] = "bytes", mark
    if part:
        response.status_code = 206
        response["Content-Range"] = f"bytes {part.begin}-{part.begin + part.size - 1}/{size}"
    return response


def picture_response(opened: BinaryIO, size: int, *, name: str) -> HttpResponse:
    """The open file as a picture, by its content and not by its name. Raises Http404 for all else, and for one that is too large."""
    content = opened.read(previews.MOST_IMAGE_BYTES + 1) if size <= previews.MOST_IMAGE_BYTES else b""
    kind = previews.picture(content)
    if not kind or len(content) > previews.MOST_IMAGE_BYTES:
        raise Http404("This is no picture that can be shown.")
    response = HttpResponse(content, content_type=kind)
    response["Content-Disposition"] = content_disposition_header(False, name) or "inline"
    response["X-Content-Type-Options"] = "nosniff"
    response["Content-Security-Policy"] = "default-src 'none'; sandbox"
    response["Cache-Control"] = "private, max-age=3600"
    return response


def streamed(chunks: Iterator[bytes], *, name: str, kind: str, reads_database: bool = False) -> StreamingHttpResponse:
    """A file that is made while it is sent. `reads_database`: by making it, so in the thread whose connection is looked after."""
    response = StreamingHttpResponse(_off_the_loop(chunks, reads_database=reads_database), content_type=kind)
    response["Content-Disposition"] = content_disposition_header(True, name)
    response["X-Content-Type-Options"] = "nosniff"
    response["Content-Security-Policy"] = "default-src 'none'; sandbox"
    response["Cache-Control"] = "private, no-store"
    return response


async def _off_the_loop(chunks: Iterator[bytes], *, reads_database: bool) -> AsyncIterator[bytes]:
    """Reads in a thread: a large file neither blocks the server nor is held in memory (as a plain iterator would be, under ASGI)."""
    pull = sync_to_async(lambda: next(chunks, None), thread_sensitive=reads_database)
    try:
        while (chunk := await pull()) is not None:
            yield chunk
    finally:
        close = getattr(chunks, "close", None)
        if close is not None:
            close()


def in_zip(path: str) -> str:
    """The path of a run's file as a zip has it. A script may use \\ in a name, which on Windows leads out of where it is unpacked."""
    return path.replace("\\", "_")


def _zip(run: TrainingRun, found: list[RunFile], folder: str) -> Iterator[bytes]:
    archive = ZipStream(compressed=True)
    for each in found:
        try:
            opened, size = selectors.open_file(run, each.path)
        except FileNotFoundError:
            continue  # gone since it was listed
        yield from archive.add(f"{folder}/{in_zip(each.path)}", pieces(opened, size), modified=each.modified_at.timestamp())
    yield from archive.end()
