"""Folders that come to a joined machine over connections that break: real HTTP, the studio's own views, and a proxy that cuts."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from django.utils import timezone

from experiments.cluster import joining
from experiments.files import bundles, runfiles
from experiments.models import TrainingRun
from tests import cast
from tests.node.cutting import CuttingProxy
from tests.web.test_files_of_machines import run_on
from tests.web.test_request_limits import Server
from training_runtime.node import arriving, batches
from training_runtime.node.fetching import fetch_run, fetch_tree, forget_unused
from training_runtime.node.files import Files, Listed, Unreachable
from training_runtime.node.folders import TRASH_S, Folder, Folders
from training_runtime.node.messages import Hello, Welcome
from training_runtime.node.mirror import File

pytestmark = pytest.mark.django_db(transaction=True)
MIB = 1 << 20


@dataclass
class Machine:
    """`beta`, a run of it in the studio, and the way there."""

    home: Path
    run: TrainingRun
    files: Files
    proxy: CuttingProxy

    @property
    def there(self) -> Path:
        return runfiles.folder(self.run)

    def fetch(self) -> dict[str, bytes]:
        """The run's folder as it has come, by path."""
        folders = Folders(self.home)
        folder = Folder(self.run.pk, self.run.folder, joining.term_of(self.run))
        fetch_run(self.files, folders, folder, code=bundles.unpacked(self.run.version.bundle), say=lambda done, total: None)
        top = folders.path(folder.name)
        return {path.relative_to(top).as_posix(): path.read_bytes() for path in top.rglob("*") if path.is_file()}

    def fetch_until(self, passed: int) -> None:
        """An attempt whose connection ends after so many bytes of answers."""
        self.proxy.cut_after = passed
        with pytest.raises(Unreachable):
            self.fetch()
        self.proxy.cut_after, self.proxy.passed = None, 0
        self.proxy.asked.clear()


@pytest.fixture
def beta(transactional_db: None, home: Path, tmp_path: Path) -> Iterator[Machine]:
    alice = cast.person("alice")
    token, secret = joining.make("beta", slots=2, by=cast.person("dora", staff=True), now=timezone.now())
    welcome = joining.begin(token.pk, Hello("id", "boot"), address="10.0.0.7", now=timezone.now())
    assert isinstance(welcome, Welcome)
    run = run_on("beta", cast.shared_project(alice, editor=cast.person("bob"), viewer=cast.person("victor")), by=alice)
    here = tmp_path / "machine"
    for room in ("code", "assets", "runs"):
        (here / room).mkdir(parents=True)
    with Server() as server, CuttingProxy(server.port) as proxy:
        files = Files(proxy.url, secret, welcome.incarnation)
        yield Machine(here, run, files, proxy)
        files.close()


def test_a_folder_whose_connection_breaks_goes_on_where_it_stopped(beta: Machine):
    contents = {"checkpoint/engine.pt": os.urandom(4 * MIB), "model/big.pt": os.urandom(3 * MIB), "notes.txt": b"short"}
    write(beta.there, contents)
    beta.fetch_until(3 * MIB)
    assert not Folders(beta.home).path(beta.run.folder).exists(), "it is whole in its place or not there"
    beta.fetch_until(2 * MIB)
    assert beta.fetch() == contents
    assert beta.proxy.passed < 3 * MIB, "of the seven what was missing still"
    assert list((beta.home / "runs").glob(".*")) == [], "nothing of the attempts is left"
    times = {path: (beta.there / path).stat().st_mtime_ns for path in contents}
    assert {path: (Folders(beta.home).path(beta.run.folder) / path).stat().st_mtime_ns for path in contents} == times


def same_size_and_time(path: Path, content: bytes) -> None:
    before = path.stat()
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def longer(path: Path, content: bytes) -> None:
    path.write_bytes(content + b"more")


@pytest.mark.parametrize("change", [same_size_and_time, longer])
def test_half_of_one_content_is_never_gone_on_with_by_another(beta: Machine, change: Callable[[Path, bytes], None]):
    write(beta.there, {"checkpoint/engine.pt": b"a" * 4 * MIB})
    beta.fetch_until(2 * MIB)
    (half,) = (beta.home / "runs").glob(".arriving-*/checkpoint/engine.pt")
    assert MIB < half.stat().st_size < 4 * MIB
    change(beta.there / "checkpoint/engine.pt", b"b" * 4 * MIB)
    assert set(beta.fetch()["checkpoint/engine.pt"].rstrip(b"more")) == {ord("b")}


def test_a_file_that_changes_between_the_list_and_its_bytes_is_listed_again(beta: Machine, monkeypatch: pytest.MonkeyPatch):
    write(beta.there, {"checkpoint/engine.pt": b"a" * MIB})
    listed = beta.files.tree("runs", beta.run.folder)
    with monkeypatch.context() as late:
        late.setattr(beta.files, "tree", lambda *_, **__: listed)
        same_size_and_time(beta.there / "checkpoint/engine.pt", b"b" * MIB)
        with pytest.raises(Unreachable, match="another one by now"):
            beta.fetch()
    assert beta.fetch() == {"checkpoint/engine.pt": b"b" * MIB}


