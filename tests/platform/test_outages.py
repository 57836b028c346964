"""A database that is away gets a line, not a flood; anything else is logged as it was."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator

import pytest
from django.conf import settings
from django.db.utils import IntegrityError, OperationalError
from kombu.exceptions import OperationalError as BrokerError

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
