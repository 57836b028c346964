"""What a job wrote: the log of its training, and its model as one zip.

Output and errors of a run's processes are one file here, so both names lead to it. The training's log of a script that writes one (elog, to
LOG_DIR/stdout) is that file alone: notebooks read it as a table.
"""

from __future__ import annotations

import contextlib
import tempfile
import zipfile
from typing import BinaryIO, cast

from django.conf import settings
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from experiments import selectors
from experiments.models import TrainingRun
from experiments.selectors.files import RunFile
from experiments.views import downloads
from experiments.views.shown import person
from experiments.wmla import answers
from experiments.wmla.answers import api
from experiments.wmla.described import exec_id as id_of
from experiments.wmla.described import run_of

ELOG = "log/driver/stdout"
CONSOLE = "log/driver/console.log"
MOST_JSON_BYTES = 16 << 20  # of a log that is asked for as one JSON string: its end
CHUNK_BYTES = 256 * 1024


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
        return answers.found("") if answers.wants_json(request) else answers.text("")
    if not answers.wants_json(request):
        return downloads.attachment(request, opened, name=name, kind="text/plain; charset=utf-8")
    with opened:
        opened.seek(max(0, size - MOST_JSON_BYTES))
        data = opened.read(MOST_JSON_BYTES)
    whole = data if size <= MOST_JSON_BYTES else data.partition(b"\n")[2]  # the first line may be cut in two
    return answers.found(whole.decode(errors="replace"))


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
        draft = on_failure.enter_context(tempfile.TemporaryFile(dir=settings.EDT_HOME / "tmp"))
        _pack(run, models, cast(BinaryIO, draft))
        size = draft.tell()
        answer = downloads.attachment(request, cast(BinaryIO, draft), name="result.zip", kind="application/zip")
        on_failure.pop_all()  # the answer closes it
    # As the original writes it, without blanks and with the size at the end: its clients take the line apart by that.
    answer["Content-Disposition"] = f"attachment;filename=dlpd-model-{run.pk}-{id_of(run)}-result.zip;size={size}"
    return answer


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
            info = zipfile.ZipInfo(each.path, date_time=each.modified_at.timetuple()[:6])
            with opened, archive.open(info, "w", force_zip64=True) as entry:
                while chunk := opened.read(CHUNK_BYTES):
                    entry.write(chunk)
    into.seek(0, 2)


train_log = api(GET=_train_log)
result = api(GET=_result)
