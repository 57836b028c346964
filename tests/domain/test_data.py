"""Data assets: what arrives in pieces is whole, what is hostile is refused, and a run reads it and nothing else."""

from __future__ import annotations

import errno
import hashlib
import io
import stat
import zipfile
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied
from django.http import Http404
from django.utils import timezone

from experiments import access, services
from experiments.cluster import desired, scheduling
from experiments.errors import DomainError
from experiments.files import datastore, pruning
from experiments.files.datastore import Part, WrongOffset
from experiments.models import DataAsset, DataUpload, Node, Project, User
from experiments.ops import installation
from tests import cast

pytestmark = pytest.mark.usefixtures("said")


def add(project: Project, by: User, *files: tuple[str, bytes], name: str = "digits") -> DataAsset:
    return services.add_data(project, by=by, name=name, files=[(path, len(data), io.BytesIO(data)) for path, data in files])


def refused(project: Project, by: User, *files: tuple[str, bytes]) -> str:
    with pytest.raises(DomainError) as error:
        add(project, by, *files)
    assert not DataAsset.objects.exists()
    assert not DataUpload.objects.exists()
    return str(error.value.fields["upload"][0])


def begun(project: Project, by: User, *parts: Part) -> DataUpload:
    return services.begin_upload(project, by=by, name="digits", parts=parts)


def digest(*data: bytes) -> Sequence[str]:
    return [hashlib.sha256(each).hexdigest() for each in data]


def test_files_are_kept_as_they_are_for_everybody_to_read(project: Project, bob: User, home: Path) -> None:
    asset = add(project, bob, ("train/a.txt", b"one"), ("b.bin", b"\0\1"), ("empty", b""))
    folder = datastore.root(asset)
    assert folder.parent == home / "assets"
    assert (folder / "train" / "a.txt").read_bytes() == b"one"
    assert (asset.files, asset.size_bytes) == (3, 5)
    assert stat.S_IMODE((folder / "train" / "a.txt").stat().st_mode) == 0o644
    assert {stat.S_IMODE(path.stat().st_mode) for path in (folder, folder / "train")} == {0o755}
    cast.empty_trash()
    assert cast.stored(home / "uploads") == []


def test_a_zip_that_comes_alone_is_unpacked_and_its_hash_is_kept(project: Project, bob: User) -> None:
    packed = cast.zipped({"digits/train.csv": "1,2\n", "digits/test.csv": "3\n", "__MACOSX/x": "no"}).getvalue()
    asset = add(project, bob, ("digits.zip", packed))
    assert sorted(path.name for path in (datastore.root(asset) / "digits").iterdir()) == ["test.csv", "train.csv"]
    assert asset.sha256 == hashlib.sha256(packed).hexdigest()
    assert asset.files == 2


def test_two_zips_are_kept_packed(project: Project, bob: User) -> None:
    packed = cast.zipped({"a": "1"}).getvalue()
    asset = add(project, bob, ("a.zip", packed), ("b.zip", packed))
    assert {path.name for path in datastore.root(asset).iterdir()} == {"a.zip", "b.zip"}


@pytest.mark.parametrize("path", ["../out", "/etc/passwd", "a//b", "a/./b", "C:x", "a\\b", "x\nz", "a" * 300, "", "a/.."])
def test_a_path_that_leads_out_or_cannot_be_shown_is_refused(path: str, project: Project, bob: User) -> None:
    assert refused(project, bob, (path, b"x"))


def test_names_that_clash_are_refused(project: Project, bob: User) -> None:
    assert "capitals" in refused(project, bob, ("Data", b""), ("data", b""))
    assert "twice" in refused(project, bob, ("a", b""), ("a", b""))
    assert "both a file and a folder" in refused(project, bob, ("a", b""), ("a/b", b""))


def link(name: str, target: str) -> tuple[zipfile.ZipInfo, bytes]:
    info = zipfile.ZipInfo(name)
    info.create_system, info.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
    return info, target.encode()


