"""Environments that administrators offer by name: versions of their text, who has which, and what is built when."""

from __future__ import annotations

import datetime as dt
import uuid

import pytest

from experiments import services
from experiments.cluster import environments, scheduling
from experiments.errors import DomainError
from experiments.models import (
    ClusterChange,
    DefinitionVersion,
    Environment,
    EnvironmentBuild,
    NamedEnvironment,
    NamedVersion,
    Node,
    Project,
    TrainingRun,
    User,
)
from tests import cast
from tests.domain.test_environments import FOLDER, LOCK, NOW, SECOND, ended, fresh, machine, ready, says, told

pytestmark = pytest.mark.django_db


def offer(dora: User, *, name: str = "vision", text: str = "tqdm\n") -> NamedVersion:
    return services.create_named_environment(by=dora, name=name, description="for pictures", text=text, now=NOW)


def choice(offered: NamedVersion) -> str:
    return f"named:{offered.environment_id}"


def definition(project: Project, by: User, offered: NamedVersion, *, name: str = "lenet") -> DefinitionVersion:
    files = cast.zipped({"main.py": cast.MAIN_PY, "requirements.txt": "nothing-of-this-is-read ==\n"})
    said = {"name": name, "file_name": "code.zip", "command": "main.py", "packages": choice(offered)}
    return services.create_definition(project, by=by, upload=files, **said)  # type: ignore[arg-type]


def submit(project: Project, by: User, version: DefinitionVersion, now: dt.datetime = NOW) -> TrainingRun:
    made = cast.experiment(project, by=by, versions=[version], name=f"try {now} {version.pk}")
    return services.run_experiment(made, by=by, now=now)[0]


def message(caught: pytest.ExceptionInfo[DomainError], field: str) -> str:
    return " ".join(caught.value.fields[field])


def test_a_definition_has_what_is_offered_instead_of_what_its_zip_brings(project: Project, alice: User, dora: User) -> None:
    node, offered = machine(), offer(dora)
    version = definition(project, alice, offered)
    assert (version.packages, version.named, version.packages_words) == ("named", offered, "vision version 1")
    run = submit(project, alice, version)
    scheduling.tick(NOW)
    assert fresh(run).plan_reason == "Building the environment on local"
    (wish,) = told(node).environments
    assert (wish.requirements, wish.run) == ("tqdm  # environment vision:1\n", run.pk)
    ready(node, NOW + SECOND)
    scheduling.tick(NOW + SECOND)
    assert fresh(run).head_node == node


def test_definitions_with_one_environment_share_what_is_built(project: Project, alice: User, bob: User, dora: User) -> None:
    node, offered = machine(), offer(dora)
    runs = [submit(project, by, definition(project, by, offered, name=by.username)) for by in (alice, bob)]
    scheduling.tick(NOW)
    ready(node, NOW + SECOND)
    scheduling.tick(NOW + SECOND)
    assert [environments.folder_of(fresh(run), node) for run in runs] == [FOLDER, FOLDER]
    assert Environment.objects.count() == EnvironmentBuild.objects.count() == 1


def test_a_renewed_one_is_resolved_again_and_who_has_the_old_one_keeps_it(project: Project, alice: User, dora: User) -> None:
    node, offered = machine(), offer(dora)
    old = definition(project, alice, offered)
    first = submit(project, alice, old)
    scheduling.tick(NOW)
    ready(node, NOW + SECOND)
    renewed = services.renew_named_environment(offered.environment, by=dora, now=NOW + SECOND)
    assert (renewed.number, renewed.text) == (2, offered.text)
    ended(first)
    late = NOW + dt.timedelta(days=365)
    machine(now=late)
    again = submit(project, alice, old, now=late)
    new = submit(project, alice, definition(project, alice, renewed, name="of today"), now=late)
    scheduling.tick(late)
    by_run = {wish.run: wish for wish in told(node, late).environments}
    assert by_run[again.pk].lock == LOCK, "in a year the same"
    assert (by_run[new.pk].lock, by_run[new.pk].prefer) == ("", ""), "nothing of the old lock decides what the new one gets"
    assert Environment.objects.get(requirements_key=offered.requirements_key).lock == LOCK


