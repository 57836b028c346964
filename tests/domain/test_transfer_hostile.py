"""Archives of projects that somebody made to do harm, or that were damaged: each is refused with a sentence, and nothing of it stays."""

from __future__ import annotations

import hashlib
import stat
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from experiments.models import (
    Bundle,
    ClusterRules,
    DefinitionVersion,
    Environment,
    MetricSeries,
    Project,
    ProjectImport,
    TrainingRun,
    User,
)
from experiments.transfer import format
from tests import cast, transferred
from tests.conftest import SentMessages
from tests.transferred import Archive, imported, refused, send
from training_runtime import journal

pytestmark = pytest.mark.usefixtures("said")
State = ProjectImport.State
FUTURE = "2999-01-01T00:00:00+00:00"
HOSTILE_CODE = cast.zipped({"../../evil.py": "x"}).getvalue()


@pytest.fixture
def packed(project: Project, alice: User, said: SentMessages) -> bytes:
    return transferred.small(project, by=alice)


@pytest.fixture
def archive(packed: bytes) -> Archive:
    return Archive.of(packed)


def test_the_archive_of_these_tests_is_taken_in_as_it_is(archive: Archive, charlie: User) -> None:
    assert imported(archive.packed(compressed=True), charlie).state == State.DONE


Change = Callable[[Archive], None]


def _set(*names: Any, to: Any) -> Change:
    """A field of the manifest, by its way there."""

    def change(archive: Archive) -> None:
        place: Any = archive.manifest
        for name in names[:-1]:
            place = place[name]
        place[names[-1]] = to

    return change


def _run(**fields: Any) -> Change:
    return lambda archive: archive.run().update(fields)


def _git(**fields: str) -> Change:
    return lambda archive: archive.manifest["definitions"][0]["versions"][0].update(fields)


def _file(path: str, *, entry: str = "runs/1/odd") -> Change:
    return lambda archive: archive.put(archive.run(), path, b"x", entry=entry)


def _twice(what: str) -> Change:
    return lambda archive: archive.manifest[what].append(archive.manifest[what][0])


def _history(**fields: Any) -> Change:
    return lambda archive: archive.run()["history"][0].update(fields)


def _weights(**fields: Any) -> Change:
    def change(archive: Archive) -> None:
        next(each for each in archive.run()["files"] if each["path"] == "model/weights.bin").update(fields)

    return change


def _code(content: bytes) -> Change:
    def change(archive: Archive) -> None:
        name = next(name for name in archive.entries if name.startswith("code/"))
        archive.entries[name] = content

    return change


def _another_code(content: bytes) -> Change:
    """With a hash that fits."""

    def change(archive: Archive) -> None:
        digest = hashlib.sha256(content).hexdigest()
        archive.entries[f"code/{digest}.zip"] = content
        archive.manifest["definitions"][0]["versions"][0]["code"] = digest

    return change


def _gone(name: str) -> Change:
    def change(archive: Archive) -> None:
        for each in [each for each in archive.entries if each.startswith(name)]:
            del archive.entries[each]

    return change


