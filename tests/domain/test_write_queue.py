"""The queue before SQLite's lock: real connections of several threads and processes to a file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db.utils import OperationalError

from tests.disk import small_disk
from webapp.sqlite import base
from webapp.sqlite.base import DatabaseWrapper, Queue

WRITERS, TURNS = 4, 60
HOLDS = """
import sys
from webapp.sqlite.base import Queue
queue = Queue(lambda: sys.argv[1])
queue.enter()
print("in", flush=True)
sys.stdin.read()
"""


def connection(path: Path) -> DatabaseWrapper:
    """That does not wait at SQLite's own lock."""
    settings: dict[str, Any] = {"NAME": str(path), "OPTIONS": {"transaction_mode": "IMMEDIATE", "timeout": 0}}
    settings |= {"AUTOCOMMIT": True, "ATOMIC_REQUESTS": False, "CONN_MAX_AGE": None, "CONN_HEALTH_CHECKS": False, "TIME_ZONE": None}
    settings |= {"TEST": {"NAME": None}, "ENGINE": "webapp.sqlite"}
    made = DatabaseWrapper(settings, alias=f"queue-{threading.get_ident()}")
    made.inc_thread_sharing()
    return made


def queue_at(path: Path) -> Queue:
    return Queue(lambda: f"{path}-queue")


def do(on: DatabaseWrapper, sql: str) -> list[tuple[Any, ...]]:
    with on.cursor() as cursor:
        return list(cursor.execute(sql).fetchall())


def changed(on: DatabaseWrapper, by: str) -> None:
    """In a transaction that reads first, as most do."""
    on.set_autocommit(False, force_begin_transaction_with_broken_autocommit=True)
    (count,) = do(on, "SELECT n FROM counts")[0]
    do(on, f"UPDATE counts SET n = {count + 1}, by = '{by}'")
    on.commit()
    on.set_autocommit(True)


@pytest.fixture
def path(tmp_path: Path, django_db_blocker: Any) -> Iterator[Path]:
    with django_db_blocker.unblock():  # a database of its own
        first = connection(tmp_path / "db.sqlite3")
        do(first, "PRAGMA journal_mode=WAL")
        do(first, "CREATE TABLE counts (n INTEGER, by TEXT)")
        do(first, "INSERT INTO counts VALUES (0, '')")
        yield tmp_path / "db.sqlite3"
        first.close()


def at_once(path: Path, *, transactions: bool) -> list[Exception]:
    problems: list[Exception] = []

    def work(number: int) -> None:
        mine = connection(path)
        try:
            for _ in range(TURNS):
                changed(mine, str(number)) if transactions else do(mine, "UPDATE counts SET n = n + 1")
        except OperationalError as error:
            problems.append(error)
        finally:
            mine.close()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    return problems


@pytest.mark.parametrize("transactions", [True, False])
def test_writers_come_one_after_the_other_and_none_meets_the_locked_database(path: Path, transactions: bool) -> None:
    assert at_once(path, transactions=transactions) == []
    reader = connection(path)
    assert do(reader, "SELECT n FROM counts") == [(WRITERS * TURNS,)]
    reader.close()


