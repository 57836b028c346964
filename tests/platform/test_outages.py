"""A database that is away gets a line, not a flood; anything else is logged as it was."""

from __future__ import annotations

import errno
import io
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings
from django.db.utils import IntegrityError, OperationalError
from django.utils.module_loading import import_string
from kombu.exceptions import OperationalError as BrokerError

from tests.disk import small_disk
from webapp.outages import EVERY_S, Outages


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def log(clock: Clock) -> Iterator[tuple[logging.Logger, io.StringIO]]:
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.addFilter(Outages(clock=clock))
    logger = logging.Logger("tests.outages")
    logger.addHandler(handler)
    yield logger, written


def fail(logger: logging.Logger, error: Exception, *, times: int = 1) -> None:
    for _ in range(times):
        try:
            raise error
        except Exception:
            logger.exception("Task %s raised", "ingest_run")


def test_an_outage_is_one_line_a_minute_however_many_meet_it(log: tuple[logging.Logger, io.StringIO], clock: Clock) -> None:
    logger, written = log
    away = OperationalError("connection failed: no such file\nIs the server running?")
    fail(logger, away, times=500)
    assert written.getvalue() == "The database does not answer: connection failed: no such file [Task ingest_run raised]\n"
    clock.now += EVERY_S
    fail(logger, away, times=2)
    assert len(written.getvalue().splitlines()) == 2
    assert "(499 more like it were left out)" in written.getvalue()


def test_database_and_broker_are_two_outages(log: tuple[logging.Logger, io.StringIO]) -> None:
    logger, written = log
    fail(logger, OperationalError("gone"), times=2)
    fail(logger, BrokerError("gone"), times=2)
    assert [line.split(" does")[0] for line in written.getvalue().splitlines()] == ["The database", "The broker"]


def test_any_other_error_keeps_its_traceback_every_time(log: tuple[logging.Logger, io.StringIO]) -> None:
    logger, written = log
    fail(logger, ValueError("bad"), times=2)
    fail(logger, IntegrityError("twice"))
    assert written.getvalue().count("Traceback") == 3


def test_the_studios_processes_log_so() -> None:
    assert settings.LOGGING["filters"]["outages"]["()"] == "webapp.outages.Outages"
    assert settings.LOGGING["handlers"]["stderr"]["filters"] == ["outages"]


def test_a_full_disk_is_one_line_whoever_met_it_and_the_answer_to_it_none(log: tuple[logging.Logger, io.StringIO]) -> None:
    logger, written = log
    fail(logger, OSError(errno.ENOSPC, "No space left on device"), times=3)
    logger.error("Insufficient Storage: /login/", extra={"status_code": 507})  # Django's own, without the error
    fail(logger, OSError(errno.ENOENT, "No such file"))
    lines = written.getvalue().splitlines()
    assert lines[0] == "The disk takes nothing more: [Errno 28] No space left on device [Task ingest_run raised]"
    assert len([line for line in lines if "Storage" in line or "takes nothing" in line]) == 1
    assert written.getvalue().count("Traceback") == 1


def test_a_line_that_finds_no_room_in_the_log_is_left_out_and_no_traceback_is_written_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """There were thirty lines for each; and of these a line of the log each, where Celery logs what is printed."""
    handler = import_string(settings.LOGGING["handlers"]["stderr"]["class"])()
    logger = logging.Logger("tests.outages")
    logger.addHandler(handler)
    with small_disk(tmp_path / "small", 64 << 10) as disk, open(disk.folder / "web.log", "w") as file:
        handler.setStream(file)
        disk.fill()
        logger.error("lost")
        disk.make_room()
        logger.error("There is room.")
        logger.error("%d", "no number")
        assert "There is room." in (disk.folder / "web.log").read_text()
    said = capsys.readouterr().err
    assert said.count("--- Logging error ---") == 1 and "no number" in said