CHANGES: dict[str, tuple[Change, str]] = {
    "another format": (_set("format", to="something else"), "This is not the archive of a project"),
    "a format of the future": (_set("version", to=2), "this studio reads format 1: update this studio"),
    "a version that is no number": (_set("version", to=[1]), "update this studio"),
    "a field that is missing": (lambda archive: archive.manifest.pop("experiments"), "is not of the form"),
    "a field of another kind": (_set("definitions", 0, "name", to=5), "is not of the form"),
    "no name": (_set("name", to="  "), "Give a name."),
    "a name with control characters": (_set("name", to="a\u0007b"), "control character"),
    "half a character": (_set("description", to="\ud800"), "holds characters that no text has"),
    "a NUL": (_set("definitions", 0, "description", to="a\0b"), "holds characters that no text has"),
    "a name that is too long": (_set("experiments", 0, "name", to="n" * 200), "use at most 120"),
    "a definition twice": (_twice("definitions"), "two training definitions with the number"),
    "an experiment twice": (_twice("experiments"), "two experiments with the number"),
    "a run twice": (_twice("runs"), "two runs with the number"),
    "data twice": (_twice("data"), "two data assets with the number"),
    "a definition without versions": (_set("definitions", 0, "versions", to=[]), "has no version"),
    "code that is not there": (_gone("code/"), "The archive has no code/"),
    "code that was changed": (_code(cast.zipped({"main.py": "import os"}).getvalue()), "is not what its hash says"),
    "code that leads out": (_another_code(HOSTILE_CODE), "leads out of the folder"),
    "code without a script": (_another_code(cast.zipped({"a.txt": "x"}).getvalue()), "holds no Python file"),
    "a hash that leads out": (_set("definitions", 0, "versions", 0, "code", to="../" * 10), "is not what its hash says"),
    "a framework of nobody": (_set("definitions", 0, "versions", 0, "framework", to="caffe"), "Choose one of: PyTorch"),
    "a million slots": (_set("definitions", 0, "versions", 0, "max_slots", to=1_000_000), "give a whole number from 1 to 4096"),
    "a command of a shell": (_set("definitions", 0, "versions", 0, "command", to="main.py; rm -rf /"), "is not a Python file"),
    "a run of a command that is none": (_run(command='main.py "'), "quotation mark without its partner"),
    "a repository of no scheme": (_git(git_address="javascript:alert(1)//x"), "cannot be stored here"),
    "a repository with a password": (_git(git_address="https://a:b@example.org/x.git"), "Leave name and password out"),
    "a commit that is none": (_git(git_address="https://example.org/x.git", git_commit="../../x"), "is no commit of git"),
    "a script that leads out": (_set("experiments", 0, "global_command", to="../../evil.py"), "is not inside the zip"),
    "a data folder that leads out": (_set("experiments", 0, "source_folder", to="../../etc"), "is outside the data"),
    "an experiment of no code": (_set("experiments", 0, "parts", 0, "version", to=9), "runs code that the archive has not"),
    "an experiment of no data": (_set("experiments", 0, "data", to=999), "reads data that the archive has not"),
    "a variable of the studio's own": (_set("variables", to=[{"name": "LD PRELOAD", "value": "x"}]), "LD PRELOAD"),
    "a variable twice": (_set("variables", to=[{"name": "A", "value": "x"}] * 2), "has a variable twice"),
    "a variable of the studio's workers": (_set("variables", to=[{"name": "RANK", "value": "1"}]), "is set by the studio"),
    "a list elsewhere": (_set("runs", 0, "list", to="../../secrets/secret_key"), "The archive calls a list"),
    "a run in no state": (_run(state="eaten"), "is not of the form"),
    "a run that lives": (_run(state="running"), "is not of the form"),
    "a history of strange states": (_history(new="eaten"), "which this studio does not know"),
    "a run of no experiment": (_run(experiment=999), "that the archive has not"),
    "a run of another number": (_run(number=999), "is of another thing than the manifest says"),
    "a run in the future": (_run(ended_at=FUTURE), "check the clocks of both studios"),
    "a history in the future": (_history(at=FUTURE), "check the clocks of both studios"),
    "a time that is none": (_run(submitted_at="yesterday"), "is no time with a time zone"),
    "a time without a zone": (_run(submitted_at="2024-01-01T00:00:00"), "is no time with a time zone"),
    "an experiment in the future": (_set("experiments", 0, "at", to=FUTURE), "check the clocks of both studios"),
    "a priority that is none": (_run(priority=10**30), "give a whole number from 1 to 10000"),
    "a number that no database has": (_run(lines_of=10**30), "is not possible"),
    "an exit code that no database has": (_run(exit_code=2**40), "is not possible"),
    "too many tags": (_run(tags=[f"t{n}" for n in range(50)]), "tags are too many"),
    "a long note": (_run(note="n" * 10_000), "use at most 4000"),
    "a file that leads out": (_file("../../../evil"), "which no run may have"),
    "a file with an absolute path": (_file("/etc/passwd"), "which no run may have"),
    "a file of the engine's own": (_file("checkpoint/.peers"), "which no run may have"),
    "a file whose name has a line break": (_file("a\nb"), "which no run may have"),
    "a file that is a folder too": (_file("model"), "is both a file and a folder"),
    "an entry of another run's": (_weights(entry="runs/999/x"), "The archive has no runs/999/x"),
    "an entry that is no file of a run": (_weights(entry="manifest.json"), "is named twice in the archive, or is no file"),
    "an entry that leads out": (_weights(entry="runs/../../../../secrets/secret_key"), "The archive has no"),
    "a wrong hash": (_weights(sha256="0" * 64), "did not arrive as it was exported"),
    "a wrong size": (_weights(size_bytes=99), "did not arrive as it was exported"),
    "data without files": (lambda archive: archive.data().update(files=[]), "has no files"),
    "a version of data that is none": (lambda archive: archive.data().update(version=0), "0 is not possible"),
    "the last version of data that no number follows": (lambda archive: archive.data().update(last_version=2**31 - 1), "is not possible"),
    "a note of many lines on data": (lambda archive: archive.data().update(note="n" * 201), "use at most 200"),
    "data that leads out": (lambda archive: archive.data()["files"][0].update(path="../../evil"), "leads out of the folder"),
}  # fmt: skip


