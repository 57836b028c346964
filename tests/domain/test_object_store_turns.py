"""What is copied to the object store and when, what is brought back, and what goes there after it was deleted here."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from experiments import services
from experiments.cluster import desired
from experiments.files import bundles, datastore, modelstore, pruning, retention, runfiles
from experiments.files.store import copies, copying, manifest, turns
from experiments.files.store.manifest import Part, Stored
from experiments.files.store.things import Kind, Thing
from experiments.models import Grant, Node, Project, RunState, StoreCopy, TrainingRun, User
from experiments.ops import installation
from experiments.selectors.files import ON_THEIR_WAY, Listed, files, listed
from experiments.services import outside
from tests import cast, objectstore
from tests.domain.storing import HOUR, MIB, Studio, bring_all, copy_all, put, run_of, waits

pytestmark = pytest.mark.django_db


def test_what_is_deleted_stays_in_the_store_as_long_as_in_the_trash_and_nothing_else_goes(
    studio: Studio, s3: objectstore.S3Server, alice: User
):
    copy_all()
    before = set(s3.objects())
    services.delete_run(studio.ended, by=alice)
    now = timezone.now()
    pruning.prune(now)
    pruning.prune(now + 6 * 24 * HOUR)
    copy_all()
    assert set(s3.objects()) == before, "the trash is not emptied yet"
    pruning.prune(now + 8 * 24 * HOUR)
    copy_all()
    gone = before - set(s3.objects())
    assert gone and all(name.startswith(f"runs/{studio.ended.folder}/") for name in gone)
    assert not any(name.startswith(f"runs/{studio.ended.folder}/") for name in s3.objects())
    assert not StoreCopy.objects.filter(key=studio.ended.folder).exists()


def test_what_is_deleted_while_the_store_is_away_goes_when_it_is_back(studio: Studio, s3: objectstore.S3Server, alice: User):
    copy_all()
    s3.stop()
    services.delete_run(studio.ended, by=alice)
    cast.empty_trash()
    assert turns.turn() is False
    s3.start()
    copy_all()
    assert not any(name.startswith(f"runs/{studio.ended.folder}/") for name in s3.objects())


def test_code_that_is_uploaded_again_after_it_was_deleted_stays(studio: Studio, store_folder: Path):
    copy_all()
    bundle = studio.ended.version.bundle
    copies.discard(pruning.Tombstone(kind=Kind.BUNDLE, key=bundle.sha256), now=timezone.now())
    copy_all()
    assert (store_folder / "bundles" / bundle.sha256 / "manifest").exists()
    assert StoreCopy.objects.get(key=bundle.sha256).remove_at is None


def test_a_run_that_goes_on_sends_what_is_new_and_what_is_out_of_date_goes_after_the_grace(
    studio: Studio, s3: objectstore.S3Server, settings: Any
):
    copy_all()
    old = {name for name in s3.objects() if name.startswith(f"runs/{studio.suspended.folder}/")}
    put(studio.suspended, **{"checkpoint__engine.pt": os.urandom(2 * MIB)})
    TrainingRun.objects.filter(pk=studio.suspended.pk).update(state=RunState.COMPLETED, ended_at=timezone.now() - HOUR / 2)
    StoreCopy.objects.filter(key=studio.suspended.folder).update(copied_at=timezone.now() - HOUR)
    assert waits() == {"run": 1}
    copy_all()
    assert old <= set(s3.objects()), "kept, as what is deleted is"
    row = StoreCopy.objects.get(key=studio.suspended.folder)
    assert row.tidy_at is not None and row.tidy_at > timezone.now() + 6 * 24 * HOUR
    settings.EDT_TRASH_DAYS = 0.0
    StoreCopy.objects.update(tidy_at=timezone.now())
    copy_all()
    now = {name for name in s3.objects() if name.startswith(f"runs/{studio.suspended.folder}/")}
    assert old - now and not StoreCopy.objects.exclude(tidy_at=None).exists()
    before = studio.files()
    studio.burn()
    bring_all()
    assert (
        studio.files()[f"runs/{studio.suspended.folder}/checkpoint/engine.pt"]
        == before[f"runs/{studio.suspended.folder}/checkpoint/engine.pt"]
    )


def test_a_run_that_trains_is_copied_from_time_to_time_with_its_checkpoint_before_its_journal(
    studio: Studio, store_folder: Path, project: Project, alice: User, settings: Any
):
    run = run_of(project, alice, "third", RunState.RUNNING, **{"journal.jsonl": b"1\n", "checkpoint__engine.pt": b"state", "a.txt": b"a"})
    copy_all()
    found = manifest.decode((store_folder / "runs" / run.folder / "manifest").read_bytes(), kind="run", key=run.folder)
    assert [file.path for file in found.files] == ["checkpoint/engine.pt", "a.txt", "journal.jsonl"]
    assert waits() == {}
    StoreCopy.objects.filter(key=run.folder).update(copied_at=timezone.now() - HOUR)
    assert waits() == {"run": 1}


def test_a_run_whose_files_are_on_their_way_waits_for_them_and_goes_on(studio: Studio, store_folder: Path, node: Node):
    copy_all()
    run = studio.suspended
    TrainingRun.objects.filter(pk=run.pk).update(head_node=node)
    slot = cast.slot_ids(node)[0]
    Grant.objects.create(run=run, slot_id=slot, granted_at=timezone.now(), reason="test")
    studio.burn()
    for _ in range(2):  # its code, then its folder, with which the code comes too
        assert desired.desired_state(node, now=timezone.now()).runs == ()
        run.refresh_from_db()
        assert run.state == RunState.SUSPENDED, "it does not fail"
        copy_all()
    (wanted,) = desired.desired_state(node, now=timezone.now()).runs
    assert Path(wanted.spec.result_dir, "checkpoint/engine.pt").stat().st_size == 2 * MIB
    assert Path(wanted.spec.code_dir, "main.py").exists()


def test_data_that_is_missing_is_waited_for_and_a_model_too(studio: Studio, store_folder: Path):
    copy_all()
    studio.burn()
    with pytest.raises(copies.NotHere, match="brought back"):
        datastore.present(studio.asset)
    with pytest.raises(copies.NotHere):
        modelstore.opened(studio.model)
    copy_all()
    assert (datastore.present(studio.asset) / "train" / "0.bin").stat().st_size == 3000
    modelstore.opened(studio.model).close()


def test_the_results_of_a_run_say_that_they_are_on_their_way(studio: Studio, store_folder: Path):
    copy_all()
    shutil.rmtree(runfiles.folder(studio.ended))
    assert listed(studio.ended) == Listed([], [ON_THEIR_WAY])
    copy_all()
    assert "model/final" in {file.path for file in files(studio.ended)}


def test_another_file_in_the_place_of_code_is_not_taken_for_it(studio: Studio, store_folder: Path):
    copy_all()
    sha256 = studio.ended.version.bundle.sha256
    place = store_folder / "bundles" / sha256
    evil = b"somebody else's code"
    (place / manifest.digest(evil)).write_bytes(evil)
    listed = Stored("content", len(evil), 0, 0, (Part(manifest.digest(evil), 0, len(evil)),))
    (place / "manifest").write_bytes(manifest.encode(manifest.Manifest("bundle", sha256, 0.0, (listed,))))
    (studio.home / "bundles" / f"{sha256}.zip").unlink()
    copies.want(Kind.BUNDLE, sha256, now=timezone.now())
    copy_all()
    assert not (studio.home / "bundles" / f"{sha256}.zip").exists()
    assert "another file" in StoreCopy.objects.get(key=sha256).error


def test_a_file_that_is_written_while_it_is_read_is_left_as_it_was_the_last_time(
    studio: Studio, store_folder: Path, project: Project, alice: User, monkeypatch: pytest.MonkeyPatch
):
    run = run_of(project, alice, "third", RunState.RUNNING, **{"journal.jsonl": b"1\n", "state.bin": b"first"})
    copy_all()
    read = copying._read

    def written_meanwhile(opened: int, size: int) -> bytes:
        """A script that writes at the very moment."""
        found = read(opened, size)
        for name in ("state.bin", "journal.jsonl"):
            with open(runfiles.folder(run) / name, "ab") as file:
                file.write(b"more\n")
        return found

    put(run, **{"state.bin": b"second", "journal.jsonl": b"1\n2\n"})
    StoreCopy.objects.filter(key=run.folder).update(copied_at=timezone.now() - HOUR)
    monkeypatch.setattr(copying, "_read", written_meanwhile)
    copy_all()
    monkeypatch.setattr(copying, "_read", read)
    shutil.rmtree(runfiles.folder(run))
    assert turns.bring(turns.opened(), Thing(Kind.RUN, run.folder), over=lambda: False)
    assert (runfiles.folder(run) / "state.bin").read_bytes() == b"first", "whole, if older"
    assert (runfiles.folder(run) / "journal.jsonl").read_bytes().startswith(b"1\n2\n"), "its beginning is good"


def test_a_run_that_is_logged_from_outside_begins_here_and_its_folder_is_asked_back(
    studio: Studio, store_folder: Path, project: Project, alice: User
):
    now = timezone.now()
    run = outside.begin_run(project, by=alice, name="elsewhere", began_at=now - HOUR, now=now)
    outside.log(run, outside.lines({("train", 1, now.timestamp()): {"loss": 1.0}}, now=now.timestamp()), now=now)
    TrainingRun.objects.filter(pk=run.pk).update(started_at=now - HOUR)
    copy_all()
    shutil.rmtree(runfiles.folder(run))
    with pytest.raises(copies.NotHere):
        outside.end_run(run, "completed", by=alice, at=now, now=now)
    copy_all()
    assert outside.end_run(run, "completed", by=alice, at=now, now=now)
    assert (runfiles.folder(run) / "journal.jsonl").read_text().count("\n") == 2


def test_a_run_that_never_began_has_nothing_to_copy_and_misses_nothing(studio: Studio, store_folder: Path, project: Project, alice: User):
    run = services.stop_run(cast.run(project, by=alice, name="never"), by=alice)
    TrainingRun.objects.filter(pk=run.pk).update(ended_at=timezone.now() - HOUR)
    copy_all()
    assert waits() == {}
    assert not StoreCopy.objects.exclude(error="").exists()
    copies.look_again()
    assert turns.bring(turns.opened(), Thing(Kind.RUN, run.folder, run=run.pk), over=lambda: False)
    assert not StoreCopy.objects.get(key=run.folder).absent


def test_a_run_whose_files_are_lost_on_both_sides_is_named(studio: Studio, store_folder: Path):
    shutil.rmtree(runfiles.folder(studio.ended))
    copy_all()
    assert "not in EDT_HOME" in StoreCopy.objects.get(key=studio.ended.folder).error


def test_a_run_that_the_store_has_not_got_begins_anew(studio: Studio, store_folder: Path):
    copy_all()
    shutil.rmtree(store_folder / "runs" / studio.suspended.folder)
    shutil.rmtree(runfiles.folder(studio.suspended))
    with pytest.raises(copies.NotHere):
        runfiles.make(studio.suspended)
    copy_all()
    assert runfiles.make(studio.suspended).is_dir(), "as it would without a store"


def test_nothing_is_waited_for_where_there_is_no_store(studio: Studio, settings: Any):
    settings.EDT_STORE = ""
    studio.burn()
    assert runfiles.make(studio.suspended).is_dir()
    with pytest.raises(bundles.BundleRefused, match="cannot be unpacked"):
        bundles.unpacked(studio.ended.version.bundle)
    assert turns.turn() is False
    assert not StoreCopy.objects.exists()


def test_files_that_are_missing_here_do_not_take_the_place_of_those_in_the_store(studio: Studio, store_folder: Path):
    copy_all()
    before = {path: path.read_bytes() for path in store_folder.rglob("*") if path.is_file()}
    studio.burn()
    copies.look_again()
    copy_all()
    assert {path: path.read_bytes() for path in store_folder.rglob("*") if path.is_file()} == before
    assert waits() == {}, "it is known that the store has them"


def test_a_studio_that_was_restored_reads_the_store_and_writes_there_when_it_is_told_to(studio: Studio, store_folder: Path, alice: User):
    copy_all()
    installation.bind(anew=True)  # as restoring a backup does
    services.delete_run(studio.ended, by=alice)
    cast.empty_trash()
    before = sorted(store_folder.rglob("*"))
    assert turns.turn() is False
    assert "another studio" in copies.state().error
    assert sorted(store_folder.rglob("*")) == before, "the studio that it was restored from may still be at work"
    shutil.rmtree(runfiles.folder(studio.suspended))
    thing = Thing(Kind.RUN, studio.suspended.folder)
    assert turns.bring(turns.opened(to_write=False), thing, over=lambda: False)
    turns.adopt()
    copy_all()
    assert not (store_folder / "runs" / studio.ended.folder).exists()


def test_of_another_store_than_before_nothing_is_believed(studio: Studio, store_folder: Path, settings: Any, tmp_path: Path):
    copy_all()
    settings.EDT_STORE = f"file://{tmp_path}/another"
    copy_all()
    names = [{path.relative_to(top).as_posix() for path in top.rglob("manifest")} for top in (store_folder, tmp_path / "another")]
    assert names[0] == names[1]


def test_a_checkpoint_that_a_policy_removes_is_gone_from_the_list_at_the_next_copy(studio: Studio, store_folder: Path):
    copy_all()
    row = retention.DroppedCheckpoint.objects.create(
        run=studio.ended,
        at=timezone.now(),
        step=1,
        epoch=1,
        paths=["model/train/model_epoch_1.pth"],
        size_bytes=1,
        reason="test",
    )
    into = os.open(studio.home / "tmp", os.O_RDONLY)
    retention.move(row.key.hex, into)
    os.close(into)
    assert waits() == {"run": 1}


def test_two_turns_at_once_are_one(studio: Studio, store_folder: Path):
    with turns.alone() as allowed:
        assert allowed
        assert turns.turn() is False
    assert not StoreCopy.objects.exists()


def test_a_full_disk_brings_nothing_back_and_says_so(studio: Studio, store_folder: Path, monkeypatch: pytest.MonkeyPatch):
    copy_all()
    studio.burn()
    usage = shutil.disk_usage(studio.home)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1000))
    copies.want(Kind.RUN, studio.ended.folder, now=timezone.now())
    copy_all()
    assert not runfiles.folder(studio.ended).exists()
    assert "MiB" in StoreCopy.objects.get(key=studio.ended.folder).error


@pytest.mark.parametrize("path", ["../x", "/x", "a//b", "a/../../x", ""])
def test_a_list_that_leads_out_of_its_folder_is_damaged(path: str):
    made = manifest.Manifest("run", "k", 0.0, (Stored(path, 0, 0, 0, ()),))
    with pytest.raises(manifest.Damaged):
        manifest.decode(manifest.encode(made), kind="run", key="k")


@pytest.mark.parametrize("change", [lambda m: ("asset", "k"), lambda m: ("run", "other")], ids=["kind", "key"])
def test_a_list_of_another_thing_is_damaged(change: Callable[[Any], tuple[str, str]]):
    made = manifest.Manifest("run", "k", 0.0, (Stored("a", 3, 0, 0, (Part("o", 0, 3),)),))
    kind, key = change(made)
    assert manifest.decode(manifest.encode(made), kind="run", key="k") == made
    with pytest.raises(manifest.Damaged):
        manifest.decode(manifest.encode(made), kind=kind, key=key)