def test_a_new_version_of_a_definition_has_the_newest_of_its_environment(project: Project, alice: User, dora: User) -> None:
    offered = offer(dora)
    old = definition(project, alice, offered)
    changed = services.change_named_environment(offered.environment, by=dora, name="vision", text="tqdm\npandas\n", now=NOW)
    assert changed.number == 2
    new = services.add_version(old.definition, by=alice, command="main.py --epochs 3", packages=old.packages_choice)
    assert (new.named, new.requirements) == (changed, "tqdm  # environment vision:1\npandas  # environment vision:2\n")
    old.refresh_from_db()
    assert old.named == offered
    copy = services.copy_definition(old, to=services.create_project(by=alice, name="Elsewhere"), by=alice)
    assert (copy.named, copy.requirements_key) == (offered, old.requirements_key), "a copy is what it is a copy of"


def test_what_is_saved_unchanged_makes_no_version(dora: User) -> None:
    offered = offer(dora)
    same = services.change_named_environment(offered.environment, by=dora, name="Vision", description="new", text="tqdm  \r\n\r\n", now=NOW)
    assert same == offered
    environment = NamedEnvironment.objects.get()
    assert (environment.name, environment.description) == ("Vision", "new")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tqdm\n\n# mine\ntorch vision\n", "environment vision line 4: torch vision is not a requirement"),
        ("tqdm\n-e .\n", "environment vision line 2: editable packages (-e) are not installed"),
        ("--index-url https://x.example.org\n", "environment vision line 1: --index-url is not taken"),
        ("-r other.txt\n", "environment vision line 1: there is no other.txt"),
        ("-r environment vision\n", "names itself again"),
        ("# nothing\n", "It names no package"),
        ("tqdm\0", "NUL"),
        ("a" * (256 << 10) + "\n", "is larger than 256 KiB"),
    ],
)
def test_a_wrong_text_is_refused_with_its_line_before_it_is_saved(dora: User, text: str, said: str) -> None:
    with pytest.raises(DomainError) as caught:
        offer(dora, text=text)
    assert said in message(caught, "text")
    offered = offer(dora)
    with pytest.raises(DomainError) as caught:
        services.change_named_environment(offered.environment, by=dora, name="vision", text=text)
    assert said in message(caught, "text")
    assert NamedVersion.objects.count() == 1


def test_names_are_one_of_a_kind_and_plain(dora: User) -> None:
    offer(dora)
    other = offer(dora, name="sound")
    for name in ("Vision", " vision "):
        with pytest.raises(DomainError) as caught:
            offer(dora, name=name)
        assert "already" in message(caught, "name")
    with pytest.raises(DomainError):
        services.change_named_environment(other.environment, by=dora, name="vision", text="tqdm")
    for name in ("", "#1", "a\nb#c", "x" * 61, "a:1"):
        with pytest.raises(DomainError) as caught:
            offer(dora, name=name)
        assert message(caught, "name")


def test_a_form_that_is_sent_twice_makes_one(dora: User) -> None:
    same = uuid.uuid4()
    made = [services.create_named_environment(by=dora, name="vision", text="tqdm", idempotency_key=same) for _ in range(2)]
    assert made[0] == made[1]
    again = uuid.uuid4()
    renewed = [services.renew_named_environment(made[0].environment, by=dora, idempotency_key=again) for _ in range(2)]
    assert renewed[0] == renewed[1]
    assert NamedVersion.objects.count() == 2


def test_a_retired_one_is_chosen_by_nobody_new_and_who_has_it_goes_on(project: Project, alice: User, dora: User) -> None:
    offered = offer(dora)
    old = definition(project, alice, offered)
    services.retire_named_environment(offered.environment, by=dora, retired=True, now=NOW)
    with pytest.raises(DomainError) as caught:
        definition(project, alice, offered, name="another")
    assert "not offered any more" in message(caught, "packages")
    went_on = services.add_version(old.definition, by=alice, command="main.py -v", packages=old.packages_choice)
    assert went_on.named == offered
    other = services.add_version(old.definition, by=alice, command="main.py", packages="studio")
    assert (other.named, other.requirements) == (None, "")
    services.retire_named_environment(offered.environment, by=dora, retired=False, now=NOW)
    assert definition(project, alice, offered, name="another").named == offered


@pytest.mark.parametrize("wrong", ["named:", "named:x", "named:-1", "named:²", f"named:{'9' * 30}", "named:0", "named", "mine"])
def test_what_is_not_offered_is_refused(project: Project, alice: User, wrong: str) -> None:
    with pytest.raises(DomainError) as caught:
        services.create_definition(project, by=alice, name="x", upload=cast.zipped(), file_name="code.zip", packages=wrong)
    assert message(caught, "packages")


