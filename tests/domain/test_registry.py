"""Registered models: what a version holds, that its files outlive its run and its project's other things, and that a deletion takes no more
than it should."""

from __future__ import annotations

import contextlib
import datetime as dt
import io
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from django.http import Http404
from django.utils import timezone

from experiments import services
from experiments.errors import DomainError
from experiments.files import diskuse, modelstore, pruning, runfiles
from experiments.models import Bundle, ClusterRules, ModelVersion, Project, RegisteredModel, Tombstone, TrainingRun, User
from experiments.ops import installation
from experiments.selectors import registry
from tests import cast

NOW = dt.datetime(2026, 11, 20, 12, 0, tzinfo=dt.UTC)
WEEK = dt.timedelta(days=7)
FINAL = "model/train/model_epoch_final.pth"
pytestmark = pytest.mark.django_db


def put(run: TrainingRun, path: str, content: bytes) -> None:
    at = runfiles.make(run) / path
    at.parent.mkdir(parents=True, exist_ok=True)
    at.write_bytes(content)


def weights(value: float = 1.0) -> bytes:
    file = io.BytesIO()
    torch.save({"weight": torch.full((4,), value)}, file)
    return file.getvalue()


def ended(project: Project, by: User, files: dict[str, bytes]) -> TrainingRun:
    run = cast.run(project, by=by)
    for path, content in files.items():
        put(run, path, content)
    return services.stop_run(run, by=by)


def register(run: TrainingRun, by: User, *, name: str = "digits", path: str = FINAL, **said: object) -> ModelVersion:
    lineage = registry.lineage(TrainingRun.objects.select_related("experiment__project", "version__bundle").get(pk=run.pk))
    return services.register_version(run, by=by, name=name, path=path, lineage=lineage, **{"now": NOW, **said})  # type: ignore[arg-type]


def content(version: ModelVersion, path: str) -> bytes:
    with registry.file_of(version, path)[1] as file:
        return file.read()


def in_store(home: Path) -> set[str]:
    return {path.name for path in (home / "models").iterdir() if not path.name.startswith(".")}


@pytest.fixture
def bound(db: None, home: Path) -> Path:
    installation.bind()
    return home


@pytest.fixture
def run(project: Project, alice: User, bound: Path) -> TrainingRun:
    return ended(project, alice, {FINAL: weights(), "model/train/model_epoch_final.onnx": b"onnx", "log/driver/console.log": b"x"})


def test_a_version_holds_the_model_with_onnx_and_safetensors_beside_it(run: TrainingRun, alice: User) -> None:
    version = register(run, alice, note="**good**", tags={"data": "2026"}, aliases=["champion"])
    files = {file.path: file for file in version.files.all()}
    assert files.keys() == {"model_epoch_final.pth", "model_epoch_final.onnx", "model_epoch_final.safetensors"}
    assert content(version, "model_epoch_final.pth") == weights()
    assert [path for path, file in files.items() if file.made] == ["model_epoch_final.safetensors"]
    assert version.size_bytes == sum(file.size_bytes for file in files.values())
    assert (version.number, version.run, version.code, version.left_out) == (1, run.pk, run.version.bundle, [])
    assert version.lineage["run"]["id"] == run.pk
    assert version.lineage["code"]["sha256"] == run.version.bundle.sha256
    assert [event.what for event in version.model.events.all()] == [
        "alice let champion point to version 1.",
        f"alice registered version 1, of run {run.pk}.",
    ]


def test_what_could_not_be_made_is_said(project: Project, alice: User, bound: Path) -> None:
    version = register(ended(project, alice, {"model/odd.pt": b"odd"}), alice, path="model/odd.pt")
    assert [file.path for file in version.files.all()] == ["odd.pt"]
    assert version.left_out[0].startswith("No safetensors of odd.pt: torch.save did not write it")
    assert version.left_out[1].startswith("No ONNX beside it")


def test_a_folder_is_registered_as_it_is(project: Project, alice: User, bound: Path) -> None:
    files = {"artifacts/models/net/MLmodel": b"flavors", "artifacts/models/net/data/model.pth": b"?", "artifacts/models/other": b""}
    run = ended(project, alice, files)
    version = register(run, alice, path="artifacts/models/net")
    assert [file.path for file in version.files.all()] == ["MLmodel", "data/model.pth"]
    assert [each.path for each in registry.candidates(run)] == ["artifacts/models/net"]


def test_numbers_go_up_and_are_not_given_again(run: TrainingRun, alice: User, bob: User) -> None:
    first, second = register(run, alice), register(run, bob)
    services.delete_version(second, by=alice, now=NOW)
    assert (first.number, second.number, register(run, bob).number) == (1, 2, 3)