@pytest.mark.parametrize("what", CHANGES)
def test_what_an_archive_says_is_not_believed(what: str, archive: Archive, charlie: User, home: Path) -> None:
    change, says = CHANGES[what]
    change(archive)
    assert says in refused(archive.packed(), charlie, home)


def _link(zipped: zipfile.ZipFile) -> None:
    info = zipfile.ZipInfo("runs/1/link")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    zipped.writestr(info, "/etc/passwd")


def _device(zipped: zipfile.ZipFile) -> None:
    info = zipfile.ZipInfo("runs/1/pipe")
    info.external_attr = (stat.S_IFIFO | 0o777) << 16
    zipped.writestr(info, "")


def _again(zipped: zipfile.ZipFile) -> None:
    with pytest.warns(UserWarning, match="Duplicate name"):
        zipped.writestr("manifest.json", "{}")


ENTRIES: dict[str, tuple[Callable[[zipfile.ZipFile], None], str]] = {
    "a way out": (lambda zipped: zipped.writestr("../../../evil.py", "x"), "leads out of the folder"),
    "an absolute path": (lambda zipped: zipped.writestr("/etc/cron.d/evil", "x"), "is an absolute path"),
    "a link": (_link, "is a symbolic link"),
    "a pipe": (_device, "is a device or another special file"),
    "the manifest twice": (_again, "is in the zip twice"),
    "names that clash": (lambda zipped: zipped.writestr("MANIFEST.json", "x"), "differ only in capitals"),
    "a bomb": (lambda zipped: zipped.writestr("runs/1/zeros", bytes(64 << 20), zipfile.ZIP_DEFLATED), "times its size"),
}


@pytest.mark.parametrize("what", ENTRIES)
def test_what_no_zip_may_have_is_refused(what: str, archive: Archive, charlie: User, home: Path) -> None:
    more, says = ENTRIES[what]
    assert says in refused(archive.packed(more=more), charlie, home)
    assert not (home.parent / "evil.py").exists()


@pytest.mark.parametrize(
    "text", [b"{", b"[]", b"\xff\xfe", b'{"format": "edt-studio project", "version": 1}', b"[" * 200_000, b'{"a": ' * 100_000, b""]
)
@pytest.mark.parametrize("which", ["manifest.json", "run"])
def test_json_that_is_none_is_said(text: bytes, which: str, archive: Archive, charlie: User, home: Path) -> None:
    name = archive.manifest["runs"][0]["list"] if which == "run" else which
    assert "xport" in refused(archive.packed(texts={name: text}), charlie, home)


