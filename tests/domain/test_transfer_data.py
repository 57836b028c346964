"""Versions of data travel as what they are: of one data set, with their numbers, each read by what reads it."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from experiments import services
from experiments.files import datastore
from experiments.models import DataAsset, Project, User
from tests import cast
from tests.transferred import Archive, exported, imported, refused

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("said")]


def add(project: Project, by: User, content: bytes, next_of: DataAsset | None = None, note: str = "") -> DataAsset:
    files = [("a.csv", len(content), io.BytesIO(content))]
    return services.add_data(project, by=by, name="digits", note=note, next_of=next_of, files=files)


@pytest.fixture
def archive(project: Project, alice: User) -> Archive:
    """Of versions 1 and 2 of a data set, whose third was deleted; an experiment reads the first."""
    first = add(project, alice, b"one")
    add(project, alice, b"two", first, "all of it")
    services.delete_asset(add(project, alice, b"three", first), by=alice)
    services.create_experiment(project, by=alice, name="reads", data_asset=first, versions=[cast.definition(project, by=alice)])
    cast.empty_trash()
    return Archive.of(exported(project))


def made_of(archive: Archive, by: User) -> Project:
    order = imported(archive.packed(), by)
    assert order.project is not None, order.notes
    return order.project


def test_versions_of_a_data_set_are_there_again_and_no_number_is_given_twice(archive: Archive, charlie: User) -> None:
    made = made_of(archive, charlie)
    first, second = made.data_assets.order_by("version")
    assert [(str(each), each.note) for each in (first, second)] == [("digits v1", ""), ("digits v2", "all of it")]
    assert first.series == second.series
    assert (datastore.root(second) / "a.csv").read_bytes() == b"two"
    assert made.experiments.get().data_asset == first
    assert add(made, charlie, b"four", first).version == 4
    with pytest.raises(Exception, match="the newest version"):
        add(made, charlie, b"four", first)


def test_an_archive_of_before_there_were_versions_is_taken_in(archive: Archive, charlie: User) -> None:
    for each in archive.manifest["data"]:
        for field in ("series", "version", "last_version", "note"):
            del archive.lists[each["list"]][field]
    assets = made_of(archive, charlie).data_assets.all()
    assert [str(each) for each in assets] == ["digits v1", "digits v1"]
    assert len({each.series_id for each in assets}) == 2


def test_two_versions_of_a_number_or_of_two_names_are_refused(archive: Archive, charlie: User, home: Path) -> None:
    archive.data()["version"] = 2
    assert "several versions 2" in refused(archive.packed(), charlie, home)
    archive.data().update(version=1, name="letters")
    assert "several names" in refused(archive.packed(), charlie, home)