def packed(*entries: tuple[zipfile.ZipInfo | str, bytes]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for entry, data in entries:
            archive.writestr(entry, data)
    return content.getvalue()


def test_a_hostile_zip_is_refused_with_the_file_that_is_wrong(project: Project, bob: User, home: Path) -> None:
    assert "leads out" in refused(project, bob, ("x.zip", packed(("../../evil", b"x"))))
    assert "symbolic link" in refused(project, bob, ("x.zip", packed(link("l", "/etc/passwd"))))
    assert "200 times" in refused(project, bob, ("x.zip", packed(("zeros", bytes(40 << 20)))))
    assert "not a zip" in refused(project, bob, ("x.zip", b"hello"))
    assert "no files" in refused(project, bob, ("x.zip", packed(("a/", b""))))
    cast.empty_trash()
    assert cast.stored(home / "assets", home / "uploads") == []


def test_too_much_is_refused_before_a_byte_is_sent(project: Project, bob: User, settings: Any) -> None:
    settings.EDT_MAX_DATA_BYTES = 10
    assert "at most" in refused(project, bob, ("a", b"x" * 11))
    settings.EDT_MAX_DATA_BYTES = 1 << 60
    with pytest.raises(DomainError, match="disk is full"):
        begun(project, bob, Part("a", 1 << 59))


def test_pieces_arrive_in_turn_once_and_are_gone_on_with(project: Project, bob: User) -> None:
    upload = begun(project, bob, Part("a.txt", 6), Part("b.txt", 1))
    assert services.receive(upload, number=0, offset=0, body=io.BytesIO(b"one")) == 3
    for offset in (0, 2, 4):  # again, overlapping, with a gap
        with pytest.raises(WrongOffset) as wrong:
            services.receive(upload, number=0, offset=offset, body=io.BytesIO(b"two"))
        assert wrong.value.size_bytes == 3
    assert datastore.received(upload.key, 2) == [3, 0]
    with pytest.raises(DomainError, match="has not arrived in full"):
        services.finish_upload(upload, by=bob, hashes=[None, None])
    services.receive(upload, number=0, offset=3, body=io.BytesIO(b"two"))
    services.receive(upload, number=1, offset=0, body=io.BytesIO(b"!"))
    asset = services.finish_upload(upload, by=bob, hashes=digest(b"onetwo", b"!"))
    assert (datastore.root(asset) / "a.txt").read_bytes() == b"onetwo"
    assert services.finish_upload(upload, by=bob, hashes=[None, None]) == asset
    assert DataAsset.objects.count() == 1


def test_a_piece_that_is_too_long_changes_nothing(project: Project, bob: User) -> None:
    upload = begun(project, bob, Part("a.txt", 4))
    with pytest.raises(DomainError, match="longer than"):
        services.receive(upload, number=0, offset=0, body=io.BytesIO(b"12345"))
    assert datastore.received(upload.key, 1) == [0]


def test_a_full_disk_is_said_in_words_and_what_arrived_before_stays(project: Project, bob: User, monkeypatch: pytest.MonkeyPatch) -> None:
    upload = begun(project, bob, Part("a.txt", 6))
    services.receive(upload, number=0, offset=0, body=io.BytesIO(b"one"))

    class Full(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(DomainError, match="disk is full"):
        services.receive(upload, number=0, offset=3, body=Full())
    assert datastore.received(upload.key, 1) == [3]


def test_what_did_not_arrive_as_it_was_sent_is_refused(project: Project, bob: User, home: Path) -> None:
    upload = begun(project, bob, Part("a.txt", 3))
    services.receive(upload, number=0, offset=0, body=io.BytesIO(b"one"))
    with pytest.raises(DomainError, match="did not arrive as it was sent"):
        services.finish_upload(upload, by=bob, hashes=digest(b"two"))
    assert list((home / "assets").iterdir()) == []
    assert not DataUpload.objects.exists(), "to go on would never help"


@pytest.mark.parametrize(
    ("content", "why"), [(b"", "digits.zip is empty"), (b"Rar!", "not a zip file"), (b"PK\5\6" + bytes(18), "holds no files")]
)
def test_a_zip_that_cannot_be_taken_is_given_up(content: bytes, why: str, project: Project, bob: User) -> None:
    upload = begun(project, bob, Part("digits.zip", len(content)))
    if content:  # as browsers send it
        services.receive(upload, number=0, offset=0, body=io.BytesIO(content))
    with pytest.raises(DomainError, match=why):
        services.finish_upload(upload, by=bob, hashes=[None])
    assert not DataUpload.objects.exists()


def test_a_finish_that_was_killed_between_files_and_database_is_done_again(project: Project, bob: User) -> None:
    upload = begun(project, bob, Part("a.txt", 3))
    services.receive(upload, number=0, offset=0, body=io.BytesIO(b"one"))
    datastore.store_upload(upload.key, [Part("a.txt", 3)], [None])
    asset = services.finish_upload(upload, by=bob, hashes=digest(b"one"))
    assert (asset.files, asset.size_bytes, asset.sha256) == (1, 3, digest(b"one")[0])


def test_only_who_began_an_upload_goes_on_with_it(project: Project, alice: User, bob: User, victor: User, charlie: User) -> None:
    upload = begun(project, bob, Part("a.txt", 3))
    assert access.data_upload(bob, upload.pk) == upload
    for person, error in ((alice, PermissionDenied), (victor, PermissionDenied), (charlie, Http404)):
        with pytest.raises(error):
            access.data_upload(person, upload.pk)


def test_a_run_reads_the_data_asset_that_its_experiment_names(project: Project, alice: User, node: Node, home: Path) -> None:
    asset = add(project, alice, ("train/a.txt", b"one"))
    version = cast.definition(project, by=alice)
    for folder in ("", "train"):
        made = services.create_experiment(project, by=alice, name="x", versions=[version], data_asset=asset, source_folder=folder)
        services.run_experiment(made, by=alice)
    scheduling.tick(timezone.now())
    found = [each.spec.data_dir for each in desired.desired_state(node, now=timezone.now()).runs]
    assert found == [str(datastore.root(asset)), str(datastore.root(asset) / "train")]


def test_an_experiment_reads_only_data_of_its_project_and_folders_that_are_there(project: Project, alice: User, charlie: User) -> None:
    mine, version = add(project, alice, ("a", b"1")), cast.definition(project, by=alice)
    theirs = add(services.create_project(by=charlie, name="Theirs"), charlie, ("a", b"1"))
    for changes, field in (({"data_asset": theirs}, "data_asset"), ({"data_asset": mine, "source_folder": "b"}, "source_folder"),
                           ({"data_asset": mine, "source_folder": ".."}, "source_folder")):  # fmt: skip
        with pytest.raises(DomainError) as error:
            services.create_experiment(project, by=alice, name="x", versions=[version], **changes)
        assert set(error.value.fields) == {field}


def test_data_that_an_experiment_reads_cannot_be_deleted_and_other_data_goes_with_its_files(project: Project, alice: User) -> None:
    asset, version = add(project, alice, ("a", b"1")), cast.definition(project, by=alice)
    experiment = services.create_experiment(project, by=alice, name="reader", versions=[version], data_asset=asset)
    with pytest.raises(DomainError, match="reader reads it"):
        services.delete_asset(asset, by=alice)
    services.delete_experiment(experiment, by=alice)
    folder = datastore.root(asset)
    assert folder.is_dir()
    services.delete_asset(asset, by=alice)
    cast.empty_trash()
    assert not folder.exists()
    assert not DataAsset.objects.exists()


def test_data_that_is_deleted_before_its_upload_was_cleared_away_stays_in_the_trash_like_any(
    project: Project, alice: User, home: Path
) -> None:
    asset, now = add(project, alice, ("a", b"1")), timezone.now()
    services.delete_asset(asset, by=alice)
    installation.bind()
    for seconds in range(5):
        pruning.clear(now + timedelta(seconds=seconds))
    assert not datastore.root(asset).exists()
    assert [path.read_bytes() for path in (home / "assets" / pruning.TRASH).glob("*/a")] == [b"1"]
    assert cast.stored(home / "uploads") == []
    cast.empty_trash()
    assert list((home / "assets" / pruning.TRASH).iterdir()) == []


def test_a_project_takes_its_data_and_its_uploads_along(project: Project, alice: User, home: Path) -> None:
    add(project, alice, ("a", b"1"))
    services.receive(begun(project, alice, Part("b", 2)), number=0, offset=0, body=io.BytesIO(b"1"))
    services.delete_project(project, by=alice)
    cast.empty_trash()
    assert cast.stored(home / "assets", home / "uploads") == []


def test_an_upload_that_nobody_goes_on_with_is_removed_after_a_week(project: Project, bob: User, home: Path) -> None:
    upload, never = begun(project, bob, Part("a", 3)), begun(project, bob, Part("b", 3))
    services.receive(upload, number=0, offset=0, body=io.BytesIO(b"1"))
    now = timezone.now()
    installation.bind()
    pruning.prune(now + timedelta(days=6))
    assert DataUpload.objects.count() == 2
    pruning.prune(now + timedelta(days=8))
    assert not DataUpload.objects.filter(pk__in=[upload.pk, never.pk]).exists()
    cast.empty_trash()
    assert cast.stored(home / "uploads") == []
