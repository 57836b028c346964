"""Which runs wait for an environment, what machines are told to build, what they say of it, and what is collected."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import Any

import pytest

from experiments import services
from experiments.cluster import desired, environments, fleet, scheduling
from experiments.errors import DomainError
from experiments.files import pruning
from experiments.models import Environment, EnvironmentBuild, Node, Project, RunState, TrainingRun, User
from tests import cast
from training_runtime.protocol import Apply, EnvironmentSeen, Observation

pytestmark = pytest.mark.django_db
NOW = dt.datetime(2026, 11, 20, 12, 0, tzinfo=dt.UTC)
SECOND = dt.timedelta(seconds=1)
LOCK = "tqdm==4.67 --hash=sha256:00\n"
FOLDER = "a" * 40


def facts(name: str = "local", *, base: str = "cpu"):  # type: ignore[no-untyped-def]
    return replace(cast.facts(name), base=base, base_words="Python 3.11, torch 2.13")


def machine(name: str = "local", *, base: str = "cpu", now: dt.datetime = NOW) -> Node:
    return fleet.register(facts(name, base=base), now=now, slots=4)


def submit(project: Project, by: User, *, requires: str = "tqdm\n", now: dt.datetime = NOW, name: str = "lenet") -> TrainingRun:
    files = {"main.py": cast.MAIN_PY, "requirements.txt": requires}
    version = cast.definition(project, by=by, files=files, name=name)
    made = cast.experiment(project, by=by, versions=[version], name=name)
    return services.run_experiment(made, by=by, now=now)[0]


def told(node: Node, now: dt.datetime = NOW) -> Apply:
    return desired.desired_state(node, now=now)


def says(node: Node, now: dt.datetime, *, folders: tuple[str, ...] = (), revision: int | None = None, **given: object) -> None:
    """The node says of each environment that it is told to build the same."""
    wishes = told(node, now).environments
    seen = [EnvironmentSeen(wish.key, **{"attempt": wish.attempt, **given}) for wish in wishes]  # type: ignore[arg-type]
    node.refresh_from_db()
    about = facts(node.name, base=node.base)
    fleet.record(Observation(revision or node.revision, about, (), environments=tuple(seen), folders=folders), now=now)


def ready(node: Node, now: dt.datetime, **given: object) -> None:
    says(node, now, **{"state": "ready", "folder": FOLDER, "lock": LOCK, "size_bytes": 1000, "folders": (FOLDER,), **given})  # type: ignore[arg-type]


def fresh(run: TrainingRun) -> TrainingRun:
    run.refresh_from_db()
    return run


def test_a_run_waits_for_its_environment_and_holds_nothing_meanwhile(project: Project, alice: User) -> None:
    node = machine()
    run = submit(project, alice)
    other = cast.run(project, by=alice, now=NOW)
    scheduling.tick(NOW)
    assert fresh(run).plan_reason == "Building the environment on local"
    assert cast.slots_of(run) == set()
    assert len(cast.slots_of(other)) == 4, "others use what it does not"
    (wish,) = told(node).environments
    assert (wish.requirements, wish.lock, wish.attempt, wish.run) == ("tqdm  # requirements.txt:1\n", "", 1, run.pk)
    says(node, NOW + SECOND, state="building", detail="installing 1 package")
    scheduling.tick(NOW + SECOND)
    assert fresh(run).plan_reason == "Building the environment on local: installing 1 package"
    ready(node, NOW + SECOND)
    scheduling.tick(NOW + SECOND)
    assert fresh(run).head_node == node
    (wanted,) = [each for each in told(node).runs if each.spec.run == run.pk]
    assert wanted.spec.environment == FOLDER
    environment = Environment.objects.get()
    assert (environment.lock, environment.packages) == (LOCK, [["tqdm", "4.67"]])
    (wish,) = told(node).environments
    assert wish.lock == LOCK
    assert wish.known


def test_what_nobody_requires_is_as_it_was(project: Project, alice: User) -> None:
    node = machine()
    run = cast.run(project, by=alice, now=NOW)
    scheduling.tick(NOW)
    assert told(node).environments == ()
    assert told(node).runs[0].spec.environment == ""
    assert not Environment.objects.exists()
    assert run.version.requirements == ""


def test_a_build_that_fails_ends_the_run_with_its_sentence_and_log(project: Project, alice: User) -> None:
    node = machine()
    run = submit(project, alice)
    scheduling.tick(NOW)
    says(node, NOW + SECOND, state="failed", problem="requirements.txt line 1: no", log="$ uv\nerror: no\n")
    scheduling.tick(NOW + SECOND)
    assert fresh(run).state == RunState.FAILED
    assert run.error_message == run.state_reason == "requirements.txt line 1: no"
    assert "error: no" in run.error_traceback
    again = services.run_experiment(run.experiment, by=alice, now=NOW + 2 * SECOND)[0]
    scheduling.tick(NOW + 2 * SECOND)
    assert fresh(again).state == RunState.QUEUED, "who asks again gets another try"
    (wish,) = told(node, NOW + 2 * SECOND).environments
    assert (wish.attempt, wish.known) == (2, False)
    says(node, NOW + 3 * SECOND, state="failed", attempt=1, problem="of the first try")
    scheduling.tick(NOW + 3 * SECOND)
    assert fresh(again).state == RunState.QUEUED


def test_a_run_goes_where_its_environment_is_and_the_second_machine_builds_from_the_lock(project: Project, alice: User) -> None:
    first, second = machine("a"), machine("b")
    run = submit(project, alice)
    scheduling.tick(NOW)
    assert len(told(first).environments) == len(told(second).environments) == 1
    ready(second, NOW + SECOND)
    scheduling.tick(NOW + SECOND)
    assert fresh(run).head_node == second
    (wish,) = told(first).environments
    assert wish.lock == LOCK
    ready(first, NOW + SECOND, lock="tqdm==5.0\n", folder="b" * 40)
    build = EnvironmentBuild.objects.get(node=first)
    assert (build.state, build.attempt) == ("wanted", 2), "the first lock counts, on every machine"


def test_a_failure_on_one_machine_is_none_of_the_run_where_another_can(project: Project, alice: User) -> None:
    first, second = machine("a"), machine("b", base="gpu")
    run = submit(project, alice)
    scheduling.tick(NOW)
    says(first, NOW + SECOND, state="failed", problem="not here")
    scheduling.tick(NOW + SECOND)
    assert fresh(run).state == RunState.QUEUED
    ready(second, NOW + SECOND)
    scheduling.tick(NOW + SECOND)
    assert fresh(run).head_node == second
    assert Environment.objects.count() == 2, "one a base"


def test_another_base_prefers_what_was_chosen_before(project: Project, alice: User) -> None:
    node = machine()
    submit(project, alice)
    scheduling.tick(NOW)
    ready(node, NOW + SECOND)
    machine(base="newer", now=NOW + SECOND)
    scheduling.tick(NOW + SECOND)
    node.refresh_from_db()
    (wish,) = told(node).environments
    assert (wish.lock, wish.prefer) == ("", LOCK)


def test_versions_with_the_same_requirements_share_one(project: Project, alice: User) -> None:
    machine()
    submit(project, alice, requires="tqdm\nrich\n")
    submit(project, alice, requires="# words\nRich\n\ntqdm # more\n", name="other")
    scheduling.tick(NOW)
    assert Environment.objects.count() == 1


def test_what_cannot_be_read_is_refused_with_its_line_when_it_is_uploaded(project: Project, alice: User, settings: Any) -> None:
    with pytest.raises(DomainError) as refused:
        submit(project, alice, requires="tqdm\n-e .\n")
    assert "requirements.txt line 2: editable packages" in refused.value.fields["upload"][0]
    with pytest.raises(DomainError):
        submit(project, alice, requires="--index-url https://example.org/simple\ntqdm\n")
    settings.EDT_ENVIRONMENT_ADDRESSES = True
    assert submit(project, alice, requires="--index-url https://example.org/simple\ntqdm\n").version.requirements_key


def test_the_file_beside_the_script_goes_before_the_one_at_the_top(project: Project, alice: User) -> None:
    files = {"a/main.py": "", "a/requirements.txt": "rich\n", "requirements.txt": "tqdm\n"}
    assert "rich" in cast.definition(project, by=alice, files=files, command="a/main.py").requirements
    assert "tqdm" in cast.definition(project, by=alice, files=files, command="", name="other").requirements
    version = cast.definition(project, by=alice, files={"main.py": "", "pyproject.toml": '[project]\ndependencies = ["x"]'}, name="third")
    assert version.requirements == "x  # pyproject.toml:2\n"


def ended(run: TrainingRun, state: str = RunState.STOPPED) -> None:
    TrainingRun.objects.filter(pk=run.pk).update(state=state)


def test_what_no_run_has_used_for_a_while_is_collected_and_nothing_else(project: Project, alice: User) -> None:
    node = machine()
    run = submit(project, alice)
    scheduling.tick(NOW)
    ready(node, NOW)
    scheduling.tick(NOW)
    late = NOW + dt.timedelta(days=40)
    assert environments.collect(late) == 0, "a live run needs it, however long it has been there"
    ended(run)
    assert environments.collect(NOW + dt.timedelta(days=2)) == 0
    assert environments.collect(late) == 1
    assert told(node, late).drop == (FOLDER,)
    says(node, late, state="ready", folders=(FOLDER,))
    assert EnvironmentBuild.objects.get().state == "dropped", "it is there until the machine says that it is gone"
    says(node, late, state="ready", folders=())
    assert not EnvironmentBuild.objects.exists()
    assert Environment.objects.get().lock == LOCK, "a rerun in a year gets the same"


def test_above_the_limit_of_the_disk_the_longest_unused_go_first(project: Project, alice: User, settings: Any) -> None:
    node = machine()
    runs = [submit(project, alice, requires=f"{name}\n", name=name) for name in ("one", "two", "three")]
    scheduling.tick(NOW)
    for place, build in enumerate(EnvironmentBuild.objects.order_by("pk")):
        at = NOW + place * SECOND
        build.state, build.folder, build.size_bytes, build.used_at, build.ended_at = "ready", f"{place}" * 40, 1000, at, at
        build.save()
    ended(runs[0])
    ended(runs[2])
    settings.EDT_ENVIRONMENT_BYTES = 2500
    assert environments.collect(NOW + 5 * SECOND) == 1
    settings.EDT_ENVIRONMENT_BYTES = 100
    assert environments.collect(NOW + 5 * SECOND) == 1
    assert environments.collect(NOW + 5 * SECOND) == 0
    assert told(node).drop == ("0" * 40, "2" * 40), "the one in between is used"


def test_a_run_that_comes_while_its_environment_is_deleted_has_it_built_again(project: Project, alice: User) -> None:
    node = machine()
    run = submit(project, alice)
    scheduling.tick(NOW)
    ready(node, NOW)
    ended(run)
    assert environments.collect(NOW + dt.timedelta(days=40)) == 1
    late = NOW + dt.timedelta(days=40)
    node = machine(now=late)
    again = services.run_experiment(run.experiment, by=alice, now=late)[0]
    scheduling.tick(late)
    assert fresh(again).plan_reason == "Building the environment on local"
    assert told(node, late).drop == (), "it is wanted again"
    says(node, late, state="ready", folder=FOLDER, folders=(FOLDER,), attempt=1)
    scheduling.tick(late)
    assert cast.slots_of(again) == set(), "what the machine said before it heard of that does not count"
    ready(node, late)
    scheduling.tick(late)
    assert len(cast.slots_of(again)) == 4


def test_environments_with_one_lock_share_a_folder_which_stays_while_either_is_used(project: Project, alice: User) -> None:
    node = machine()
    one, two = submit(project, alice, requires="tqdm\n", name="one"), submit(project, alice, requires="tqdm>=4\n", name="two")
    scheduling.tick(NOW)
    ready(node, NOW)
    assert EnvironmentBuild.objects.filter(state="ready", folder=FOLDER).count() == 2
    ended(one)
    late = NOW + dt.timedelta(days=40)
    assert environments.collect(late) == 0
    ended(two)
    assert environments.collect(late) == 2
    assert told(node, late).drop == (FOLDER,)


def test_deleting_runs_and_definitions_deletes_no_environment_that_is_used(project: Project, alice: User) -> None:
    node = machine()
    run, other = submit(project, alice, name="one"), submit(project, alice, name="two")
    scheduling.tick(NOW)
    ready(node, NOW)
    TrainingRun.objects.filter(pk=other.pk).update(state=RunState.STOPPED)
    services.delete_experiment(other.experiment, by=alice)
    services.delete_definition(other.version.definition, by=alice)
    cast.empty_trash(NOW + dt.timedelta(days=60))
    pruning.prune(NOW + dt.timedelta(days=60))
    assert EnvironmentBuild.objects.get().state == "ready"
    assert told(node).drop == ()
    assert fresh(run).is_live()


def test_a_lock_goes_when_no_version_asks_for_it_any_more(project: Project, alice: User) -> None:
    machine()
    run = submit(project, alice)
    scheduling.tick(NOW)
    ended(run)
    environments.collect(NOW)
    assert Environment.objects.exists()
    EnvironmentBuild.objects.all().delete()
    environments.collect(NOW)
    assert Environment.objects.exists(), "a version asks for it"
    services.delete_experiment(run.experiment, by=alice)
    services.delete_definition(run.version.definition, by=alice)
    environments.collect(NOW)
    assert not Environment.objects.exists()


def test_an_administrator_deletes_what_no_live_run_needs(project: Project, alice: User, dora: User) -> None:
    node = machine()
    run = submit(project, alice)
    scheduling.tick(NOW)
    ready(node, NOW)
    environment = Environment.objects.get()
    with pytest.raises(DomainError, match="runs that have not ended need it"):
        services.drop_environment(environment, by=dora)
    ended(run)
    services.drop_environment(environment, by=dora)
    assert told(node).drop == (FOLDER,)