def test_the_same_request_makes_one_version(run: TrainingRun, alice: User) -> None:
    request = uuid.uuid4()
    assert register(run, alice, idempotency_key=request) == register(run, alice, idempotency_key=request)
    assert ModelVersion.objects.count() == 1


def delete_the_run(run: TrainingRun, by: User) -> None:
    services.delete_run(run, by=by)


def delete_the_experiment(run: TrainingRun, by: User) -> None:
    services.delete_experiment(run.experiment, by=by)
    services.delete_definition(run.version.definition, by=by)


@pytest.mark.parametrize("delete", [delete_the_run, delete_the_experiment])
def test_files_code_and_lineage_outlive_the_run(
    run: TrainingRun, alice: User, bound: Path, delete: Callable[[TrainingRun, User], None]
) -> None:
    version, code = register(run, alice), run.version.bundle
    delete(run, alice)
    Bundle.objects.update(created_at=NOW - WEEK)
    pruning.prune(timezone.now())
    cast.empty_trash(timezone.now() + WEEK)
    assert not TrainingRun.objects.exists()
    kept = ModelVersion.objects.get(pk=version.pk)
    assert content(kept, "model_epoch_final.pth") == weights()
    assert kept.lineage["run"]["name"] == run.name
    assert registry.run_of(alice, kept) is None
    with registry.code_of(kept) as file:
        assert file.read(2) == b"PK"
    assert Bundle.objects.get() == code
    assert pruning.orphans(timezone.now() + 2 * WEEK) == []


def test_what_a_run_writes_afterwards_changes_no_version(project: Project, alice: User, bound: Path) -> None:
    run = cast.run(project, by=alice)
    put(run, "model/a.pth", weights(1))
    version = register(run, alice, path="model/a.pth")
    with open(runfiles.folder(run) / "model/a.pth", "r+b") as file:
        file.truncate(3)
    assert content(version, "a.pth") == weights(1)


def test_the_same_content_is_kept_once_and_goes_with_its_last_version(run: TrainingRun, alice: User, bound: Path) -> None:
    one, other, third = register(run, alice), register(run, alice, name="copy"), register(run, alice)
    assert len(in_store(bound)) == 3
    services.delete_version(one, by=alice, now=NOW)
    services.delete_model(other.model, by=alice, now=NOW)
    cast.empty_trash(timezone.now() + WEEK)
    assert content(third, "model_epoch_final.pth") == weights()
    assert len(in_store(bound)) == 3
    assert not Tombstone.objects.filter(kind="model").exists()
    services.delete_version(third, by=alice, now=NOW)
    assert len(in_store(bound)) == 3, "they are moved by who prunes"
    pruning.clear(timezone.now())
    assert in_store(bound) == set()
    assert len(list((bound / "models" / ".trash").iterdir())) == 3, "an administrator can still get them back"
    cast.empty_trash(timezone.now() + WEEK)
    assert list((bound / "models" / ".trash").iterdir()) == []


def test_a_deletion_takes_nothing_else(run: TrainingRun, project: Project, alice: User, bound: Path) -> None:
    gone = register(ended(project, alice, {"model/b.pth": weights(2)}), alice, path="model/b.pth")
    kept = register(run, alice, name="kept")
    asset = services.add_data(project, by=alice, name="d", files=[("a", 1, io.BytesIO(b"1"))])
    cast.empty_trash()

    def there() -> set[str]:
        named = [path for store in pruning.STORES for path in (bound / store).rglob("*") if pruning.TRASH not in path.parts]
        return {str(path.relative_to(bound)) for path in named if path.is_file()}

    before = there()
    hashes = {file.sha256 for file in gone.files.all()}
    services.delete_model(gone.model, by=alice, now=NOW)
    cast.empty_trash(timezone.now() + WEEK)
    assert before - there() == {f"models/{sha256}" for sha256 in hashes}
    assert content(kept, "model_epoch_final.pth") == weights()
    assert TrainingRun.objects.count() == 2
    assert asset.project.data_assets.count() == 1


def test_what_is_registered_again_before_it_was_moved_stays(run: TrainingRun, alice: User, bound: Path) -> None:
    services.delete_version(register(run, alice), by=alice, now=NOW)
    again = register(run, alice)
    cast.empty_trash(timezone.now() + WEEK)
    assert content(again, "model_epoch_final.pth") == weights()


def test_what_is_registered_again_while_it_is_in_the_trash_is_copied_anew(run: TrainingRun, alice: User, bound: Path) -> None:
    services.delete_version(register(run, alice), by=alice, now=NOW)
    pruning.clear(timezone.now())
    again = register(run, alice)
    cast.empty_trash(timezone.now() + WEEK)
    assert content(again, "model_epoch_final.pth") == weights()