def test_without_the_queue_they_would_meet_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the test above would show nothing."""
    monkeypatch.setattr(Queue, "enter", lambda _: None)
    first, second = connection(path), connection(path)
    first.set_autocommit(False, force_begin_transaction_with_broken_autocommit=True)
    with pytest.raises(OperationalError, match="locked"):
        changed(second, "second")
    first.rollback()
    for each in (first, second):
        each.close()


def test_who_fails_or_leaves_in_the_middle_of_a_transaction_is_out_of_the_queue(path: Path) -> None:
    for end in ("rollback", "close"):
        first, second = connection(path), connection(path)
        first.set_autocommit(False, force_begin_transaction_with_broken_autocommit=True)
        do(first, "UPDATE counts SET n = 7")
        assert first.queue.held
        getattr(first, end)()
        assert not first.queue.held
        changed(second, end)
        assert do(second, "SELECT by FROM counts") == [(end,)]
        first.close()
        second.close()


def test_readers_do_not_stand_in_it(path: Path) -> None:
    writer, reader = connection(path), connection(path)
    writer.set_autocommit(False, force_begin_transaction_with_broken_autocommit=True)
    assert do(reader, "SELECT n FROM counts") == [(0,)]
    writer.rollback()
    for each in (writer, reader):
        each.close()


def test_a_process_that_is_killed_in_its_turn_holds_up_nobody(path: Path) -> None:
    held = subprocess.Popen([sys.executable, "-c", HOLDS, f"{path}-queue"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert held.stdout is not None
        assert held.stdout.readline() == b"in\n"
        held.send_signal(signal.SIGKILL)
        held.wait(timeout=30)
        mine = connection(path)
        changed(mine, "next")
        assert do(mine, "SELECT by FROM counts") == [("next",)]
        mine.close()
    finally:
        held.kill()
        held.communicate(timeout=30)


def test_who_has_waited_long_enough_goes_on_without_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "PATIENCE_S", 0.05)
    stuck, mine = queue_at(path), connection(path)
    stuck.enter()
    changed(mine, "late")
    assert do(mine, "SELECT by FROM counts") == [("late",)]
    stuck.close()
    mine.close()


def test_who_is_given_another_database_waits_for_nobody_who_writes_in_the_first(path: Path, tmp_path: Path) -> None:
    """As each process of the tests is, all of which would take turns."""
    first, mine = queue_at(path), connection(path)
    first.enter()
    mine.settings_dict["NAME"] = str(tmp_path / "other.sqlite3")
    do(mine, "CREATE TABLE counts (n INTEGER, by TEXT)")
    assert taken(mine.queue)
    assert (tmp_path / "other.sqlite3-queue").exists()
    first.close()
    mine.close()


def test_a_fork_does_not_give_its_parents_turn_away(path: Path) -> None:
    parent, other = queue_at(path), queue_at(path)
    parent.enter()
    if (child := os.fork()) == 0:
        parent.leave()
        os._exit(0)
    os.waitpid(child, 0)
    assert base.PATIENCE_S > 1
    assert not taken(other), "it is still the parent's"
    parent.close()
    assert taken(other)
    other.close()


def taken(queue: Queue) -> bool:
    """Whether it got its turn at the first look."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base, "PATIENCE_S", 0.01)
        queue.enter()
    return queue.held


@pytest.mark.parametrize("transactions", [True, False])
def test_on_a_full_disk_what_was_refused_is_done_when_it_is_tried_again(path: Path, tmp_path: Path, transactions: bool) -> None:
    """The log grows to a thousand pages before it is begun anew: nobody would write again before there is room."""
    with small_disk(tmp_path / "small", 4 << 20) as disk:
        writer = connection(disk.folder / "db.sqlite3")
        do(writer, "PRAGMA journal_mode=WAL")
        do(writer, "CREATE TABLE counts (n INTEGER, by TEXT)")
        do(writer, "INSERT INTO counts VALUES (0, '')")
        do(writer, "CREATE TABLE logs AS SELECT zeroblob(90000)")
        do(writer, "PRAGMA wal_checkpoint(PASSIVE)")
        disk.fill()
        with pytest.raises(OperationalError, match="full"):
            for _ in range(200):  # what the log's file has is used first
                changed(writer, "first") if transactions else do(writer, "UPDATE counts SET n = n + 1")
        writer.rollback() if transactions else None
        writer.set_autocommit(True)
        changed(writer, "again") if transactions else do(writer, "UPDATE counts SET by = 'again'")
        assert do(writer, "SELECT by FROM counts") == [("again",)]
        assert do(writer, "PRAGMA integrity_check") == [("ok",)]
        writer.close()
