"""What becomes of an import where the machine fails it: the disk is full, or who takes it in is killed. Nothing of it stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from experiments.files import datastore
from experiments.models import Project, User
from experiments.transfer import files, importing, making
from tests import cast, transferred
from tests.conftest import SentMessages
from tests.transferred import Archive, kept, refused, send

pytestmark = pytest.mark.usefixtures("said")


@pytest.fixture
def archive(project: Project, alice: User, said: SentMessages) -> Archive:
    return Archive.of(transferred.small(project, by=alice))


def test_a_full_disk_is_said_and_leaves_nothing(archive: Archive, charlie: User, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order = send(archive.packed(), charlie)
    monkeypatch.setattr(datastore, "free_bytes", lambda: 10)
    before = kept(home)
    importing.go_on(timezone.now)
    order.refresh_from_db()
    assert "disk is full" in order.says
    cast.empty_trash()
    assert kept(home) == before - {f"uploads/{order.key.hex}"}


def test_a_disk_that_fills_while_files_are_placed_leaves_nothing(
    archive: Archive, charlie: User, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    real = files.place_run
    monkeypatch.setattr(files, "place_run", lambda *said, **named: (real(*said, **named), full()))
    assert "disk is full" in refused(archive.packed(), charlie, home)


def test_one_that_kills_who_takes_it_in_is_refused_in_the_end(
    archive: Archive, charlie: User, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, order = kept(home), send(archive.packed(), charlie)

    def killed(*_: Any) -> None:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(making, "_runs", killed)
        patch.setattr(files, "take_back", lambda *_, **__: None)
        for _ in range(importing.MOST_ATTEMPTS):
            with pytest.raises(SystemExit):
                importing.go_on(timezone.now)
    importing.go_on(timezone.now)
    order.refresh_from_db()
    assert "never came to its end" in order.says
    cast.empty_trash()
    assert kept(home) == before
