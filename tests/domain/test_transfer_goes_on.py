"""An import that was killed begins anew or goes on, and what cannot all be read is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from experiments.metrics import ingest
from experiments.models import Project, TrainingRun, User
from experiments.transfer import importing, making
from tests.domain.test_transfer import State, curves, stranger, studio
from tests.transferred import exported, send
from tests.web.seed import Seeded

__all__ = ["stranger", "studio"]  # fixtures

pytestmark = pytest.mark.usefixtures("said")


class Killed(BaseException):
    """The process is no more."""


def test_an_import_that_was_killed_before_its_project_was_there_begins_anew(
    studio: Seeded, stranger: User, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    order, before = send(exported(studio.digits), stranger), Project.objects.count()

    def killed(*_: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(making, "_runs", killed)
        with pytest.raises(Killed):
            importing.go_on(timezone.now)
    order.refresh_from_db()
    assert (order.state, Project.objects.count()) == (State.CHECKING, before)
    importing.go_on(timezone.now)
    order.refresh_from_db()
    assert (order.state, order.attempts) == (State.DONE, 2)
    assert Project.objects.count() == before + 1


def test_an_import_that_was_killed_while_journals_were_read_goes_on(
    studio: Seeded, stranger: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = send(exported(studio.digits), stranger)

    real, calls = ingest.catch_up, []

    def second_kills(run: int, **said: Any) -> int:
        calls.append(run)
        if len(calls) == 2:
            raise Killed
        return real(run, **said)

    with monkeypatch.context() as patch:
        patch.setattr(ingest, "catch_up", second_kills)
        with pytest.raises(Killed):
            importing.go_on(timezone.now)
    order.refresh_from_db()
    assert (order.state, order.run) == (State.READING, calls[0])
    importing.go_on(timezone.now)
    order.refresh_from_db()
    assert (order.state, order.says) == (State.DONE, "")
    old = TrainingRun.objects.filter(experiment__project=studio.digits, ended_at__isnull=False).order_by("pk")
    new = TrainingRun.objects.filter(experiment__project=order.project).order_by("pk")
    assert [curves(run) for run in old] == [curves(run) for run in new]


def test_a_project_whose_metrics_cannot_all_be_read_stays_and_says_so(
    studio: Seeded, stranger: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = send(exported(studio.digits), stranger)

    def broken(*_: Any, **__: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ingest, "catch_up", broken)
    for state in (State.READING, State.READING, State.DONE):
        importing.go_on(timezone.now)
        order.refresh_from_db()
        assert order.state == state
    assert order.says.startswith("Not all metrics of its runs could be read. The studio's disk is full")
    assert TrainingRun.objects.filter(experiment__project=order.project).exists()
