"""What notebooks and dlicmd.py fetch of a job: its log as a table, its output, its model as a zip."""

from __future__ import annotations

import io
import shutil
import zipfile
from pathlib import Path

import pytest

from experiments.files import runfiles
from experiments.models import Project, TrainingRun, User
from tests import cast
from tests.conftest import SentMessages
from tests.web import wmla
from tests.web.wmla import DL, Script

TRAIN = (
    "[2020-05-21 14:00:{0:02d}] Train,\tTimestamp: 15900840484{0:02d},\tGlobal steps: {0},\tIteration: 4,\tLoss: 0.03597,\tAccuracy: 0.5\n"
)
ELOG = "".join(TRAIN.format(step) for step in range(3))


@pytest.fixture
def run(project: Project, alice: User, said: SentMessages) -> TrainingRun:
    return cast.run(project, by=alice)


@pytest.fixture
def script(alice: User) -> Script:
    return wmla.of(alice)


def write(run: TrainingRun, path: str, content: bytes) -> None:
    target = runfiles.make(run) / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)


def text(script: Script, run: TrainingRun, query: str = "", accept: str = "text/plain") -> str:
    answer = script.get(f"{DL}/execs/wmla-{run.pk}/log{query}", Accept=accept)
    assert answer.status_code == 200
    assert answer["Content-Type"] == "text/plain; charset=utf-8"
    return wmla.body(answer).decode()


def test_a_notebook_reads_the_log_of_a_training_as_a_table(script: Script, run: TrainingRun) -> None:
    write(run, "log/driver/stdout", ELOG.encode())
    write(run, "log/driver/console.log", b"something that the script prints\n")
    found = script.json(f"{DL}/execs/wmla-{run.pk}/log/")
    rows = [line.split(",") for line in found.replace(":", ",").splitlines()]  # as its read_csv takes columns 4, 6, 8, 10 and 12
    assert [[float(row[column]) for column in (4, 6, 8, 10, 12)] for row in rows] == [
        [1590084048400.0 + step, step, 4, 0.03597, 0.5] for step in range(3)
    ]
    assert text(script, run) == text(script, run, "?logType=outlog&args=", "*/*") == ELOG


def test_other_scripts_have_what_they_print_and_errors_are_there_too(script: Script, run: TrainingRun) -> None:
    assert script.json(f"{DL}/execs/wmla-{run.pk}/log") == text(script, run) == ""
    write(run, "log/driver/console.log", "épochs\n".encode() + b"\xff\n")
    assert script.json(f"{DL}/execs/wmla-{run.pk}/log") == "épochs\n\N{REPLACEMENT CHARACTER}\n"
    write(run, "log/driver/stdout", ELOG.encode())
    for kind in ("errlog", "outerrlog"):
        assert script.json(f"{DL}/execs/wmla-{run.pk}/log?logType={kind}").startswith("épochs")


def test_of_a_very_long_log_json_has_the_end_from_a_whole_line_on(
    script: Script, run: TrainingRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("experiments.wmla.logs.MOST_JSON_BYTES", 2 * len(TRAIN))
    write(run, "log/driver/stdout", ELOG.encode())
    assert ELOG.endswith(script.json(f"{DL}/execs/{run.pk}/log"))
    assert script.json(f"{DL}/execs/{run.pk}/log").startswith("[2020-05-21")
    assert text(script, run) == ELOG


def test_a_link_that_a_script_lays_leads_nowhere(script: Script, run: TrainingRun) -> None:
    folder = runfiles.make(run) / "log" / "driver"
    folder.mkdir(parents=True)
    (folder / "stdout").symlink_to("/etc/passwd")
    (folder / "console.log").symlink_to("/etc/passwd")
    assert text(script, run) == ""


def test_the_result_is_a_zip_of_the_model_and_its_header_says_how_large(script: Script, run: TrainingRun) -> None:
    write(run, "model/train/model_epoch_final.pth", b"\x80" * 70_000)
    write(run, "model/trained_model.onnx", b"onnx")
    write(run, "checkpoint/engine.pt", b"not the model")
    answer = script.get(f"{DL}/execs/wmla-{run.pk}/result")
    content, header = wmla.body(answer), answer["Content-Disposition"]
    assert int(header.split("size=")[1]) == len(content) == int(answer["Content-Length"])
    (name,) = [part[len("filename=") :] for part in header.split(";") if part.startswith("filename=")]
    assert (name.startswith("dlpd-model"), name.endswith("-result.zip")) == (True, True)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert archive.testzip() is None
        assert sorted(archive.namelist()) == ["model/train/model_epoch_final.pth", "model/trained_model.onnx"]


def test_one_file_of_the_result_is_sent_as_it_is_and_nothing_beside_the_model(script: Script, run: TrainingRun) -> None:
    write(run, "model/train/model_epoch_final.pth", b"\x80" * 70_000)
    write(run, "checkpoint/engine.pt", b"not the model")
    (runfiles.folder(run) / "model" / "passwd").symlink_to("/etc/passwd")
    address = f"{DL}/execs/wmla-{run.pk}/result?file="
    answer = script.get(f"{address}model/train/model_epoch_final.pth")
    assert (answer.status_code, wmla.body(answer), answer["Content-Length"]) == (200, b"\x80" * 70_000, "70000")
    assert answer["Content-Disposition"].startswith("attachment")
    for path in ("checkpoint/engine.pt", "model/../checkpoint/engine.pt", "model/passwd", "model/none.pth", "model/", "model/%00"):
        answer = script.get(address + path, Accept="application/json")
        assert (answer.status_code, "has written no file" in answer.json()["message"]) == (400, True), path


def test_what_has_no_room_as_a_zip_is_refused_as_long_as_there_is_none(
    script: Script, run: TrainingRun, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(run, "model/a.pth", bytes(200_000))
    monkeypatch.setattr("experiments.wmla.logs.SHARE", shutil.disk_usage(home).free // 300_000)
    first, address = script.get(f"{DL}/execs/wmla-{run.pk}/result"), f"{DL}/execs/wmla-{run.pk}/result"
    second = script.get(address, Accept="application/json")
    assert (first.status_code, second.status_code) == (200, 400), "the first one is still being sent"
    assert "no room to make a zip of it" in second.json()["message"]
    assert len(wmla.body(first)) > 200_000
    assert len(wmla.body(script.get(address))) > 200_000
    with open(runfiles.folder(run) / "model" / "holes.pth", "wb") as holes:
        holes.truncate(900 << 30)
    assert script.get(address).status_code == 400
    assert list((home / "tmp").iterdir()) == []


def test_a_job_without_a_model_says_so(script: Script, run: TrainingRun, home: object) -> None:
    answer = script.get(f"{DL}/execs/wmla-{run.pk}/result", Accept="application/json")
    assert (answer.status_code, "no model yet" in answer.json()["message"]) == (400, True)
