"""Versions of data sets: each has a number of its own that no other ever gets, and what reads one goes on reading that one."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from django.utils import timezone

from experiments import services, triggers
from experiments.errors import DomainError
from experiments.files import datastore
from experiments.files.datastore import Part
from experiments.models import DataAsset, DataSeries, DataUpload, Experiment, Project, Trigger, User
from tests import cast
from tests.domain.test_concurrency import at_once, failures

pytestmark = pytest.mark.usefixtures("said")


def add(project: Project, by: User, content: bytes, *, next_of: DataAsset | None = None, name: str = "digits", note: str = "") -> DataAsset:
    files = [("a.csv", len(content), io.BytesIO(content))]
    return services.add_data(project, by=by, name=name, note=note, next_of=next_of, files=files)


def sent(project: Project, by: User, content: bytes, *, next_of: DataAsset | None = None) -> DataUpload:
    """An upload that has arrived in full."""
    upload = services.begin_upload(project, by=by, name="digits", next_of=next_of, parts=[Part("a.csv", len(content))])
    services.receive(upload, number=0, offset=0, body=io.BytesIO(content))
    return upload


def numbers(asset: DataAsset) -> list[int]:
    return sorted(DataAsset.objects.filter(series=asset.series_id).values_list("version", flat=True))


def content(asset: DataAsset) -> bytes:
    return (datastore.root(asset) / "a.csv").read_bytes()


@pytest.fixture
def first(project: Project, bob: User) -> DataAsset:
    return add(project, bob, b"one")


def test_the_next_version_has_the_name_of_its_data_set_and_files_of_its_own(first: DataAsset, project: Project, alice: User) -> None:
    second = add(project, alice, b"two", next_of=first, name="ignored", note="  twice\nas many ")
    assert (str(first), str(second)) == ("digits v1", "digits v2")
    assert (second.series, second.note, second.created_by) == (first.series, "twice as many", alice)
    assert (content(first), content(second)) == (b"one", b"two")
    other = add(project, alice, b"one")
    assert (other.version, other.series == first.series) == (1, False), "of the same name, and a data set of its own"


def test_any_version_names_its_data_set(first: DataAsset, project: Project, bob: User) -> None:
    second = add(project, bob, b"two", next_of=first)
    assert [add(project, bob, text, next_of=of).version for text, of in ((b"three", first), (b"four", second))] == [3, 4]


def test_the_bytes_of_the_newest_version_are_refused_and_those_of_an_older_one_are_not(
    first: DataAsset, project: Project, bob: User, home: Path
) -> None:
    add(project, bob, b"two", next_of=first)
    with pytest.raises(DomainError) as refused:
        add(project, bob, b"two", next_of=first)
    assert refused.value.fields == {"upload": ["These are the files of digits v2, the newest version: there is nothing new to keep."]}
    assert not DataUpload.objects.exists()
    cast.empty_trash()
    assert len(cast.stored(home / "assets")) == 2
    assert add(project, bob, b"one", next_of=first).version == 3, "back to what it was"


def test_an_upload_of_what_there_is_already_is_given_up(first: DataAsset, project: Project, bob: User, home: Path) -> None:
    upload = sent(project, bob, b"one", next_of=first)
    with pytest.raises(DomainError, match="the newest version"):
        services.finish_upload(upload, by=bob, hashes=[None])
    assert not DataUpload.objects.exists()
    cast.empty_trash()
    assert [path.name for path in cast.stored(home / "assets", home / "uploads")] == [first.key.hex]


def test_a_note_is_one_line_that_is_not_too_long(first: DataAsset, project: Project, bob: User) -> None:
    with pytest.raises(DomainError) as refused:
        add(project, bob, b"two", next_of=first, note="x" * 201)
    assert set(refused.value.fields) == {"note"}
    assert numbers(first) == [1]


def test_an_upload_that_is_finished_again_is_the_same_version(first: DataAsset, project: Project, bob: User) -> None:
    upload = sent(project, bob, b"two", next_of=first)
    made = [services.finish_upload(upload, by=bob, hashes=[None]) for _ in range(2)]
    assert made[0] == made[1]
    assert numbers(first) == [1, 2]


def test_a_rename_is_of_all_versions_and_of_what_is_under_way(first: DataAsset, project: Project, bob: User) -> None:
    upload, other = sent(project, bob, b"two", next_of=first), add(project, bob, b"one")
    services.update_asset(first, by=bob, name="letters", description="26 of them")
    assert DataUpload.objects.get().name == "letters"
    second = services.finish_upload(upload, by=bob, hashes=[None])
    assert (str(second), second.description) == ("letters v2", "26 of them")
    services.update_asset(second, by=bob, name="signs", description="")
    assert set(DataAsset.objects.filter(series=first.series).values_list("name", "description")) == {("signs", "")}
    other.refresh_from_db()
    assert other.name == "digits"


def test_deleting_a_version_deletes_nothing_else_and_its_number_is_not_given_again(
    first: DataAsset, project: Project, bob: User, home: Path
) -> None:
    second, other = add(project, bob, b"two", next_of=first), add(project, bob, b"two", name="other")
    services.delete_asset(second, by=bob)
    cast.empty_trash()
    assert set(DataAsset.objects.all()) == {first, other}
    assert {path.name for path in cast.stored(home / "assets")} == {first.key.hex, other.key.hex}
    assert (content(first), content(other)) == (b"one", b"two")
    third = add(project, bob, b"two", next_of=first)
    assert (third.version, numbers(first)) == (3, [1, 3])
    services.delete_asset(first, by=bob)
    assert numbers(third) == [3]


def test_all_versions_go_at_once_or_none_of_them(first: DataAsset, project: Project, alice: User, home: Path) -> None:
    second, other = add(project, alice, b"two", next_of=first), add(project, alice, b"three", name="other")
    reads = services.create_experiment(project, by=alice, name="reader", versions=[cast.definition(project, by=alice)], data_asset=second)
    with pytest.raises(DomainError, match="The experiment reader reads v2"):
        services.delete_versions(first, by=alice)
    cast.empty_trash()
    assert (numbers(first), content(first), content(second)) == ([1, 2], b"one", b"two")
    services.delete_experiment(reads, by=alice)
    services.delete_versions(first, by=alice)
    cast.empty_trash()
    assert list(DataAsset.objects.all()) == [other]
    assert list(DataSeries.objects.all()) == [other.series]
    assert {path.name for path in cast.stored(home / "assets")} == {other.key.hex}


def test_a_version_that_an_experiment_reads_stays_and_newer_ones_go(first: DataAsset, project: Project, alice: User) -> None:
    second = add(project, alice, b"two", next_of=first)
    reads = services.create_experiment(project, by=alice, name="reader", versions=[cast.definition(project, by=alice)], data_asset=first)
    with pytest.raises(DomainError, match="reader reads it"):
        services.delete_asset(first, by=alice)
    services.delete_asset(second, by=alice)
    reads.refresh_from_db()
    assert reads.data_asset == first


def test_an_upload_outlives_its_data_set_as_one_of_its_own(first: DataAsset, project: Project, bob: User) -> None:
    upload = sent(project, bob, b"two", next_of=first)
    services.delete_versions(first, by=bob)
    upload.refresh_from_db()
    made = services.finish_upload(upload, by=bob, hashes=[None])
    assert (str(made), numbers(made)) == ("digits v1", [1])


def test_a_new_version_is_new_data_for_the_triggers_of_its_name(first: DataAsset, project: Project, alice: User, bob: User) -> None:
    version = cast.definition(project, by=alice)
    old = services.create_experiment(project, by=alice, name="reader", versions=[version], data_asset=first)
    services.create_trigger(project, by=alice, event=Trigger.Event.DATA, experiment=old, data_name="digits", now=timezone.now())
    second = add(project, bob, b"two", next_of=first)
    triggers.pull_all(timezone.now())
    made = Experiment.objects.exclude(pk=old.pk).get()
    assert (made.data_asset, made.name) == (second, "reader (digits v2)")


@pytest.mark.django_db(transaction=True)
def test_uploads_that_are_finished_at_once_get_numbers_of_their_own(project: Project, bob: User) -> None:
    first = add(project, bob, b"one")
    uploads = [sent(project, bob, text, next_of=first) for text in (b"two", b"three", b"four")]

    def finish(upload: DataUpload) -> Callable[[], object]:
        return lambda: services.finish_upload(DataUpload.objects.get(pk=upload.pk), by=bob, hashes=[None]).version

    results = at_once(*[finish(upload) for upload in uploads])
    assert failures(results) == []
    assert sorted(map(int, map(str, results))) == [2, 3, 4]
    assert numbers(first) == [1, 2, 3, 4]


@pytest.mark.django_db(transaction=True)
def test_one_upload_that_is_finished_twice_at_once_is_one_version(project: Project, bob: User) -> None:
    first = add(project, bob, b"one")
    upload, meet = sent(project, bob, b"two", next_of=first), threading.Barrier(2)

    def finish() -> object:
        mine = DataUpload.objects.get(pk=upload.pk)
        meet.wait(timeout=20)
        return services.finish_upload(mine, by=bob, hashes=[None]).pk

    results = at_once(finish, finish)
    assert failures(results) == []
    assert len(set(results)) == 1
    assert numbers(first) == [1, 2]
