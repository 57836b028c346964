"""Files of machines that have joined, over HTTP with their token: trees of code, data and runs go to them, what runs write comes from them.

A machine gets what the runs need whose head node it is, and writes into the folders of these for the term of their stay. Of runs that have
workers there and their driver elsewhere it gets code and data, and adds its part to their folders (`files.guest_files`). JSON in and out;
no page.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import errno
import json
import os
import re
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import Any, BinaryIO

from django.contrib.auth.decorators import login_not_required
from django.db.models import Q
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from experiments.cluster import joining
from experiments.files import bundles, datastore, mirrored, runfiles
from experiments.files.guest_files import Guest
from experiments.files.mirrored import WrongOffset
from experiments.files.runfiles import FoundFile
from experiments.files.store import copies
from experiments.files.zipstream import pieces
from experiments.live import notify
from experiments.models import Grant, NodeToken, Slot, TrainingRun
from experiments.models.runs import LIVE
from experiments.ops import clock
from experiments.views import http_ranges
from experiments.views.downloads import attachment, streamed
from training_runtime.journal import FILE_NAME as JOURNAL
from training_runtime.node import batches
from training_runtime.node.batches import Head
from training_runtime.node.messages import GUEST

MOST_FILES = 200_000
CHECKPOINT = "checkpoint/engine.pt"
LAST_WORDS = dt.timedelta(minutes=10)  # of machines where a run had workers
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NUMBER = re.compile(r"[0-9]{1,19}")
View = Callable[..., HttpResponseBase]


def by_node(view: View) -> View:
    """`view` with the token of the machine that asks: 401 for one that is unknown or over, 403 for an older incarnation."""

    @csrf_exempt
    @login_not_required
    @wraps(view)
    def answered(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        kind, _, secret = request.headers.get("Authorization", "").partition(" ")
        token = joining.find(secret.strip(), now=clock.now()) if kind.lower() == "bearer" else None
        if token is None:
            return _refused(401, "The studio does not know this token, or it is over.")
        if request.headers.get("X-EDT-Incarnation", "") != str(token.incarnation):
            return _refused(403, f"{token.node_name} has joined anew since.")
        return view(request, token, *args, **kwargs)

    return answered


@by_node
@require_safe
def tree(request: HttpRequest, token: NodeToken, room: str, name: str) -> HttpResponseBase:
    """{"files": [{"path", "size", "mtime_ns", "mark"}, ...]} of a folder; with ?term=guest what this machine has written in one of a run.
    `mark`: the ETag of the file, for If-Range."""
    found = _tree(token, room, name, term=str(request.GET.get("term", "")))
    if found is None:
        return _refused(404, "No run of this machine needs that.")
    listed = [{"path": each.path, "size": each.size_bytes, "mtime_ns": each.mtime_ns, "mark": _mark(each)} for each in _listed(found)]
    return JsonResponse({"files": listed})


@by_node
@require_safe
def tree_file(request: HttpRequest, token: NodeToken, room: str, name: str, path: str) -> HttpResponseBase:
    """A file of such a folder, or the part of it that is asked for."""
    found = _tree(token, room, name, term=str(request.GET.get("term", "")))
    try:
        opened = _opened(found, path)
    except FileNotFoundError:
        return _refused(404, "There is no such file.")
    return attachment(request, opened, name=path.rsplit("/", 1)[-1])


@by_node
@require_POST
def tree_batch(request: HttpRequest, token: NodeToken, room: str, name: str) -> HttpResponseBase:
    """Several files of such a folder in one answer, in the order of {"paths": [...]}, as `node.batches` reads them. One that is not there
    has no bytes and no mark."""
    found = _tree(token, room, name, term=str(request.GET.get("term", "")))
    if found is None:
        return _refused(404, "No run of this machine needs that.")
    try:
        paths = json.loads(request.body)["paths"]
    except (ValueError, KeyError, TypeError):
        paths = None
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths) or len(paths) > batches.MOST_FILES:
        return _refused(400, f'The body is {{"paths": [...]}} with {batches.MOST_FILES} paths at most.')
    return streamed(_batch(found, paths), name=f"{name}.batch", kind="application/octet-stream")


def _batch(found: Path | Own, paths: list[str]) -> Iterator[bytes]:
    for path in paths:
        try:
            opened = _opened(found, path)
        except FileNotFoundError:
            yield Head(path, 0, "").encoded()
            continue
        with opened:
            facts = os.fstat(opened.fileno())
            yield Head(path, facts.st_size, http_ranges.mark_of(facts)).encoded()
            sent = 0
            for piece in pieces(opened, facts.st_size):
                sent += len(piece)
                yield piece
            if sent != facts.st_size:
                raise OSError(f"{path} has become shorter while it was sent")  # the answer is cut off, and asked for again


def _opened(found: Path | Own | None, path: str) -> BinaryIO:
    """A file of the folder. Raises FileNotFoundError."""
    if found is None or (isinstance(found, Borrowed) and path != CHECKPOINT):
        raise FileNotFoundError(path)
    place = found.guest.place_of(path) if isinstance(found, Hosted) else path
    return os.fdopen(runfiles.open_below(found, path) if isinstance(found, Path) else runfiles.open_regular(found.run, place), "rb")


@by_node
@require_http_methods(["PUT", "DELETE"])
def run_file(request: HttpRequest, token: NodeToken, name: str, path: str) -> HttpResponseBase:
    """Of a run that is this machine's for the term ?term=, or a guest there. PUT with ?size= and ?mtime_ns=: a piece of a file that is sent
    whole; without: of one that grows. ?offset=: where it belongs: 200 {"size"}, or 409 {"size"} where that is not where what has arrived
    ends."""
    found = _written_there(token, name, term=str(request.GET.get("term", "")))
    if found is None:
        return _refused(410, "This run is not on this machine any more.")
    run, path = found.run, found.guest.place_of(path) if isinstance(found, Hosted) else path
    try:
        runfiles.make(run)
        if request.method == "DELETE":
            mirrored.remove(run, path)
            return JsonResponse({})
        return JsonResponse({"size": _written(request, run, path)})
    except WrongOffset as wrong:
        return JsonResponse({"size": wrong.size}, status=409)
    except FileNotFoundError:
        return _refused(400, f"{path!r} cannot be the name of a file of a run.")
    except copies.NotHere as error:
        return _refused(503, str(error))
    except OSError as error:
        if error.errno in FULL:
            return _refused(507, "The studio's disk is full.")
        raise


def _written(request: HttpRequest, run: TrainingRun, path: str) -> int:
    said = {name: int(value) for name in ("offset", "size", "mtime_ns") if _NUMBER.fullmatch(value := str(request.GET.get(name, "")))}
    if "size" in said:
        facts = {"size": said["size"], "mtime_ns": said.get("mtime_ns", 0)}
        return mirrored.receive(run, path, request.body, offset=said.get("offset", 0), **facts)
    size = mirrored.append(run, path, request.body, offset=said.get("offset", 0))
    if path == JOURNAL:
        notify.nudge_ingest(run.pk)
    return size


class Own:
    """The folder of a run of this machine."""

    def __init__(self, run: TrainingRun) -> None:
        self.run = run


class Borrowed(Own):
    """Of another run, with whose checkpoint one of this machine begins: that and nothing else."""


class Hosted(Own):
    """Of a run with workers on this machine whose driver is elsewhere: what was written here."""

    def __init__(self, run: TrainingRun, guest: Guest) -> None:
        super().__init__(run)
        self.guest = guest


def _written_there(token: NodeToken, name: str, *, term: str) -> Own | None:
    """The run whose folder the machine may write in now, and how."""
    if term == GUEST:
        return _hosted(token, name)
    run = TrainingRun.objects.filter(head_node__name=token.node_name, folder=name, state__in=LIVE).first()
    return Own(run) if run is not None and joining.term_of(run) == term else None


def _hosted(token: NodeToken, name: str) -> Hosted | None:
    """Also for a while after the run has ended: the last lines come a moment after that."""
    lately = Q(state__in=LIVE) | Q(ended_at__gt=clock.now() - LAST_WORDS)
    run = (
        TrainingRun.objects.filter(lately, folder=name, grants__slot__node__name=token.node_name)
        .exclude(head_node__name=token.node_name)
        .first()
    )
    if run is None:
        return None
    slots = Slot.objects.filter(node__name=token.node_name).values_list("pk", flat=True)
    return Hosted(run, Guest(token.node_name, frozenset(slots)))


def _tree(token: NodeToken, room: str, name: str, *, term: str) -> Path | Own | None:
    """The folder, if a live run of the machine needs it."""
    if room == "runs" and term == GUEST:
        return _hosted(token, name)
    held = Grant.objects.filter(slot__node__name=token.node_name, released_at__isnull=True).values("run")
    mine = TrainingRun.objects.filter(Q(head_node__name=token.node_name) | Q(pk__in=held), state__in=LIVE)
    if room == "code":
        run = mine.filter(version__bundle__sha256=name).select_related("version__bundle").first()
        if run is None:
            return None
        bundles.unpacked(run.version.bundle)
        return bundles.code_dir(run.version.bundle) if not run.version.bundle.root else bundles.code_dir(run.version.bundle).parent
    if room == "assets":
        found = [run for run in mine.exclude(experiment__data_asset=None).select_related("experiment__data_asset")]
        assets = [run.experiment.data_asset for run in found if run.experiment.data_asset is not None]
        asset = next((asset for asset in assets if asset.key.hex == name), None)
        return datastore.root(asset) if asset is not None else None
    if room == "runs":
        at_home = mine.filter(head_node__name=token.node_name)
        own = at_home.filter(folder=name).select_related("version__bundle").first()
        other = TrainingRun.objects.filter(folder=name, pk__in=at_home.values("continues")).first() if own is None else None
        return Own(own) if own is not None else Borrowed(other) if other is not None else None
    return None


def _listed(found: Path | Own) -> list[FoundFile]:
    if isinstance(found, Borrowed):
        return [each for each in _of_run(found.run) if each.path == CHECKPOINT]
    if isinstance(found, Hosted):
        places = [(found.guest.path_of(each.path), each) for each in _of_run(found.run)]
        return [dataclasses.replace(each, path=path) for path, each in places if path is not None]
    if isinstance(found, Own):
        return _of_run(found.run)
    listed = []
    for folder, _, names, at in os.fwalk(found, follow_symlinks=False):
        below = os.path.relpath(folder, found)
        for name in names:
            facts = os.stat(name, dir_fd=at, follow_symlinks=False)
            listed.append(FoundFile(name if below == "." else f"{below}/{name}", facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns))
    return listed


def _of_run(run: TrainingRun) -> list[FoundFile]:
    return runfiles.walk(run, limit=MOST_FILES).files


def _mark(one: FoundFile) -> str:
    return http_ranges.mark(size=one.size_bytes, mtime_ns=one.mtime_ns, ctime_ns=one.ctime_ns)


def _refused(status: int, why: str) -> HttpResponse:
    return JsonResponse({"detail": why}, status=status)
