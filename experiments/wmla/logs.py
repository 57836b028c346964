"""What a job wrote: the log of its training, and its model as one zip.

Output and errors of a run's processes are one file here, so both names lead to it. The training's log of a script that writes one (elog, to
LOG_DIR/stdout) is that file alone: notebooks read it as a table.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import threading
import weakref
import zipfile
from typing import IO, BinaryIO, cast

from django.conf import settings
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from experiments import selectors
from experiments.files import zipstream
from experiments.models import TrainingRun
from experiments.selectors.files import RunFile
from experiments.views import downloads
from experiments.views.responses import person
from experiments.wmla import answers
from experiments.wmla.answers import api
from experiments.wmla.described import exec_id as id_of
from experiments.wmla.described import run_of

ELOG = "log/driver/stdout"
CONSOLE = "log/driver/console.log"
MOST_JSON_BYTES = 16 << 20  # of a log that is asked for as one JSON string: its end
SHARE = 4  # of the room on the disk, one in so many is for zips that are being made and sent, together

_drafts: weakref.WeakKeyDictionary[IO[bytes], int] = weakref.WeakKeyDictionary()  # and what each will hold
_one_asks = threading.Lock()


def _train_log(request: HttpRequest, exec_id: str) -> HttpResponseBase:
    """?logType=outlog (the usual), errlog or outerrlog"""
    run = run_of(person(request), exec_id)
    as_table = request.GET.get("logType", "outlog") == "outlog" and _size(run, ELOG) > 0
    return log(request, run, ELOG if as_table else CONSOLE, name=f"{id_of(run)}.log")


def log(request: HttpRequest, run: TrainingRun, path: str, *, name: str) -> HttpResponseBase:
    """The log as text, or as one JSON string where that is asked for; an empty one where nothing was written yet."""
    try:
        opened, size = selectors.open_file(run, path)
    except FileNotFoundError:
        return answers.json_response("") if answers.wants_json(request) else answers.text("")
    if not answers.wants_json(request):
        return downloads.attachment(request, opened, name=name, kind="text/plain; charset=utf-8")
    with opened:
        opened.seek(max(0, size - MOST_JSON_BYTES))
        data = opened.read(MOST_JSON_BYTES)
    whole = data if size <= MOST_JSON_BYTES else data.partition(b"\n")[2]  # the first line may be cut in two
    return answers.json_response(whole.decode(errors="replace"))


def _size(run: TrainingRun, path: str) -> int:
    try:
        opened, size = selectors.open_file(run, path)
    except FileNotFoundError:
        return 0
    opened.close()
    return size


def _result(request: HttpRequest, exec_id: str) -> HttpResponseBase:
    """RESULT_DIR/model as a zip, or ?file= of it as it is. The zip is made before it is sent: clients read its size from the header, as the
    last thing that stands there."""
    run = run_of(person(request), exec_id)
    if path := request.GET.get("file", ""):
        return _result_file(request, run, path)
    models = [each for each in selectors.files(run, limit=downloads.MOST_FILES) if each.role == "model"]
    if not models:
        answers.refuse(f"{id_of(run)} has written no model yet: its folder RESULT_DIR/model is empty.")
    with contextlib.ExitStack() as on_failure:
        draft = on_failure.enter_context(_draft(sum(each.size_bytes for each in models)))
        _pack(run, models, cast(BinaryIO, draft))
        size = draft.tell()
        answer = downloads.attachment(request, cast(BinaryIO, draft), name="result.zip", kind="application/zip")
        on_failure.pop_all()  # the answer closes it
    # As the original writes it, without blanks and with the size at the end: its clients take the line apart by that.
    answer["Content-Disposition"] = f"attachment;filename=dlpd-model-{run.pk}-{id_of(run)}-result.zip;size={size}"
    return answer


def _draft(size: int) -> IO[bytes]:
    """A file for a zip of so much, gone when it is closed. Refused where that is too much for the disk: a script may make files of any size
    that take no room, being full of holes, and their zip would."""
    with _one_asks:
        waiting = sum(each for draft, each in _drafts.items() if not draft.closed)
        if waiting + size > (shutil.disk_usage(settings.EDT_HOME / "tmp").free + waiting) // SHARE:
            answers.refuse(
                f"The model has {size >> 20} MiB, and the studio has no room to make a zip of it: take its files one by one "
                "(?file=model/NAME), or Download all on the page of its results."
            )
        draft = tempfile.TemporaryFile(dir=settings.EDT_HOME / "tmp")  # noqa: SIM115
        _drafts[draft] = size
        return draft


def _result_file(request: HttpRequest, run: TrainingRun, path: str) -> HttpResponseBase:
    try:
        if not path.startswith("model/"):
            raise FileNotFoundError
        opened, _ = selectors.open_file(run, path)
    except FileNotFoundError:
        answers.refuse(f"{id_of(run)} has written no file {path[:200]}: the result is its folder model.")
    return downloads.attachment(request, opened, name=path.rsplit("/", 1)[-1])


def _pack(run: TrainingRun, files: list[RunFile], into: BinaryIO) -> None:
    with zipfile.ZipFile(into, "w", zipfile.ZIP_STORED) as archive:  # weights do not shrink
        for each in files:
            try:
                opened, _ = selectors.open_file(run, each.path)
            except FileNotFoundError:
                continue  # gone since it was listed
            info = zipfile.ZipInfo(downloads.in_zip(each.path), date_time=each.modified_at.timetuple()[:6])
            with archive.open(info, "w", force_zip64=True) as entry:
                for chunk in zipstream.pieces(opened, each.size_bytes):  # no more than there is room for, if it grows meanwhile
                    entry.write(chunk)
    into.seek(0, 2)


train_log = api(GET=_train_log)
result = api(GET=_result)
