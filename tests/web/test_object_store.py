"""What administrators see of the object store, on its page, by the API and by the command."""

from __future__ import annotations

import datetime as dt
import re
import shlex
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from experiments import services
from experiments.files.store import copies, turns
from experiments.files.store.things import Kind
from experiments.models import Bundle, TrainingRun, User
from experiments.ops import installation
from tests import cast
from tests.e2e.studio import REPOSITORY

pytestmark = pytest.mark.django_db


@pytest.fixture
def code(dora: User, project: Any, alice: User, said: Any) -> Bundle:
    """And a run that was stopped before it began."""
    installation.bind()
    run = services.stop_run(cast.run(project, by=alice), by=alice)
    TrainingRun.objects.filter(pk=run.pk).update(ended_at=timezone.now() - dt.timedelta(hours=1))
    return run.version.bundle


@pytest.fixture
def store(tmp_path: Path, settings: Any) -> Path:
    settings.EDT_STORE = f"file://{tmp_path}/store"
    return tmp_path / "store"


def shown(by: User, path: str = "/cluster/store/") -> str:
    client = Client()
    client.force_login(by)
    answer = client.get(path)
    return answer.content.decode() if answer.status_code == 200 else str(answer.status_code)


def said_by(*words: str, fails: bool = False) -> str:
    out = StringIO()
    if fails:
        with pytest.raises(CommandError) as error:
            call_command("store", *words, stdout=out)
        return out.getvalue() + str(error.value)
    call_command("store", *words, stdout=out)
    return out.getvalue()


def test_the_page_says_what_waits_and_then_that_all_is_there(code: Bundle, store: Path, dora: User):
    assert "It was not asked yet" in shown(dora)
    while turns.turn():
        pass
    page = shown(dora)
    assert "All is copied." in page and str(store) in page


def test_the_page_says_since_when_it_cannot_be_used_and_why(code: Bundle, dora: User, settings: Any):
    settings.EDT_STORE = "file:///proc/nowhere/store"
    turns.turn()
    page = shown(dora)
    assert "cannot be used" in page and "FileNotFoundError" in page and "Cannot be used since" in page
    assert "Object store is away" in shown(dora, "/cluster/")


def test_what_went_wrong_stands_there_by_its_name(code: Bundle, store: Path, dora: User):
    copies.failed(Kind.BUNDLE, code.sha256, "not copied: <b>disk</b>", now=timezone.now())
    assert code.sha256 in shown(dora) and "&lt;b&gt;disk" in shown(dora)


def test_only_administrators_see_it(code: Bundle, store: Path, dora: User, alice: User):
    assert shown(alice) == "403"
    assert "Object store" in shown(dora)


def test_without_a_store_the_page_says_so(dora: User):
    assert "no object store" in shown(dora)


def test_the_commands_of_the_documentation_work_as_they_are_printed(code: Bundle, store: Path):
    section = (REPOSITORY / "docs" / "operations.md").read_text().split("\n## An object store\n", 1)[1].split("\n## ", 1)[0]
    printed = re.findall(r"^    \.venv/bin/python manage\.py store (.*)$", section, re.MULTILINE)
    said = [said_by(*shlex.split(line, comments=True)) for line in printed]
    assert [shlex.split(line, comments=True)[0] for line in printed] == ["status", "copy", "check", "fetch", "adopt"]
    assert all(said)


def test_the_command_copies_checks_and_brings_back(code: Bundle, store: Path, home: Path):
    assert "code: 0 there" in said_by("status")
    assert "All is copied." in said_by("copy")
    assert "All of it is there" in said_by("check", "--read")
    (home / "bundles" / f"{code.sha256}.zip").unlink()
    assert "1 things came back" in said_by("fetch")
    assert "Nothing is missing" in said_by("fetch")
    assert (home / "bundles" / f"{code.sha256}.zip").is_file()
    (store / "bundles" / code.sha256 / "manifest").write_bytes(b"spoilt")
    assert "damaged; it is copied anew" in said_by("check", fails=True)
    assert "All is copied." in said_by("copy")
    assert "What is said to be" in said_by("check")


def test_the_command_says_what_cannot_come_back(code: Bundle, store: Path, home: Path):
    said_by("copy")
    (home / "bundles" / f"{code.sha256}.zip").unlink()
    (store / "bundles" / code.sha256 / "manifest").unlink()
    assert "could not be brought back" in said_by("fetch", fails=True)


def test_a_restored_studio_is_told_how_to_take_the_store_over(code: Bundle, store: Path):
    said_by("copy")
    installation.bind(anew=True)
    assert "manage.py store adopt" in said_by("copy", fails=True)
    assert "no other" in said_by("adopt")
    assert "All is copied." in said_by("copy")


def test_without_a_store_the_command_says_what_to_set(code: Bundle):
    assert "set EDT_STORE" in said_by("status", fails=True)