def test_one_that_a_version_has_is_not_deleted(project: Project, alice: User, dora: User) -> None:
    offered = offer(dora)
    version = definition(project, alice, offered)
    services.change_named_environment(offered.environment, by=dora, name="vision", text="pandas")
    with pytest.raises(DomainError) as caught:
        services.delete_named_environment(offered.environment, by=dora)
    assert caught.value.messages == [
        "Versions of 1 training definition use it (lenet in Digits): retire it instead, then no other can choose it and who has it goes on."
    ]
    services.delete_definition(version.definition, by=alice)
    services.delete_named_environment(offered.environment, by=dora)
    assert not NamedVersion.objects.exists()
    with pytest.raises(DomainError):
        definition(project, alice, offered)


def test_one_that_is_deleted_while_a_definition_is_made_is_refused(
    project: Project, alice: User, dora: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    offered = offer(dora)
    checked = services.definitions._checked

    def slow(*given: object) -> object:
        services.delete_named_environment(NamedEnvironment.objects.get(), by=dora)
        return checked(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(services.definitions, "_checked", slow)
    with pytest.raises(DomainError) as caught:
        definition(project, alice, offered)
    assert "just been deleted" in message(caught, "packages")


def test_it_is_built_in_advance_on_every_machine_and_a_run_finds_it(project: Project, alice: User, dora: User) -> None:
    first, second = machine("a"), machine("b")
    machine("none", base="")
    offered = offer(dora)
    assert services.build_named_environment(offered.environment, by=dora, now=NOW) == 2
    for node in (first, second):
        (wish,) = told(node).environments
        assert (wish.run, wish.lock, wish.requirements) == (0, "", "tqdm  # environment vision:1\n")
    environments.collect(NOW + SECOND)
    assert EnvironmentBuild.objects.count() == 2, "no run needs it, and it is built all the same"
    says(first, NOW + SECOND, state="building", detail="installing")
    assert services.build_named_environment(offered.environment, by=dora, now=NOW + SECOND) == 2, "asked again: it is under way"
    ready(first, NOW + SECOND)
    ready(second, NOW + SECOND)
    assert told(first).environments == ()
    assert told(first).drop == ()
    assert services.build_named_environment(offered.environment, by=dora, now=NOW + SECOND) == 0
    run = submit(project, alice, definition(project, alice, offered), now=NOW + SECOND)
    scheduling.tick(NOW + SECOND)
    assert fresh(run).head_node is not None, "at once"


def test_a_build_in_advance_that_fails_says_why_and_is_tried_again_when_asked(dora: User) -> None:
    node, offered = machine(), offer(dora)
    services.build_named_environment(offered.environment, by=dora, now=NOW)
    says(node, NOW + SECOND, state="failed", problem="environment vision line 1: no", log="$ uv\n")
    build = EnvironmentBuild.objects.get()
    assert (build.state, build.problem) == ("failed", "environment vision line 1: no")
    assert told(node).environments == ()
    services.build_named_environment(offered.environment, by=dora, now=NOW + 2 * SECOND)
    (wish,) = told(node).environments
    assert wish.attempt == 2


def test_a_machine_with_another_base_leaves_nothing_waiting_for_ever(dora: User) -> None:
    offered = offer(dora)
    machine()
    services.build_named_environment(offered.environment, by=dora, now=NOW)
    Node.objects.update(base="newer")
    environments.collect(NOW)
    assert not EnvironmentBuild.objects.exists()


def test_the_lock_of_what_is_offered_stays_though_nobody_has_it(dora: User) -> None:
    node, offered = machine(), offer(dora)
    services.build_named_environment(offered.environment, by=dora, now=NOW)
    ready(node, NOW)
    late = NOW + dt.timedelta(days=15)
    environments.collect(late)
    assert told(node, late).drop == (FOLDER,)
    says(node, late)
    assert not EnvironmentBuild.objects.exists()
    environments.collect(late)
    assert Environment.objects.get().lock == LOCK
    services.delete_named_environment(offered.environment, by=dora)
    environments.collect(late)
    assert not Environment.objects.exists()


def test_the_history_of_the_cluster_says_who_did_what(dora: User) -> None:
    offered = offer(dora)
    environment = offered.environment
    services.change_named_environment(environment, by=dora, name="vision", text="pandas")
    services.renew_named_environment(environment, by=dora)
    for retired in (True, True, False):
        services.retire_named_environment(environment, by=dora, retired=retired)
    services.delete_named_environment(environment, by=dora)
    assert list(ClusterChange.objects.order_by("pk").values_list("text", flat=True)) == [
        "dora offers the environment vision",
        "dora changes the environment vision: version 2",
        "dora renews the environment vision: version 3",
        "dora retires the environment vision",
        "dora offers again the environment vision",
        "dora deletes the environment vision",
    ]