def test_what_is_gone_in_the_studio_does_not_come_back_by_an_earlier_attempt(beta: Machine):
    write(beta.there, {"a/b": b"x" * MIB, "gone": b"x" * MIB, "z": b"x" * MIB})
    beta.fetch_until(2 * MIB + MIB // 2)
    for path in ("gone", "a/b"):
        (beta.there / path).unlink()
    (beta.there / "a").rmdir()
    write(beta.there, {"a": b"a file now"})
    assert beta.fetch() == {"a": b"a file now", "z": b"x" * MIB}


def test_what_came_before_the_machine_was_started_anew_is_not_believed(beta: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    write(beta.there, {"checkpoint/engine.pt": b"a" * 4 * MIB})
    beta.fetch_until(2 * MIB)
    (half,) = (beta.home / "runs").glob(".arriving-*/checkpoint/engine.pt")
    half.write_bytes(bytes(half.stat().st_size))  # as after a loss of power
    (tmp_path / "boot").write_text("another start")
    monkeypatch.setattr(arriving, "_BOOT", tmp_path / "boot")
    assert beta.fetch() == {"checkpoint/engine.pt": b"a" * 4 * MIB}


def test_many_small_files_come_in_a_few_answers_and_those_that_came_stay(beta: Machine):
    contents = {f"many/{number}.txt": os.urandom(2000) for number in range(1200)}
    write(beta.there, contents)
    beta.fetch_until(1_500_000)
    came = len(list((beta.home / "runs").glob(".arriving-*/many/*")))
    assert came > 400
    assert beta.fetch() == contents
    assert len(beta.proxy.asked) < 5, beta.proxy.asked
    assert beta.proxy.passed < 1_700_000, "the list, and what was missing"


def test_a_tree_of_code_goes_on_too(beta: Machine):
    sha256 = beta.run.version.bundle.sha256
    code = bundles.unpacked(beta.run.version.bundle)
    (code / "weights.bin").write_bytes(content := os.urandom(3 * MIB))
    beta.proxy.cut_after = 2 * MIB
    with pytest.raises(Unreachable):
        fetch_tree(beta.files, beta.home, "code", sha256, say=lambda done, total: None)
    beta.proxy.cut_after, beta.proxy.passed = None, 0
    fetch_tree(beta.files, beta.home, "code", sha256, say=lambda done, total: None)
    assert (beta.home / "code" / sha256 / "weights.bin").read_bytes() == content
    assert beta.proxy.passed < 2 * MIB
    assert [path.name for path in (beta.home / "code").iterdir()] == [sha256]


def test_what_the_script_has_written_takes_the_place_of_its_code(beta: Machine):
    write(beta.there, {"_submitted_code/main/main.py": b"print('written anew')", "_submitted_code/main/made.txt": b"made"})
    come = beta.fetch()
    assert come["_submitted_code/main/main.py"] == b"print('written anew')"
    assert come["_submitted_code/main/made.txt"] == b"made"
    stored = bundles.unpacked(beta.run.version.bundle)
    assert set(come) >= {f"_submitted_code/main/{path.relative_to(stored)}" for path in stored.rglob("*.py")}, "beside the rest of it"


def test_what_came_of_a_run_that_went_elsewhere_is_deleted_after_a_day(beta: Machine):
    write(beta.there, {"checkpoint/engine.pt": b"a" * 4 * MIB})
    beta.fetch_until(2 * MIB)
    now = timezone.now().timestamp()
    forget_unused(beta.home, set(), now=now)
    assert len(list((beta.home / "runs").glob(".arriving-*"))) == 2
    forget_unused(beta.home, set(), now=now + TRASH_S + 60)
    assert list((beta.home / "runs").glob(".arriving-*")) == []


def test_a_studio_one_release_behind_gives_no_marks_and_is_asked_file_by_file(beta: Machine, monkeypatch: pytest.MonkeyPatch):
    contents = {f"{number}.txt": b"x" * 100 for number in range(5)} | {"big": os.urandom(4 * MIB)}
    write(beta.there, contents)
    asked = Files.tree
    monkeypatch.setattr(Files, "tree", lambda *given, **more: [Listed(each.file) for each in asked(*given, **more)])
    beta.fetch_until(2 * MIB)
    assert beta.fetch() == contents
    assert not any("batches" in line for line in beta.proxy.asked)
    assert beta.proxy.passed > 4 * MIB, "half a file without a mark is brought anew"


def test_batches_are_bounded_in_files_and_bytes_and_a_large_file_comes_alone():
    small = [Listed(File(f"{number}", 1000, 0), "m") for number in range(arriving.BATCH_FILES + 1)]
    large = [Listed(File("large", arriving.SMALL_BYTES + 1, 0), "m")]
    medium = [Listed(File(f"medium-{number}", arriving.SMALL_BYTES, 0), "m") for number in range(40)]
    named = [Listed(File(f"{number}".ljust(4000, "x"), 1, 0), "m") for number in range(60)]
    found = list(arriving.batches([*small, *large, *medium, *named]))
    assert sorted(each.file.path for batch in found for each in batch) == sorted(
        each.file.path for each in [*small, *large, *medium, *named]
    )
    assert all(len(batch) <= arriving.BATCH_FILES <= batches.MOST_FILES for batch in found)
    assert all(sum(each.file.size for each in batch) <= arriving.BATCH_BYTES for batch in found)
    assert all(sum(len(each.file.path) for each in batch) <= arriving.BATCH_NAMES for batch in found)
    assert large in found


def write(top: Path, contents: dict[str, bytes]) -> None:
    for name, content in contents.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_bytes(content)