@pytest.mark.parametrize(
    ("sent", "says"),
    [
        (b"GIF89a", "is not a zip file"),
        (cast.zipped({"main.py": "x"}).getvalue(), "or not all of it: it has no manifest.json"),
        (b"PK\x05\x06" + struct.pack("<4H2LH", 0, 0, 9, 9, 0xFFFFFFF, 0, 0), "table of contents"),
    ],
)
def test_what_is_no_archive_is_said(sent: bytes, says: str, charlie: User, home: Path) -> None:
    assert says in refused(sent, charlie, home)


def test_an_archive_that_was_cut_off_or_changed_on_its_way_is_refused(packed: bytes, charlie: User, home: Path) -> None:
    assert "not all of it" in refused(packed[: len(packed) // 2], charlie, home)
    at = packed.index(b"1,2\n")
    assert "is damaged" in refused(packed[:at] + b"9" + packed[at + 1 :], charlie, home)


def test_a_journal_longer_than_is_read_is_refused(archive: Archive, charlie: User, home: Path, settings: Any) -> None:
    archive.put(archive.run(), journal.FILE_NAME, b"junk\n" * 300_000)
    settings.EDT_MAX_JOURNAL_BYTES = 1 << 20
    assert "EDT_MAX_JOURNAL_BYTES" in refused(archive.packed(), charlie, home)


def test_junk_and_lines_of_other_runs_in_a_journal_are_counted_and_left_out(archive: Archive, charlie: User) -> None:
    run = archive.run()
    before = archive.entries[f"runs/{run['number']}/{journal.FILE_NAME}"]
    others = journal.format_line(run["number"] + 1, 900, 1.7e9, cast.step(900))
    archive.put(run, journal.FILE_NAME, b"junk\n" * 1000 + others + before + b"\xff\0\n")
    order = imported(archive.packed(), charlie)
    made = TrainingRun.objects.get(experiment__project=order.project)
    assert MetricSeries.objects.get(run=made).points == 5
    assert made.cursor.rejected >= 1001


def test_a_run_that_starts_with_all_of_its_slots_has_one_number_of_them(archive: Archive, charlie: User) -> None:
    archive.manifest["definitions"][0]["versions"][0]["distributed"] = "single"
    archive.run().update(min_slots=1, max_slots=9)
    made = TrainingRun.objects.get(experiment__project=imported(archive.packed(), charlie).project)
    assert (made.min_slots, made.max_slots) == (9, 9)


def test_a_lock_in_an_archive_is_nobodys_environment(archive: Archive, charlie: User) -> None:
    archive.manifest["definitions"][0]["versions"][0] |= {"requirements": "evil==1", "locks": {"torch 2.13": "evil==1 --hash=sha256:00"}}
    order = imported(archive.packed(), charlie)
    assert not Environment.objects.exists()
    assert DefinitionVersion.objects.get(definition__project=order.project).requirements == ""


def test_a_project_larger_than_new_ones_may_be_is_refused(archive: Archive, charlie: User, home: Path, settings: Any) -> None:
    sent = archive.packed(compressed=True, more=lambda zipped: zipped.writestr("runs/1/x", bytes(30 << 20), zipfile.ZIP_DEFLATED))
    settings.EDT_MAX_PROJECT_BYTES = 20 << 20
    assert "unpacks to more than" in refused(sent, charlie, home)
    rules = ClusterRules.current()
    rules.new_project_disk = 0
    rules.save()
    with pytest.raises(Exception, match="at most 0 MiB"):
        send(sent, charlie)


def test_a_manifest_of_a_gigabyte_is_not_read(archive: Archive, charlie: User, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(format, "MOST_LIST_BYTES", 10_000)
    archive.manifest["description"] = "d" * 20_000
    assert "manifest.json of the archive has over" in refused(archive.packed(), charlie, home)


def test_the_same_code_is_stored_once(packed: bytes, charlie: User) -> None:
    before = Bundle.objects.count()
    assert imported(packed, charlie).state == State.DONE
    assert Bundle.objects.count() == before
