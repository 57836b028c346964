"""A studio whose files lie in an object store, for tests of that: a real S3 server, or a folder by URL."""

from __future__ import annotations

import datetime as dt
import io
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from experiments import services
from experiments.files import runfiles
from experiments.files.store import copies, manifest, things, turns
from experiments.models import DataAsset, Project, RunState, TrainingRun, User
from experiments.ops import installation
from tests import cast, objectstore
from tests.domain.test_registry import register

MIB = 1 << 20
HOUR = dt.timedelta(hours=1)


@dataclass
class Studio:
    """Of Alice: code, a data asset, a model, a run that has ended and one that is suspended, an hour ago."""

    home: Path
    asset: DataAsset
    ended: TrainingRun
    suspended: TrainingRun
    model: str

    def files(self) -> dict[str, tuple[bytes, int]]:
        """What is to come back: content and time of last change, by path."""
        rooms = [self.home / room for room in ("bundles", "assets", "models", "runs")]
        found = [
            path for room in rooms for path in room.rglob("*") if path.is_file() and not path.relative_to(room).parts[0].startswith(".")
        ]
        return {path.relative_to(self.home).as_posix(): (path.read_bytes(), path.stat().st_mtime_ns) for path in found}

    def burn(self) -> None:
        """The disk with the studio's files is another one, empty."""
        for room in ("bundles", "assets", "models", "runs", "code", "store"):
            shutil.rmtree(self.home / room, ignore_errors=True)
            (self.home / room).mkdir()
        (self.home / "bundles" / ".lock").touch()


def put(run: TrainingRun, **contents: bytes) -> None:
    for path, content in contents.items():
        place = runfiles.make(run) / path.replace("__", "/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)


def run_of(project: Project, by: User, name: str, state: str, **contents: bytes) -> TrainingRun:
    run = cast.run(project, by=by, name=name)
    put(run, **contents)
    ago = timezone.now() - HOUR
    TrainingRun.objects.filter(pk=run.pk).update(state=state, started_at=ago, ended_at=ago if state == RunState.COMPLETED else None)
    run.transitions.update(at=ago)
    run.refresh_from_db()
    return run


@pytest.fixture
def studio(home: Path, project: Project, alice: User, said: Any) -> Studio:
    installation.bind()
    asset = services.add_data(
        project, by=alice, name="digits", files=[(f"train/{n}.bin", 3000, io.BytesIO(os.urandom(3000))) for n in range(40)]
    )
    ended = run_of(
        project, alice, "first", RunState.COMPLETED, journal__jsonl=b"{}\n", model__final=os.urandom(2 * MIB), log__a=b"log", empty=b""
    )
    put(ended, **{"model__train__model_epoch_final.pth": b"weights"})
    version = register(ended, alice, path="model/train/model_epoch_final.pth")
    written = {"journal.jsonl": b"{}\n", "checkpoint__engine.pt": os.urandom(2 * MIB)}
    suspended = run_of(project, alice, "second", RunState.SUSPENDED, **written)
    put(suspended, **{"_submitted_code__main__made.txt": b"made by the script"})
    return Studio(home, asset, ended, suspended, version.files.first().sha256)  # type: ignore[union-attr]


@pytest.fixture
def s3(tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[objectstore.S3Server]:
    with objectstore.S3Server(tmp_path / "s3") as server:
        use(settings, monkeypatch, server.url, server.environment)
        yield server


@pytest.fixture
def store_folder(tmp_path: Path, settings: Any) -> Path:
    settings.EDT_STORE = f"file://{tmp_path}/store"
    return tmp_path / "store"


def use(settings: Any, monkeypatch: pytest.MonkeyPatch, url: str, environment: dict[str, str]) -> None:
    settings.EDT_STORE = url
    for name, value in environment.items():
        monkeypatch.setenv(name, value)


def copy_all() -> None:
    while turns.turn():
        pass


def bring_all() -> None:
    for thing in things.every():
        copies.want(thing.kind, thing.key, now=timezone.now())
    copy_all()


def waits() -> dict[str, int]:
    return {kind: count for kind, (count, _) in things.counts(timezone.now()).items() if count}


@pytest.fixture
def small_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a file of some megabytes has several."""
    monkeypatch.setattr(manifest, "OBJECT_BYTES", 2 * MIB)
