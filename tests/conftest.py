"""Fixtures for all tests: the cast as people in the database, and what is said outward, overheard."""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from django.core.cache import cache
from django.db import connection

from experiments.live import notify
from experiments.models import Node, Project, User
from tests import cast, migrated, turns
from tests.side_by_side import Scheduling
from webapp.home import prepare

hypothesis.settings.register_profile("patient", deadline=None)  # a busy machine is slow, and no test is about that
hypothesis.settings.load_profile("patient")

gc.disable()  # thousands of tests are found: nothing of that is garbage, and to look for some takes a sixth of the time


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> tuple[int, bool, bool, str]:
    """Those that share a studio come one after the other, always in the same order, and the last of them is the one that ends it."""
    rank, shares = turns.rank(item.path), item.get_closest_marker("shared_studio")
    if shares is not None:
        return rank, False, bool(shares.kwargs.get("ends")), ""
    return rank, True, False, turns.turn(item.path)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if turns.is_late(item.path, time.time()):
        pytest.skip(turns.LATE)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduling:
    return Scheduling(config, log)


@pytest.fixture(scope="session")
def django_db_keepdb(django_db_keepdb: bool, django_db_modify_db_settings: None) -> bool:
    """Where it is SQLite's, the database of a process of tests is a copy of one with all migrations."""
    if connection.vendor != "sqlite":
        return django_db_keepdb
    migrated.copy_to(Path(connection.creation._get_test_db_name()))
    return True


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A folder that everybody on this machine can reach, which a test's own is not."""
    with tempfile.TemporaryDirectory(prefix="edt-somebody-", ignore_cleanup_errors=True) as name:
        yield Path(name)


@pytest.fixture
def home(tmp_path: Path, settings: Any) -> Path:
    """An EDT_HOME of its own: a database that is rolled back gives the same numbers again, and folders and the cache go by them."""
    cache.clear()
    prepare(tmp_path / "home")
    settings.EDT_HOME = tmp_path / "home"
    settings.EDT_DATA_ROOT = tmp_path / "home" / "data"
    settings.FILE_UPLOAD_TEMP_DIR = tmp_path / "home" / "tmp"
    return tmp_path / "home"


@pytest.fixture
def alice(db: None, home: Path) -> User:
    """Owns the project."""
    return cast.person("alice")


@pytest.fixture
def bob(db: None, home: Path) -> User:
    """Edits in Alice's project."""
    return cast.person("bob")


@pytest.fixture
def victor(db: None, home: Path) -> User:
    """Views Alice's project."""
    return cast.person("victor")


@pytest.fixture
def charlie(db: None, home: Path) -> User:
    """A stranger to Alice's project."""
    return cast.person("charlie")


@pytest.fixture
def dora(db: None, home: Path) -> User:
    """An administrator of the cluster, a stranger to Alice's project."""
    return cast.person("dora", staff=True)


@pytest.fixture
def project(alice: User, bob: User, victor: User) -> Project:
    """Alice's, with Bob as editor and Victor as viewer."""
    return cast.shared_project(alice, editor=bob, viewer=victor)


@pytest.fixture
def node(db: None) -> Node:
    """A node with four CPU slots that has just been heard of."""
    return cast.node()


@dataclass
class SentMessages:
    """What was said outward after commits: messages by topic, and tasks as (name, arguments, queue)."""

    messages: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    tasks: list[tuple[str, tuple[object, ...], str]] = field(default_factory=list)

    def about(self, topic: str, kind: str = "") -> list[dict[str, Any]]:
        return [message for to, message in self.messages if to == topic and message["type"].startswith(kind)]

    def task_names(self) -> list[str]:
        return [name.rsplit(".", 1)[-1] for name, _, _ in self.tasks]

    def clear(self) -> None:
        """From now on; the tasks that were asked for have begun."""
        self.messages.clear()
        self.tasks.clear()
        cache.clear()


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> Iterator[SentMessages]:
    """Everything that would be sent to pages and to Celery, overheard at the very edge: commits and shapes are real."""
    heard = SentMessages()
    cache.clear()
    monkeypatch.setattr(notify, "_publish", lambda messages: heard.messages.extend(messages))
    monkeypatch.setattr(notify.app, "send_task", lambda name, args=(), queue="", **_: heard.tasks.append((name, tuple(args), queue)))
    return heard
