"""The object store behind the studio's files: all comes back, and one that goes away, refuses, breaks off or is spoilt loses nothing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from experiments.files import bundles, runfiles
from experiments.files.store import checking, copies, turns
from experiments.files.store.objects import refusal
from experiments.files.store.things import Kind
from experiments.models import StoreCopy, TrainingRun
from tests import objectstore
from tests.domain.storing import MIB, Studio, bring_all, copy_all, put, use, waits
from tests.node.cutting import CuttingProxy

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("kind", ["s3", "store_folder"])
def test_all_files_come_back_to_a_disk_that_is_empty_as_they_were(studio: Studio, kind: str, request: pytest.FixtureRequest):
    request.getfixturevalue(kind)
    assert waits().keys() == {"bundle", "model", "asset", "run"} and waits()["run"] == 2
    copy_all()
    assert waits() == {}
    before = studio.files()
    studio.burn()
    bring_all()
    came = studio.files()
    assert {path: content for path, (content, _) in came.items() if path in before} == {
        path: content for path, (content, _) in before.items()
    }
    of_runs = [path for path in before if path.startswith("runs/")]
    assert {path: came[path] for path in of_runs} == {path: before[path] for path in of_runs}, "with their times"
    more = {path.split("/", 2)[2] for path in came.keys() - before.keys()}
    assert more == {"_submitted_code/main/main.py"}, "beside what its script wrote a run that goes on has its code again"
    assert bundles.unpacked(studio.ended.version.bundle).is_dir()
    copy_all()
    assert waits() == {}


def test_a_store_that_is_away_stops_nothing_and_what_waits_is_made_up_for(studio: Studio, s3: objectstore.S3Server):
    s3.stop()
    assert turns.turn() is False
    state = copies.state()
    assert state.away_since is not None and "connect" in state.error
    waiting = waits()
    assert waiting["run"] == 2
    assert turns.turn() is False
    assert copies.state().away_since == state.away_since, "since when it is, not when it was last asked"
    s3.start()
    copy_all()
    assert waits() == {}
    assert copies.state().away_since is None


def test_wrong_credentials_are_said_and_never_shown(studio: Studio, s3: objectstore.S3Server, monkeypatch: pytest.MonkeyPatch, caplog: Any):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-the-secret-of-it")
    assert turns.turn() is False
    assert "refuses access" in copies.state().error
    shown = copies.state().error + caplog.text
    assert "not-the-secret-of-it" not in shown
    assert s3.objects() == {}


@pytest.mark.parametrize("url", ["s3://key:secret@bucket/x", "bucket/x", "memory://x", "s3://bucket/x?y=1"])
def test_an_address_that_holds_credentials_or_is_none_is_refused(url: str):
    assert refusal(url)
    assert "secret" not in refusal(url)
    assert not refusal("s3://bucket/prefix") and not refusal("file:///mnt/store")


@pytest.mark.usefixtures("small_objects")
def test_a_copy_that_is_cut_off_goes_on_where_it_was(
    studio: Studio, s3: objectstore.S3Server, settings: Any, monkeypatch: pytest.MonkeyPatch
):
    copy_all()
    content = os.urandom(5 * MIB)
    put(studio.ended, large__bin=content)
    copies.changed(Kind.RUN, studio.ended.folder)
    with CuttingProxy(s3.port) as proxy:
        use(settings, monkeypatch, s3.url, s3.through(proxy.port))
        proxy.cut_up_after = 3 * MIB
        assert turns.turn() is False
        assert copies.state().away_since is not None
        before = {name for name, size in s3.objects().items() if size == 2 * MIB and studio.ended.folder in name}
        assert len(before) == 2, "that of its model, and one of the three"
        proxy.cut_up_after, proxy.passed_up = None, 0
        copy_all()
        assert proxy.passed_up < 3.5 * MIB
    use(settings, monkeypatch, s3.url, s3.environment)
    assert waits() == {}
    studio.burn()
    bring_all()
    assert (runfiles.folder(studio.ended) / "large/bin").read_bytes() == content


@pytest.mark.usefixtures("small_objects")
def test_files_that_are_brought_back_go_on_where_it_was_cut_off(
    studio: Studio, s3: objectstore.S3Server, settings: Any, monkeypatch: pytest.MonkeyPatch
):
    put(studio.ended, large__bin=(content := os.urandom(5 * MIB)))
    copy_all()
    studio.burn()
    copies.want(Kind.RUN, studio.ended.folder, now=timezone.now())
    with CuttingProxy(s3.port) as proxy:
        use(settings, monkeypatch, s3.url, s3.through(proxy.port))
        proxy.cut_after = 6 * MIB
        turns.turn()
        assert not runfiles.folder(studio.ended).exists(), "whole in its place or not there"
        proxy.cut_after, proxy.passed = None, 0
        copy_all()
        assert proxy.passed < 3.5 * MIB
    assert (runfiles.folder(studio.ended) / "large/bin").read_bytes() == content


@pytest.mark.usefixtures("small_objects")
def test_a_turn_ends_in_time_and_the_next_one_goes_on_without_reading_all_again(studio: Studio, store_folder: Path):
    copy_all()
    put(studio.ended, large__bin=os.urandom(5 * MIB))
    copies.changed(Kind.RUN, studio.ended.folder)
    turned = 0
    while turns.turn(seconds=0.0):
        turned += 1
    assert turned >= 3, "an object each at the least"
    assert waits() == {}


def spoil(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def of_run(s3: objectstore.S3Server, run: TrainingRun) -> list[Path]:
    """Its objects, the largest first, and its list."""
    found = [path for path in (s3.folder / "edt" / "runs" / run.folder).iterdir() if path.name != "manifest"]
    return [*sorted(found, key=lambda path: -path.stat().st_size), s3.folder / "edt" / "runs" / run.folder / "manifest"]


@pytest.mark.parametrize("which", [0, -1], ids=["object", "list"])
def test_what_was_spoilt_in_the_store_is_never_taken_for_the_files(studio: Studio, s3: objectstore.S3Server, which: int):
    copy_all()
    spoil(of_run(s3, studio.ended)[which])
    studio.burn()
    bring_all()
    assert not runfiles.folder(studio.ended).exists()
    row = StoreCopy.objects.get(kind="run", key=studio.ended.folder)
    assert "damaged" in row.error
    assert runfiles.folder(studio.suspended).exists(), "the others are not kept waiting"


@pytest.mark.parametrize("which", [0, -1], ids=["object", "list"])
def test_a_check_finds_what_was_spoilt_and_it_is_copied_anew(studio: Studio, s3: objectstore.S3Server, which: int):
    copy_all()
    assert list(checking.check(turns.opened(), read=True)) == []
    spoil(of_run(s3, studio.ended)[which])
    (problem,) = checking.check(turns.opened(), read=True)
    assert studio.ended.folder in problem and "copied anew" in problem
    copy_all()
    assert list(checking.check(turns.opened(), read=True)) == []


@pytest.mark.parametrize("which", [0, -1], ids=["object", "list"])
def test_a_check_leaves_what_was_spoilt_where_it_is_all_that_there_is(studio: Studio, s3: objectstore.S3Server, which: int):
    copy_all()
    spoilt = of_run(s3, studio.ended)[which]
    spoil(spoilt)
    studio.burn()
    (problem,) = checking.check(turns.opened(), read=True)
    assert studio.ended.folder in problem and "its files are not here either" in problem
    assert spoilt.exists(), "most of it may still be right"
