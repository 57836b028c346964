"""Results that a script has named, dated and multiplied as it likes: the page and the zip of all files work for everybody."""

from __future__ import annotations

import io
import os
import zipfile

import pytest
from django.urls import reverse

from experiments import selectors, services
from experiments.files import runfiles
from experiments.models import TrainingRun, User
from tests import cast
from tests.web.conftest import As


@pytest.fixture
def run(alice: User, project: object) -> TrainingRun:
    made = cast.run(project, by=alice)  # type: ignore[arg-type]
    runfiles.make(made)
    return made


def test_a_file_whose_name_no_page_can_show_is_said_to_be_there(run: TrainingRun, alice: User, as_: As) -> None:
    for name in ("a\nb", "tab\t", "line\u2028", b"\xff\xfe".decode(errors="surrogateescape"), "plain", "naïve name"):
        (runfiles.folder(run) / name).touch()
    answer = as_(alice).get(reverse("run_results", args=[run.pk]))
    assert answer.status_code == 200
    page = answer.content.decode()
    assert "plain" in page
    assert "naïve name" in page
    assert "4 files have line breaks or control characters" in page
    archive = zipfile.ZipFile(io.BytesIO(b"".join(as_(alice).get(reverse("run_archive", args=[run.pk])))))
    assert len(archive.namelist()) == 2


@pytest.mark.parametrize("seconds", [0, -86_400 * 365 * 60, 315_532_799, 4_354_819_200, 15_000_000_000])
def test_a_file_of_any_date_is_listed_and_downloaded(run: TrainingRun, alice: User, as_: As, seconds: int) -> None:
    path = runfiles.folder(run) / "dated"
    path.write_text("text")
    os.utime(path, (seconds, seconds))
    assert as_(alice).get(reverse("run_results", args=[run.pk])).status_code == 200
    archive = zipfile.ZipFile(io.BytesIO(b"".join(as_(alice).get(reverse("run_archive", args=[run.pk])))))
    assert archive.testzip() is None
    (info,) = archive.infolist()
    assert 1980 <= info.date_time[0] <= 2107


def test_folders_count_too(run: TrainingRun, alice: User, as_: As, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runfiles, "MOST_LOOKED", 200)
    for number in range(300):
        (runfiles.folder(run) / f"z{number}").mkdir()
    (runfiles.folder(run) / "z0" / "hidden").touch()
    opened = []
    open_folder = runfiles.open_folder
    monkeypatch.setattr(runfiles, "open_folder", lambda *given: opened.append(given) or open_folder(*given))
    found = selectors.listed(run, limit=50)
    assert len(opened) <= 201
    assert found.files == []
    assert "more files or folders" in found.missing[0]
    assert as_(alice).get(reverse("run_results", args=[run.pk])).status_code == 200


def test_thousands_of_nested_folders_are_no_reason_to_fail(run: TrainingRun, alice: User, as_: As) -> None:
    at = os.open(runfiles.folder(run), os.O_RDONLY)
    for _ in range(2000):
        os.mkdir("d", dir_fd=at)
        inner = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = inner
    os.close(at)
    (runfiles.folder(run) / "e").touch()
    assert [file.path for file in selectors.listed(run).files] == ["e"]
    assert as_(alice).get(reverse("run_results", args=[run.pk])).status_code == 200
    services.delete_run(services.stop_run(run, by=alice), by=alice)
    cast.empty_trash()
    assert not runfiles.folder(run).exists()


def test_as_many_files_as_are_asked_for_are_no_sign_of_more(run: TrainingRun) -> None:
    for number in range(12):
        (runfiles.folder(run) / f"f{number}").touch()
    assert selectors.listed(run, limit=12).missing == []
    fewer = selectors.listed(run, limit=11)
    assert (len(fewer.files), len(fewer.missing)) == (11, 1)


def test_a_log_folder_full_of_folders_still_has_its_driver(run: TrainingRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runfiles, "MOST_LOGS", 10)
    log = runfiles.folder(run) / "log"
    for number in range(100):
        (log / f"x{number}").mkdir(parents=True)
    (log / "driver").mkdir()
    (log / "driver" / "console.log").write_text("said")
    assert runfiles.log_names(run) == ["driver"]
