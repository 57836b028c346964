"""Registered models in the archive of a project: all are there again, also those whose run is gone; nothing that it says is believed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from experiments import services
from experiments.files import bundles, runfiles
from experiments.models import ModelFile, ModelVersion, Project, ProjectImport, RegisteredModel, User
from experiments.selectors import registry
from experiments.transfer import format
from tests import cast
from tests.conftest import SentMessages
from tests.transferred import Archive, exported, imported, refused, small

pytestmark = pytest.mark.usefixtures("said")


@pytest.fixture
def archive(project: Project, alice: User, home: Path, said: SentMessages) -> Archive:
    """Of a project with a model in two versions, of which one was made of a run that is gone with its experiment and its code."""
    gone = cast.run(project, by=alice)
    at = runfiles.make(gone) / "model" / "Odd\\name.pth"
    at.parent.mkdir()
    at.write_bytes(b"odd")
    services.stop_run(gone, by=alice)
    small(project, by=alice)
    kept = project.experiments.get(name="reads").runs.get()
    for run, path in ((gone, "model"), (kept, "model/weights.bin")):
        said_of = {"lineage": registry.lineage(run), "now": timezone.now(), "note": "**good**", "tags": {"a": "1"}}
        services.register_version(run, by=alice, name="digits", path=path, **said_of)  # type: ignore[arg-type]
    model = RegisteredModel.objects.get()
    services.set_alias(registry.version_of(model, "1"), by=alice, alias="champion", now=timezone.now())
    services.delete_experiment(gone.experiment, by=alice)
    services.delete_definition(gone.version.definition, by=alice)
    cast.empty_trash()
    return Archive.of(exported(project))


def contents(version: ModelVersion) -> dict[str, bytes]:
    found = {}
    for each in version.files.all():
        with registry.opened(each) as file:
            found[each.path] = file.read()
    return found


def test_models_are_there_again(archive: Archive, project: Project, alice: User, charlie: User, home: Path) -> None:
    before = list(RegisteredModel.objects.get().versions.order_by("number"))
    packed = archive.packed()
    services.drop_alias(RegisteredModel.objects.get(), by=alice, alias="champion", now=timezone.now())
    services.delete_project(project, by=alice)
    cast.empty_trash()
    assert not [path for path in (home / "models").iterdir() if path.name not in (".lock", ".trash")]
    order = imported(packed, charlie)
    assert order.state == ProjectImport.State.DONE, order.says
    model = RegisteredModel.objects.get()
    after = list(model.versions.order_by("number"))
    assert (model.project, model.name, model.last_number) == (order.project, "digits", 2)
    for old, new in zip(before, after, strict=True):
        same = ("number", "path", "left_out", "note", "tags", "size_bytes", "created_at")
        assert {name: getattr(new, name) for name in same} == {name: getattr(old, name) for name in same}
        assert new.lineage["run"] == old.lineage["run"]
    assert contents(after[0]) == {"Odd\\name.pth": b"odd"}
    assert contents(after[1]) == {"weights.bin": b"\0" * 100}
    assert registry.version_of(model, "champion") == after[0]
    assert after[0].run is None, "its run did not travel: its number may be another's here"
    assert registry.run_of(charlie, after[1]).experiment.project == order.project  # type: ignore[union-attr]
    assert all(version.code is not None and bundles.zip_path(version.code.sha256).is_file() for version in after)


def change(archive: Archive, **facts: Any) -> None:
    archive.model()["versions"][0] |= facts


HOSTILE: dict[str, tuple[Any, str]] = {
    "a way out": (lambda a: a.model()["versions"][0]["files"][0].update(path="../../secrets/key"), "which no run may have"),
    "an alias of nothing": (lambda a: a.model().update(aliases={"champion": 7}), "an alias of a version that the archive has not"),
    "an alias that is a version": (lambda a: a.model().update(aliases={"latest": 1}), "always the newest"),
    "a number twice": (lambda a: change(a, number=2), "a version twice"),
    "more versions than can be counted": (lambda a: a.model().update(last_number=10**15), "give a whole number"),
    "a version of the future": (lambda a: change(a, at="2999-01-01T00:00:00+00:00"), "in the future"),
    "a lineage that is none": (lambda a: change(a, lineage="[]"), "How it came about"),
    "a lineage that breaks a page": (lambda a: change(a, lineage=json.dumps({"run": {"steps": "x"}})), "How it came about"),
    "a lineage that no database has": (lambda a: change(a, lineage='{"metrics": {"a": NaN}}'), "How it came about"),
    "code that is not there": (lambda a: change(a, code="0" * 64), "The archive has no code/"),
    "another content": (lambda a: a.entries.update({a.model()["versions"][1]["files"][0]["entry"]: b"x" * 100}), "did not arrive"),
    "a name with an address in it": (lambda a: a.model().update(name="a@b"), "has a @ in it"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_nothing_that_is_said_of_a_model_is_believed(archive: Archive, charlie: User, home: Path, what: str) -> None:
    change_, says = HOSTILE[what]
    change_(archive)
    before = set(ModelFile.objects.values_list("sha256", flat=True))
    assert says in refused(archive.packed(), charlie, home)
    assert set(ModelFile.objects.values_list("sha256", flat=True)) == before


def test_an_archive_of_before_there_were_models_is_taken(archive: Archive, project: Project) -> None:
    old = {name: value for name, value in archive.manifest.items() if name != "models"}
    assert format.manifest(json.dumps(old).encode()).models == ()
