"""What people can do: it works, it refuses bad input at the right field, and sent twice it does one thing."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from experiments import services
from experiments.cluster import scheduling
from experiments.errors import DomainError
from experiments.files import runfiles
from experiments.models import DefinitionVersion, Experiment, Node, Project, RunState, TrainingDefinition, TrainingRun, User
from tests import cast
from tests.conftest import SentMessages

pytestmark = pytest.mark.django_db


def refused(call: Callable[[], Any]) -> dict[str, list[str]]:
    """The fields and messages of the DomainError that the call raises."""
    with pytest.raises(DomainError) as error:
        call()
    found: dict[str, list[str]] = error.value.by_field("")
    assert all(message.endswith(".") for messages in found.values() for message in messages)
    return found


# training definitions


def test_a_training_definition_begins_with_version_one(project: Project, alice: User, home: Path) -> None:
    version = cast.definition(project, by=alice, command="python main.py --epochs 5", max_slots=3)
    assert (version.number, version.command, version.max_slots, version.file_name) == (1, "python main.py --epochs 5", 3, "code.zip")
    assert version.definition.newest() == version
    assert (home / "code" / version.bundle.sha256 / "main.py").read_text() == cast.MAIN_PY


@pytest.mark.parametrize(("distributed", "slots"), [("elastic", 4), ("torchrun_elastic", 4), ("torchrun", 4), ("single", 1)])
def test_a_number_of_slots_that_nobody_says_is_usual_for_the_type(distributed: str, slots: int, project: Project, alice: User) -> None:
    upload = {"upload": cast.zipped(), "file_name": "c.zip", "command": "main.py"}
    version = services.create_definition(project, by=alice, name="x", distributed=distributed, **upload)
    assert version.max_slots == slots
    assert services.add_version(version.definition, by=alice, distributed=distributed, max_slots=3).max_slots == 3
    assert services.add_version(version.definition, by=alice, distributed="single").max_slots == 1


@pytest.mark.parametrize("distributed", ["torchrun", "single"])
def test_more_slots_than_any_machine_has_are_refused_where_a_run_needs_all_at_once(distributed: str, project: Project, alice: User) -> None:
    def keep(number: int, device: str = "any") -> None:
        services.create_definition(
            project, by=alice, name="x", upload=cast.zipped(), file_name="c.zip", distributed=distributed, max_slots=number, device=device
        )

    keep(64)  # no machine is known yet
    cast.node("small", slots=2)
    cast.node("large", gpus=4, slots=4)
    keep(4)
    said = refused(lambda: keep(5))
    assert said == {"max_slots": ["It runs on one machine, and the largest, large, has 4 GPU slots: choose at most 4."]}
    said = refused(lambda: keep(3, device="cpu"))
    assert said == {"max_slots": ["It runs on one machine, and the largest, small, has 2 CPU slots: choose at most 2."]}
    run = cast.run(project, by=alice, max_slots=2, distributed=distributed)
    assert "max_slots" in refused(lambda: services.set_slots(run, by=alice, min_slots=5, max_slots=5))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", ""),
        ("name", "x" * 300),
        ("description", "x" * 5000),
        ("framework", "cobol"),
        ("device", "tpu"),
        ("distributed", "somehow"),
        ("max_slots", 0),
        ("max_slots", -1),
        ("max_slots", 5000),
        ("max_slots", True),
        ("max_slots", "4"),
        ("command", "main.py 'oops"),
        ("command", "x" * 3000),
        ("command", "train.py"),
        ("upload", cast.zipped({"readme.txt": "no code"})),
    ],
)
def test_bad_input_is_refused_at_its_field(project: Project, alice: User, field: str, value: Any) -> None:
    good: dict[str, Any] = {"name": "lenet", "upload": cast.zipped(), "file_name": "code.zip", "command": "main.py"}
    assert set(refused(lambda: services.create_definition(project, by=alice, **(good | {field: value})))) == {field}
    assert not TrainingDefinition.objects.exists()
    assert not DefinitionVersion.objects.exists()


def test_all_wrong_fields_are_told_at_once(project: Project, alice: User) -> None:
    found = refused(
        lambda: services.create_definition(project, by=alice, name="", upload=cast.zipped(), file_name="c.zip", command="'", max_slots=0)
    )
    assert set(found) == {"name", "command", "max_slots"}


def test_the_same_form_makes_one_definition_and_one_version(project: Project, alice: User) -> None:
    form, again = uuid.uuid4(), uuid.uuid4()

    def send() -> DefinitionVersion:
        return services.create_definition(
            project, by=alice, name="x", upload=cast.zipped(), file_name="c.zip", command="main.py", idempotency_key=form
        )

    first = send()
    assert send() == first
    second = services.add_version(first.definition, by=alice, command="main.py 2", idempotency_key=again)
    assert services.add_version(first.definition, by=alice, command="main.py 2", idempotency_key=again) == second
    assert list(DefinitionVersion.objects.order_by("number").values_list("number", flat=True)) == [1, 2]


def test_a_new_version_may_keep_the_code(project: Project, alice: User) -> None:
    first = cast.definition(project, by=alice)
    second = services.add_version(first.definition, by=alice, command="main.py --lr 1", max_slots=2)
    assert (second.number, second.bundle, second.file_name, second.max_slots) == (2, first.bundle, "code.zip", 2)
    third = services.add_version(first.definition, by=alice, upload=cast.zipped({"t.py": ""}), file_name="n.zip", command="t.py")
    assert (third.number, third.bundle == first.bundle) == (3, False)
    assert set(refused(lambda: services.add_version(first.definition, by=alice, command="main.py"))) == {"command"}  # newest has t.py only


def test_a_definition_in_use_is_not_deleted(project: Project, alice: User) -> None:
    experiment = cast.experiment(project, by=alice)
    definition = TrainingDefinition.objects.get()
    assert "first try uses it" in refused(lambda: services.delete_definition(definition, by=alice))[""][0]
    services.delete_experiment(experiment, by=alice)
    services.delete_definition(definition, by=alice)
    assert not TrainingDefinition.objects.exists()


# experiments


def test_running_an_experiment_queues_a_run_for_each_definition(project: Project, bob: User, said: SentMessages) -> None:
    versions = [cast.definition(project, by=bob, name=name, max_slots=slots) for name, slots in (("lenet", 4), ("mlp", 2))]
    experiment = cast.experiment(project, by=bob, versions=versions)
    runs = services.run_experiment(experiment, by=bob)
    assert [(r.name, r.state, r.max_slots, r.min_slots, r.priority) for r in runs] == [
        ("first try: lenet", "queued", 4, 1, 5000),
        ("first try: mlp", "queued", 2, 1, 5000),
    ]
    assert [t.reason for t in runs[0].transitions.all()] == ["Submitted by bob."]
    assert len(services.run_experiment(experiment, by=bob)) == 2
    assert TrainingRun.objects.count() == 4


def test_the_global_command_replaces_the_definitions_own(project: Project, alice: User) -> None:
    version = cast.definition(project, by=alice, command="")
    assert set(refused(lambda: cast.experiment(project, by=alice, versions=[version]))) == {"versions"}
    experiment = services.create_experiment(project, by=alice, name="x", versions=[version], global_command="python main.py -v")
    assert services.run_experiment(experiment, by=alice)[0].command == "python main.py -v"
    assert set(refused(lambda: services.create_experiment(project, by=alice, name="x", versions=[version], global_command="other.py"))) == {
        "global_command"
    }


def test_an_experiment_needs_definitions_of_its_own_project(project: Project, alice: User, charlie: User) -> None:
    assert set(refused(lambda: cast.experiment(project, by=alice, versions=[]))) == {"versions"}
    theirs = cast.definition(services.create_project(by=charlie, name="Secret"), by=charlie)
    assert "another project" in refused(lambda: cast.experiment(project, by=alice, versions=[theirs]))["versions"][0]
    assert not Experiment.objects.exists()


def test_the_data_folder_is_below_the_shared_root(project: Project, alice: User, home: Path, tmp_path: Path) -> None:
    (home / "data" / "mnist" / "raw").mkdir(parents=True)
    (home / "data" / "out").symlink_to(tmp_path)
    (home / "data" / "loop").symlink_to(home / "data" / "loop")
    (home / "data" / "file").write_text("")
    version = cast.definition(project, by=alice)

    def make(folder: str) -> Experiment:
        return services.create_experiment(project, by=alice, name="x", versions=[version], source_folder=folder)

    assert make("mnist/raw/").source_folder == "mnist/raw"
    assert make(str(home / "data" / "mnist")).source_folder == "mnist"
    assert make("").source_folder == ""
    for folder in ("missing", "..", "../../etc", "/etc", "out", "loop", "file", "mnist/../..", "x" * 600, "nul\0"):
        assert set(refused(lambda folder=folder: make(folder))) == {"source_folder"}, folder  # type: ignore[misc]


def test_the_same_form_makes_one_experiment_and_starts_its_runs_once(project: Project, alice: User) -> None:
    form, version = uuid.uuid4(), cast.definition(project, by=alice)
    experiments = [services.create_experiment(project, by=alice, name="x", versions=[version], idempotency_key=form) for _ in range(2)]
    assert experiments[0] == experiments[1]
    runs = [services.run_experiment(experiments[0], by=alice, idempotency_key=form) for _ in range(2)]
    assert runs[0] == runs[1]
    assert TrainingRun.objects.count() == 1


def test_an_experiment_is_deleted_with_its_runs_and_files_when_they_have_ended(project: Project, alice: User) -> None:
    run = cast.run(project, by=alice)
    (runfiles.make(run) / "link").symlink_to("/etc")
    assert "has not ended" in refused(lambda: services.delete_experiment(run.experiment, by=alice))[""][0]
    services.stop_run(run, by=alice)
    services.delete_experiment(run.experiment, by=alice)
    cast.empty_trash()
    assert not TrainingRun.objects.exists()
    assert not runfiles.folder(run).exists()
    assert Path("/etc").is_dir()


# runs


def test_a_run_without_a_driver_stops_at_once(project: Project, alice: User) -> None:
    run = services.stop_run(cast.run(project, by=alice), by=alice, reason="wrong data")
    assert (run.state, run.state_reason) == (RunState.STOPPED, "Stopped by alice: wrong data")
    assert services.stop_run(run, by=alice).state == RunState.STOPPED
    assert run.transitions.count() == 2


def test_a_run_with_a_driver_is_asked_to_stop(project: Project, alice: User, node: Node) -> None:
    run = cast.run(project, by=alice)
    scheduling.tick(node.last_seen_at)
    run = services.stop_run(run, by=alice)
    assert run.state == RunState.STOPPING
    assert services.stop_run(run, by=alice).transitions.count() == run.transitions.count()


def test_pause_and_resume_are_wishes_with_a_history(project: Project, alice: User) -> None:
    run = cast.run(project, by=alice)
    assert services.pause_run(run, by=alice, reason="lunch").paused
    assert services.pause_run(run, by=alice).transitions.count() == 2
    assert not services.resume_run(run, by=alice).paused
    assert [t.reason for t in run.transitions.all()][1:] == ["Paused by alice: lunch", "Resumed by alice."]


def test_priority_and_slots_change_live(project: Project, alice: User) -> None:
    run = cast.run(project, by=alice)
    assert services.set_priority(run, by=alice, priority=9000).priority == 9000
    run = services.set_slots(run, by=alice, min_slots=2, max_slots=3)
    assert (run.min_slots, run.max_slots) == (2, 3)
    said = "alice changed the priority from 5000 to 9000. It counts as 5000 until an administrator agrees."
    assert said in [t.reason for t in run.transitions.all()]
    assert services.set_priority(run, by=alice, priority=9000).transitions.count() == 3


@pytest.mark.parametrize("priority", [0, -1, 10_001, True, "9", 1.5])
def test_a_priority_is_a_number_in_range(project: Project, alice: User, priority: Any) -> None:
    run = cast.run(project, by=alice)
    assert set(refused(lambda: services.set_priority(run, by=alice, priority=priority))) == {"priority"}


@pytest.mark.parametrize(
    ("least", "most", "field"), [(0, 4, "min_slots"), (1, 0, "max_slots"), (3, 2, "min_slots"), (1, 9999, "max_slots")]
)
def test_slots_are_numbers_in_order(project: Project, alice: User, least: int, most: int, field: str) -> None:
    run = cast.run(project, by=alice)
    assert set(refused(lambda: services.set_slots(run, by=alice, min_slots=least, max_slots=most))) == {field}


def test_an_ended_run_is_only_deleted(project: Project, alice: User) -> None:
    run = cast.run(project, by=alice)
    runfiles.make(run)
    assert "has not ended" in refused(lambda: services.delete_run(run, by=alice))[""][0]
    services.stop_run(run, by=alice)
    assert set(refused(lambda: services.set_priority(run, by=alice, priority=1))) == {"priority"}
    assert set(refused(lambda: services.set_slots(run, by=alice, min_slots=1, max_slots=1))) == {"max_slots"}
    assert not services.pause_run(run, by=alice).paused
    services.delete_run(run, by=alice)
    cast.empty_trash()
    assert not runfiles.folder(run).exists()


# cluster


def test_policy_quotas_weights_and_draining_are_stored_and_replanned(
    project: Project, alice: User, dora: User, node: Node, said: SentMessages, django_capture_on_commit_callbacks: Any
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        rules = services.set_policy(by=dora, policy="priority", person_quota={"alice": 2}, project_quota={str(project.pk): 3})
        services.set_weight(alice, by=dora, weight=2.5)
        services.set_node_draining(node, by=dora, draining=True)
        services.set_slot_draining(node.slots.first(), by=dora, draining=True)
    assert (rules.policy, rules.person_quota, rules.project_quota) == ("priority", {"alice": 2}, {str(project.pk): 3})
    assert services.set_policy(by=dora, policy="fair_share").person_quota == {"alice": 2}
    assert said.task_names().count("schedule") == 1, "a plan that waits to be made takes all four in"
    node.refresh_from_db()
    assert node.draining


def test_nonsense_about_the_cluster_is_refused(alice: User, dora: User) -> None:
    assert set(refused(lambda: services.set_policy(by=dora, policy="luck"))) == {"policy"}
    assert set(refused(lambda: services.set_policy(by=dora, policy="priority", person_quota={"nobody": 1}))) == {"person_quota"}
    assert set(refused(lambda: services.set_policy(by=dora, policy="priority", project_quota={"99": 1}))) == {"project_quota"}
    assert set(refused(lambda: services.set_policy(by=dora, policy="priority", person_quota={"alice": -1}))) == {"person_quota"}
    for weight in (0.0, -1.0, float("nan"), float("inf")):
        assert set(refused(lambda weight=weight: services.set_weight(alice, by=dora, weight=weight))) == {"weight"}  # type: ignore[misc]