def test_a_project_goes_with_its_models(run: TrainingRun, project: Project, alice: User, bob: User, bound: Path) -> None:
    register(run, alice, aliases=["champion"])
    elsewhere = services.create_project(by=alice, name="Another")
    kept = register(ended(elsewhere, alice, {FINAL: weights()}), alice)
    services.delete_project(project, by=alice)
    cast.empty_trash(timezone.now() + WEEK)
    assert RegisteredModel.objects.get() == kept.model
    assert content(kept, "model_epoch_final.pth") == weights()
    assert in_store(bound) == {file.sha256 for file in kept.files.all()}


def test_an_alias_points_to_one_version_and_keeps_it_from_being_deleted(run: TrainingRun, alice: User, bob: User) -> None:
    first, second = register(run, alice), register(run, alice)
    services.set_alias(first, by=bob, alias="champion", now=NOW)
    services.set_alias(second, by=bob, alias="champion", now=NOW)
    assert registry.version_of(first.model, "champion") == second
    assert first.model.events.all()[0].what == "bob moved champion from version 1 to 2."
    for delete in (
        lambda: services.delete_version(second, by=alice, now=NOW),
        lambda: services.delete_model(first.model, by=alice, now=NOW),
    ):
        with pytest.raises(DomainError, match="champion points to"):
            delete()
    services.drop_alias(first.model, by=bob, alias="champion", now=NOW)
    services.delete_version(second, by=alice, now=NOW)
    with pytest.raises(Http404):
        registry.version_of(first.model, "champion")
    assert [registry.version_of(first.model, which) for which in ("latest", "1")] == [first, first]


REFUSED = {
    "no name": ({"name": " "}, "name"),
    "a name with an alias in it": ({"name": "digits@champion"}, "name"),
    "no such file": ({"path": "model/none.pth"}, "path"),
    "a way out": ({"path": "../../secrets"}, "path"),
    "nothing chosen": ({"path": ""}, "path"),
    "an alias that is a version": ({"aliases": ["v3"]}, "aliases"),
    "too many tags": ({"tags": {str(n): "" for n in range(51)}}, "tags"),
    "a note that is too long": ({"note": "x" * 20_001}, "note"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_wrong_is_refused_beside_its_field_and_leaves_nothing(run: TrainingRun, alice: User, bound: Path, what: str) -> None:
    changes, field = REFUSED[what]
    with pytest.raises(DomainError) as refused:
        register(run, alice, **changes)  # type: ignore[arg-type]
    assert list(refused.value.fields) == [field]
    assert (in_store(bound), list((bound / "tmp").iterdir()), RegisteredModel.objects.count()) == (set(), [], 0)


def test_a_full_disk_is_said_and_leaves_nothing(run: TrainingRun, alice: User, bound: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(100, 100, 0))  # type: ignore[attr-defined]
    with pytest.raises(DomainError, match="disk is full"):
        register(run, alice)
    assert (in_store(bound), list((bound / "tmp").iterdir())) == (set(), [])


def test_a_project_that_takes_all_it_may_takes_no_version(run: TrainingRun, project: Project, alice: User, bound: Path) -> None:
    register(run, alice)
    used = diskuse.of_project(project.pk)
    assert used.models == ModelVersion.objects.get().size_bytes
    assert diskuse.of_person(alice.pk).models == used.models
    register(run, alice)
    assert diskuse.of_project(project.pk).models == used.models, "the same content is kept once"
    rules = ClusterRules.current()
    rules.project_disk = {str(project.pk): 0}
    rules.save()
    with pytest.raises(DomainError, match="of disk that it may take"):
        register(run, alice)


def test_a_link_in_the_run_leads_nowhere(run: TrainingRun, alice: User, bound: Path) -> None:
    (bound / "secrets" / "key.pth").write_bytes(b"secret")
    (runfiles.folder(run) / "model" / "link.pth").symlink_to(bound / "secrets" / "key.pth")
    (runfiles.folder(run) / "model" / "folder").symlink_to(bound / "secrets")
    for path in ("model/link.pth", "model/folder", "model/folder/key.pth"):
        with pytest.raises(DomainError):
            register(run, alice, path=path)


def test_a_file_that_grows_while_it_is_copied_is_refused(run: TrainingRun, bound: Path) -> None:
    class Growing(io.FileIO):
        def read(self, size: int | None = -1, /) -> bytes | None:  # type: ignore[override]
            with open(runfiles.folder(run) / FINAL, "ab") as file:
                file.write(b"more")
            return super().read(-1 if size is None else size)

    with contextlib.ExitStack() as cleanup, Growing(runfiles.folder(run) / FINAL) as file, pytest.raises(modelstore.ModelRefused):
        modelstore.copied(file, name="a", cleanup=cleanup)  # type: ignore[arg-type]
    assert list((bound / "tmp").iterdir()) == []
