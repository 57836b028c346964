"""A project that is exported and imported again: all of it is there, as it was, and nobody's own things are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from experiments import selectors, services
from experiments.cluster import scheduling
from experiments.files import datastore, pruning, runfiles
from experiments.metrics import ingest
from experiments.models import (
    DefinitionVersion,
    ExperimentDefinition,
    Membership,
    Metric,
    MetricSeries,
    Notification,
    Project,
    ProjectImport,
    RunState,
    TrainingRun,
    Trigger,
    User,
    Webhook,
)
from experiments.services import outside
from experiments.services.definitions import Origin, origin_of
from tests import cast
from tests.conftest import SentMessages
from tests.transferred import Archive, exported, imported
from tests.web import seed
from tests.web.seed import Seeded
from training_runtime import journal

pytestmark = pytest.mark.usefixtures("said")
State = ProjectImport.State


@pytest.fixture
def studio(db: None, home: Path, said: SentMessages) -> Seeded:
    return seed.studio(now=timezone.now(), steps=60)


@pytest.fixture
def stranger(studio: Seeded) -> User:
    return User.objects.get(username="charlie")


def brought(studio: Seeded, by: User) -> Project:
    order = imported(exported(studio.digits), by)
    assert (order.state, order.says) == (State.DONE, "")
    assert order.project is not None
    return order.project


def contents(run: TrainingRun) -> dict[str, bytes]:
    found = {}
    for each in selectors.files(run, limit=10_000):
        opened, _ = selectors.open_file(run, each.path)
        with opened:
            found[each.path] = opened.read()
    return found


def curves(run: TrainingRun) -> dict[tuple[str, str], list[Any]]:
    columns = ("step", "seq", "epoch", "t", "value", "workers")
    return {
        (one.group, one.name): list(Metric.objects.filter(series=one).order_by("step").values_list(*columns))
        for one in MetricSeries.objects.filter(run=run)
    }


def test_all_of_a_project_is_there_again(studio: Seeded, stranger: User) -> None:
    made = brought(studio, stranger)
    assert (made.name, made.description) == (studio.digits.name, studio.digits.description)
    before = list(TrainingRun.objects.filter(experiment__project=studio.digits, ended_at__isnull=False).order_by("pk"))
    after = list(TrainingRun.objects.filter(experiment__project=made).order_by("pk"))
    assert len(before) == len(after) >= 3
    same = ["name", "state", "state_reason", "submitted_at", "started_at", "ended_at", "command", "environment", "tags", "note", "priority"]
    same += ["min_slots", "max_slots", "exit_code", "step", "epoch", "epochs", "steps_per_epoch", "engines", "batch_size", "final_metrics"]
    same += ["error_message", "error_traceback", "outcome", "exact"]
    for old, new in zip(before, after, strict=True):
        assert {name: getattr(new, name) for name in same} == {name: getattr(old, name) for name in same}
        assert contents(new) == contents(old)
        assert curves(new) == curves(old)
        assert list(new.generations.values_list("seq", "step", "workers", "reason")) == list(
            old.generations.values_list("seq", "step", "workers", "reason")
        )
        assert list(new.events.values_list("seq", "kind", "message")) == list(old.events.values_list("seq", "kind", "message"))
    assert any(curves(run) and run.final_metrics for run in after)


def test_code_and_what_is_said_of_it_is_there_again(studio: Seeded, stranger: User) -> None:
    changed = cast.zipped({"main.py": seed.SCRIPT, "net.py": "x = 2\n", "requirements.txt": "tqdm\n"})
    upload = {"upload": changed, "file_name": "two.zip", "origin": Origin("https://example.org/a.git", "main", "train", "a" * 40)}
    added = services.add_version(studio.version.definition, by=studio.bob, command="main.py --lr 1", max_slots=2, **upload)
    made = brought(studio, stranger)
    columns = ("number", "bundle", "file_name", "framework", "command", "device", "distributed", "max_slots", "packages", "network",
               "created_at")  # fmt: skip

    def versions(project: Project) -> list[Any]:
        return list(DefinitionVersion.objects.filter(definition__project=project).order_by("definition", "number").values_list(*columns))

    assert versions(made) == versions(studio.digits)
    brought_back = DefinitionVersion.objects.get(definition__project=made, number=2)
    assert (brought_back.requirements, brought_back.requirements_key) == (added.requirements, added.requirements_key)
    assert "tqdm" in added.requirements
    assert origin_of(brought_back) == upload["origin"]
    assert {each.name for each in made.definitions.all()} == {each.name for each in studio.digits.definitions.all()}
    parts = ("experiment__name", "position", "command", "version__number", "version__definition__name")

    def experiments(project: Project) -> list[Any]:
        return list(ExperimentDefinition.objects.filter(experiment__project=project).order_by("pk").values_list(*parts))

    assert experiments(made) == experiments(studio.digits)
    assert all(each.created_by == stranger for each in made.definitions.all())


def test_data_is_there_again_and_its_experiment_reads_it(studio: Seeded, stranger: User) -> None:
    version = studio.version
    services.create_experiment(
        studio.digits, by=studio.bob, name="reads", data_asset=studio.data, source_folder="train", versions=[version]
    )
    made = brought(studio, stranger)
    before, after = studio.data, made.data_assets.get()
    assert (after.name, after.description, after.files, after.size_bytes) == (
        before.name,
        before.description,
        before.files,
        before.size_bytes,
    )
    assert after.created_at == before.created_at
    assert after.key != before.key
    reads = made.experiments.get(name="reads")
    assert (reads.data_asset, reads.source_folder) == (after, "train")

    def files(asset: Any) -> dict[str, bytes]:
        top = datastore.root(asset)
        return {path.relative_to(top).as_posix(): path.read_bytes() for path in top.rglob("*") if path.is_file()}

    assert files(after) == files(before)
    assert services.run_experiment(reads, by=stranger)[0].data_folder == "train"


def test_what_is_peoples_own_does_not_travel_and_the_secrets_are_named(studio: Seeded, stranger: User) -> None:
    services.triggers.create_trigger(studio.digits, by=studio.alice, event="call", experiment=studio.experiment, now=timezone.now())
    packed = exported(studio.digits)
    for kept in (b"hf_s3cret", b"wJalrXUtnFEMI", cast.PASSWORD.encode()):
        assert kept not in packed
    order = imported(packed, stranger)
    made = order.project
    assert made is not None
    assert list(Membership.objects.filter(project=made).values_list("user", "role")) == [(stranger.pk, "admin")]
    assert not Trigger.objects.filter(project=made).exists()
    assert not Webhook.objects.filter(project=made).exists()
    assert dict(made.variables.values_list("name", "value")) == {"WANDB_MODE": "offline", "GREETING": ""}
    told = " ".join(order.notes)
    assert "Set again the secrets of the project: HF_TOKEN." in told
    assert "Set again the secrets of the training definition LeNet, elastic: AWS_SECRET_ACCESS_KEY." in told


def test_runs_that_live_are_left_out_and_named(studio: Seeded, stranger: User) -> None:
    order = imported(exported(studio.digits), stranger)
    for run in (studio.running, studio.queued):
        assert any(f"Run {run.pk} ({run.name})" in note and "only runs that have ended travel" in note for note in order.notes), order.notes


def test_imported_runs_are_the_importers_ended_and_in_no_plan(studio: Seeded, stranger: User, said: SentMessages) -> None:
    before = Notification.objects.count()
    made = brought(studio, stranger)
    said.clear()
    runs = TrainingRun.objects.filter(experiment__project=made)
    assert {run.submitted_by for run in runs} == {stranger}
    scheduling.tick(timezone.now())
    for run in runs:
        assert (run.head_node, run.grants.count(), run.is_live()) == (None, 0, False)
        assert run.transitions.count() >= 2
        words = run.transitions.last()
        assert words is not None
        assert re.fullmatch(r"Imported by charlie from the project Digits, where (alice|bob) had submitted it as run \d+\.", words.reason)
        assert all(row.actor is None for row in run.transitions.all())
    assert Notification.objects.count() == before, "what happened long ago is nobody's news"


def test_the_same_archive_imported_twice_makes_two_projects(studio: Seeded, stranger: User) -> None:
    packed = exported(studio.digits)
    first, second = imported(packed, stranger), imported(packed, studio.bob, name="Digits, again")
    assert first.project and second.project and first.project != second.project
    assert second.project.name == "Digits, again"
    of = [TrainingRun.objects.filter(experiment__project=each.project).order_by("pk") for each in (first, second)]
    assert [contents(run) for run in of[0]] == [contents(run) for run in of[1]]
    services.delete_project(first.project, by=stranger)
    cast.empty_trash()
    assert all(contents(run) for run in of[1])


def test_what_was_imported_is_run_again_and_can_be_exported_again(studio: Seeded, stranger: User) -> None:
    made = brought(studio, stranger)
    experiment = TrainingRun.objects.filter(experiment__project=made)[0].experiment
    (run,) = services.run_experiment(experiment, by=stranger)
    assert (run.state, run.command) == (RunState.QUEUED, "main.py --epochs 20")
    services.stop_run(run, by=stranger)
    again = imported(exported(made), studio.bob)
    assert again.says == ""
    assert again.project is not None
    old, new = (TrainingRun.objects.filter(experiment__project=each).order_by("pk") for each in (made, again.project))
    assert [curves(each) for each in old] == [curves(each) for each in new]


def test_a_run_goes_on_from_the_checkpoint_of_an_imported_one(studio: Seeded, stranger: User) -> None:
    folder = runfiles.folder(studio.completed)
    (folder / "checkpoint" / "engine.pt").write_bytes(b"a state")
    (folder / "checkpoint" / ".secret").write_bytes(b"of the run's machines")
    packed = exported(studio.digits)
    assert b"of the run's machines" not in packed
    order = imported(packed, stranger)
    source = TrainingRun.objects.get(experiment__project=order.project, name=studio.completed.name, state="completed")
    run = services.continue_run(source, by=stranger)
    assert (run.continues, run.state) == (source.pk, RunState.QUEUED)
    services.stop_run(run, by=stranger)
    again = TrainingRun.objects.filter(experiment__project=imported(exported(source.experiment.project), stranger).project)
    continued = again.exclude(continues=None).get()
    assert continued.continues == again.get(name=source.name, state="completed").pk


def test_names_that_no_zip_has_travel_too(studio: Seeded, stranger: User) -> None:
    folder = runfiles.folder(studio.completed)
    odd = {"a\\b.txt": b"1", "Model/x": b"2", ".DS_Store": b"3", "C:evil": b"4", "manifest.json": b"5", "n" * 250: b"6", "model/X": b"7"}
    odd |= {"/".join(["deep"] * 25) + "/end": b"8"}
    for path, content in odd.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    order = imported(exported(studio.digits), stranger)
    found = contents(TrainingRun.objects.get(experiment__project=order.project, name=studio.completed.name, state="completed"))
    assert {path: found.get(path) for path in odd} == odd


def test_what_people_and_scripts_said_of_a_run_is_there_again(studio: Seeded, stranger: User) -> None:
    services.annotate_run(studio.completed, by=studio.bob, tags=["good", "keep"], note="The best so far.")
    cast.write_journal(studio.completed, journal.Noted({"lr": "0.1"}, {"stage": "first", "gone": "yes"}))
    ingest.catch_up(studio.completed.pk, now=timezone.now())
    ingest.note(studio.completed, journal.Noted({"lr": "0.2"}, {"stage": "last"}, ("gone",)))
    made = brought(studio, stranger)
    run = TrainingRun.objects.get(experiment__project=made, note="The best so far.")
    assert run.tags == ["good", "keep"]
    assert (run.logged_facts.parameters, run.logged_facts.tags) == ({"lr": "0.2"}, {"stage": "last"})


def test_a_run_that_was_logged_from_outside_is_there_again(studio: Seeded, stranger: User) -> None:
    now = timezone.now()
    run = outside.begin_run(studio.digits, by=studio.bob, name="on my laptop", began_at=now, now=now)
    outside.log(run, outside.lines({("train", 1, now.timestamp()): {"loss": 0.5}}, now=now.timestamp()), now=now)
    outside.end_run(run, "completed", by=studio.bob, at=now, now=now)
    made = brought(studio, stranger)
    again = TrainingRun.objects.get(experiment__project=made, outside=True)
    assert (again.name, again.state, curves(again)) == ("on my laptop", "completed", curves(run))
    outside.log(again, outside.lines({("train", 2, now.timestamp()): {"loss": 0.25}}, now=now.timestamp()), now=now)
    assert [row[0] for row in curves(again)[("train", "loss")]] == [1, 2]


def test_nothing_of_an_archive_stays_once_it_is_a_project(studio: Seeded, stranger: User, home: Path) -> None:
    brought(studio, stranger)
    assert pruning.orphans(timezone.now()) == []
    cast.empty_trash()
    assert [path for path in cast.stored(home / "uploads") if path.name != studio.upload.key.hex] == []


def test_an_environment_that_is_not_offered_here_is_said(studio: Seeded, stranger: User) -> None:
    archive = Archive.of(exported(studio.cifar))
    version = archive.manifest["definitions"][0]["versions"][0]
    assert version["packages"] == "named"
    same = imported(archive.packed(), stranger)
    assert same.project is not None
    kept = DefinitionVersion.objects.get(definition__project=same.project)
    assert (kept.packages, str(kept.named)) == ("named", version["named"])
    version["named"] = "of another studio version 3"
    order = imported(archive.packed(), stranger)
    assert DefinitionVersion.objects.get(definition__project=order.project).packages == "own"
    assert any("of another studio version 3, which is not offered here" in note for note in order.notes)
