"""From SQLite to PostgreSQL: every row of a studio with a past is there, and nothing is given twice. While a job trains: tests/e2e."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from experiments.models import Project
from tests.domain import postgres
from tests.platform.test_backup import done, manage, refused
from webapp.studio import checks

pytestmark = [pytest.mark.timeout(300), pytest.mark.skipif(postgres.programs() is None, reason="the PostgreSQL wheel is not installed")]

# A studio with a past; the last run of it was deleted.
SEED = """
from django.utils import timezone
from experiments.models import *
from tests.web import seed
studio = seed.studio(now=timezone.now(), steps=64)
last = TrainingRun.objects.get(pk=studio.queued.pk)
last.pk, last.folder = 41, "of-the-last"
last.save(force_insert=True)
TrainingRun.objects.filter(pk=41).delete()
"""
# What PostgreSQL cannot hold.
STRANGE = """
from experiments.models import *
TrainingRun.objects.filter(pk=1).update(note="a\\x00b", environment={"A": ["\\ud83d", 1.5]})
Project.objects.filter(pk=1).update(name="n" * 1000)
"""
LOOK = """
import json
from django.apps import apps
from django.db import connection
found = {}
def said(value):
    if isinstance(value, (dict, list)):
        return json.dumps(value, sort_keys=True)  # PostgreSQL keeps no order of keys
    return bytes(value).hex() if isinstance(value, (bytes, memoryview)) else repr(value)
for model in apps.get_models(include_auto_created=True):
    rows = model._base_manager.order_by("pk").values_list(*(each.attname for each in model._meta.concrete_fields))
    found[model._meta.db_table] = [list(map(said, row)) for row in rows]
print(json.dumps(found))
"""
REFUSED = """
import json
from pathlib import Path
from experiments.models import TrainingRun
from webapp.studio import database_move
from webapp.studio.checks import Refusal
said = []
for name in {names!r}:
    try:
        database_move.move(Path({folder!r}) / name)
    except Refusal as refusal:
        said.append(str(refusal))
print(json.dumps([*said, TrainingRun.objects.count()]))
"""
NO_ROOM = """
import errno
from pathlib import Path
from experiments.ops import installation
from webapp.studio import database_move
from webapp.studio.checks import Refusal
def refuse(key):
    raise OSError(errno.ENOSPC, "No space left on device")
installation.write_key = refuse
try:
    database_move.move(Path({source!r}))
except Refusal as refusal:
    print(refusal)
"""
NEXT = """
from experiments.models import TrainingRun
run = TrainingRun.objects.first()
run.pk, run.folder = None, "another"
run.save(force_insert=True)
print(run.pk)
"""


def rows(home: Path, database: str = "") -> dict[str, list[list[str]]]:
    found: dict[str, list[list[str]]] = json.loads(
        done(manage(home, "shell", "--no-imports", "-c", LOOK, database=database)).splitlines()[-1]
    )
    return found


def shell(home: Path, words: str, database: str = "") -> str:
    return done(manage(home, "shell", "--no-imports", "-c", words, database=database))


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("past") / "home"
    done(manage(home, "prepare"))
    shell(home, SEED)
    return home


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgres.running() as url:
        yield url


@pytest.fixture
def url(server: str, request: pytest.FixtureRequest) -> str:
    """Of an empty database."""
    name = f"of_{request.node.name[:40]}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    return server.replace("/postgres?", f"/{name}?")


@pytest.fixture
def home(past: Path, tmp_path: Path) -> Path:
    shutil.copytree(past, tmp_path / "home", symlinks=True)
    return tmp_path / "home"


def test_every_row_is_there_and_no_number_is_given_twice(home: Path, url: str) -> None:
    before = rows(home)
    assert "Moved" in (said := done(manage(home, "move_database", database=url)))
    assert "changed" not in said
    after = rows(home, url)
    keys = [found.pop("experiments_installation") for found in (before, after)]
    assert keys[0] != keys[1], "EDT_HOME goes with one of the two"
    assert sum(1 for found in before.values() if found) > 30, "there was something to move"
    for table, found in before.items():
        assert after[table] == found, table
    done(manage(home, "prepare", database=url))
    assert shell(home, NEXT, url).split()[-1] == "42"
    refused(manage(home, "prepare"), "do not belong together")
    refused(manage(home, "move_database", database=url), "not empty")


def test_what_postgresql_cannot_hold_is_changed_and_named(home: Path, url: str) -> None:
    shell(home, STRANGE)
    said = done(manage(home, "move_database", database=url))
    named = [line.partition("as it was: ")[2] for line in said.splitlines() if line.startswith("changed")]
    run = "experiments_trainingrun"
    assert sorted(named) == ["experiments_project.name of row 1", f"{run}.environment of row 1", f"{run}.note of row 1"]
    after = rows(home, url)
    assert {repr("a\ufffdb"), json.dumps({"A": ["\ufffd", 1.5]})} <= set(after[run][0])
    assert repr("n" * Project._meta.get_field("name").max_length) in after["experiments_project"][0]


def test_what_cannot_be_moved_is_said_and_stays_as_it_was(home: Path, tmp_path: Path, url: str) -> None:
    refused(manage(home, "move_database"), "Set DATABASE_URL")
    with checks.hold(home, address="http://127.0.0.1:8000"):
        refused(manage(home, "move_database", database=url), "is already running")
    of = {
        "too large": "UPDATE experiments_trainingrun SET queue_position = 3000000000 WHERE id = 1",
        "older": "DELETE FROM django_migrations WHERE name = (SELECT max(name) FROM django_migrations WHERE app = 'experiments')",
        "newer": "INSERT INTO django_migrations (app, name, applied) VALUES ('experiments', '9999_of_tomorrow', '2026-01-01')",
        "of another": "UPDATE experiments_installation SET key = '00000000000000000000000000000001'",
    }
    for name, statement in of.items():
        shutil.copy(home / "db.sqlite3", tmp_path / name)
        with sqlite3.connect(tmp_path / name) as database:
            database.execute(statement)
    (tmp_path / "noise").write_bytes(b"no database" * 1000)
    names = ["none", "noise", *of]
    said = json.loads(shell(home, REFUSED.format(folder=str(tmp_path), names=names), url).splitlines()[-1])
    wanted = [
        "is not there",
        "is no database of a studio",
        "column queue_position",
        "of an older version",
        "9999_of_tomorrow",
        "do not belong",
    ]
    assert [part in words for part, words in zip(wanted, said[:-1], strict=True)] == [True] * 6, said
    assert said[-1] == 0, "nothing was moved"
    done(manage(home, "prepare"))


def test_a_disk_that_is_full_at_the_very_end_leaves_a_way_on(home: Path, url: str) -> None:
    before = rows(home)
    assert "No space left on device" in (said := shell(home, NO_ROOM.format(source=str(home / "db.sqlite3")), url))
    assert "manage.py adopt" in said
    done(manage(home, "prepare"))
    refused(manage(home, "prepare", database=url), "do not belong together")
    done(manage(home, "adopt", database=url))
    done(manage(home, "prepare", database=url))
    assert len(rows(home, url)["experiments_trainingrun"]) == len(before["experiments_trainingrun"])
