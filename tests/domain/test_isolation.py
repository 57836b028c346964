"""A second person, and machines whose boxes keep people's code apart or do not: who waits where, who goes on, and what an administrator
changes about it."""

from __future__ import annotations

import datetime as dt
import io
from dataclasses import replace

import pytest
from django.core.management import call_command

from experiments import services
from experiments.accounts import passwords
from experiments.cluster import desired, fleet, isolation, scheduling
from experiments.management.demonstration import story
from experiments.models import ClusterChange, ClusterRules, EnvironmentBuild, Node, Project, RunState, TrainingRun, User
from tests import cast
from training_runtime.scheduling.isolation import REMEDY, waits

pytestmark = pytest.mark.django_db
NOW = dt.datetime(2026, 11, 20, 12, 0, tzinfo=dt.UTC)
SECOND = dt.timedelta(seconds=1)
WAITS = waits([("local", "landlock")])


@pytest.fixture
def hers(alice: User) -> Project:
    """A project of Alice's, who is alone in the studio."""
    return services.create_project(by=alice, name="Hers")


@pytest.fixture
def host(hers: Project) -> cast.Host:
    return cast.Host(cast.node(level="landlock", now=NOW))


def fresh(run: TrainingRun) -> TrainingRun:
    run.refresh_from_db()
    return run


def turns(host: cast.Host, *, first: int, count: int = 3) -> dt.datetime:
    for second in range(first, first + count):
        scheduling.tick(NOW + second * SECOND)
        host.apply(NOW + second * SECOND)
    return NOW + (first + count) * SECOND


def trust(dora: User, *, yes: bool = True) -> None:
    services.set_policy(by=dora, policy="fair_share", people_trust_each_other=yes, reason="one lab")


def test_one_persons_code_runs_in_whatever_box_there_is(hers: Project, alice: User, host: cast.Host) -> None:
    for level in ("landlock", "limits", "off"):
        Node.objects.update(sandbox_level=level)
        assert isolation.closed_machines() == []
    run = cast.run(hers, by=alice, now=NOW)
    scheduling.tick(NOW)
    assert len(cast.slots_of(run)) == 4
    assert [each.spec.isolated for each in desired.desired_state(host.node, now=NOW).runs] == [False]


def test_with_a_second_person_runs_wait_with_a_sentence_until_an_administrator_says_that_they_trust_each_other(
    hers: Project, alice: User, bob: User, dora: User, host: cast.Host
) -> None:
    run = cast.run(hers, by=alice, now=NOW)
    bobs = cast.run(services.create_project(by=bob, name="His"), by=bob, now=NOW)
    turns(host, first=0)
    for each in (run, bobs):
        assert (fresh(each).state, each.plan_reason, each.head_node, cast.slots_of(each)) == (RunState.QUEUED, WAITS, None, set())
    assert REMEDY in run.plan_reason
    assert scheduling.preview(now=NOW, cluster=scheduling.ClusterWish(people_trust_each_other=True)).sentences
    trust(dora)
    said = ClusterChange.objects.latest("pk")
    assert said.text == "dora said that the people here trust each other with their code, where a box does not keep it apart"
    assert (said.actor, said.reason) == (dora, "one lab")
    turns(host, first=4)
    assert (len(cast.slots_of(run)), len(cast.slots_of(bobs))) == (2, 2)
    assert not any(each.spec.isolated for each in desired.desired_state(host.node, now=NOW + 9 * SECOND).runs)


def test_what_is_at_work_when_a_second_person_comes_goes_on_and_nothing_new_is_begun_beside_it(
    hers: Project, alice: User, host: cast.Host
) -> None:
    run = cast.run(hers, by=alice, max_slots=2, now=NOW)
    turns(host, first=0)
    slots = cast.slots_of(run)
    cast.person("bob")
    later = cast.run(hers, by=alice, max_slots=2, name="later", now=NOW + 4 * SECOND)
    turns(host, first=5)
    assert cast.slots_of(run) == slots
    assert fresh(run).plan_reason == "holds 2 of 4 slots: its maximum"
    assert (cast.slots_of(later), fresh(later).plan_reason) == (set(), WAITS)


def test_a_run_whose_script_was_to_begin_there_is_called_back_before_it_has_slots(hers: Project, alice: User, host: cast.Host) -> None:
    first = cast.run(hers, by=alice, now=NOW)
    turns(host, first=0)
    second = cast.run(hers, by=alice, name="second", now=NOW + 4 * SECOND)
    scheduling.tick(NOW + 5 * SECOND)
    assert fresh(second).head_node == host.node, "its driver is to start while the other gives slots back"
    assert second.pk in {each.spec.run for each in desired.desired_state(host.node, now=NOW + 5 * SECOND).runs}
    cast.person("bob")
    scheduling.tick(NOW + 6 * SECOND)
    assert second.pk not in {each.spec.run for each in desired.desired_state(host.node, now=NOW + 6 * SECOND).runs}
    turns(host, first=7)
    assert (fresh(second).head_node, second.state, second.plan_reason) == (None, RunState.QUEUED, WAITS)
    assert len(cast.slots_of(first)) == 4, "it has them all again"


def test_among_several_machines_a_run_goes_to_one_that_keeps_people_apart(project: Project, alice: User, dora: User) -> None:
    weak = cast.node("a-weak", slots=4, level="limits", now=NOW)
    strong = cast.node("b-strong", slots=2, level="user", now=NOW)
    run = cast.run(project, by=alice, now=NOW)
    scheduling.tick(NOW)
    assert fresh(run).head_node == strong
    assert cast.slots_of(run) == set(strong.slots.values_list("pk", flat=True))
    assert [each.spec.isolated for each in desired.desired_state(strong, now=NOW).runs] == [True], "its host is held to what it said"
    assert desired.desired_state(weak, now=NOW).runs == ()
    trust(dora)
    other = cast.run(project, by=alice, name="other", now=NOW + SECOND)
    scheduling.tick(NOW + SECOND)
    assert fresh(other).head_node == weak


def test_a_run_that_needs_a_device_of_a_machine_that_refuses_is_told_that(project: Project, alice: User) -> None:
    cast.node("gpus", gpus=4, level="landlock", now=NOW)
    cast.node("cpus", now=NOW)
    version = cast.definition(project, by=alice, device="gpu")
    run = services.run_experiment(cast.experiment(project, by=alice, versions=[version]), by=alice, now=NOW)[0]
    scheduling.tick(NOW)
    assert fresh(run).plan_reason == waits([("gpus", "landlock")])


def test_a_machine_that_has_not_said_its_level_is_as_before(project: Project, alice: User) -> None:
    cast.node(level="", now=NOW)
    run = cast.run(project, by=alice, now=NOW)
    scheduling.tick(NOW)
    assert len(cast.slots_of(run)) == 4


def test_no_environment_is_built_where_code_is_refused(hers: Project, alice: User, bob: User) -> None:
    about = replace(cast.facts(level="landlock"), base="cpu", base_words="Python 3.11, torch 2.13")
    node = fleet.register(about, now=NOW, slots=4)
    version = cast.definition(hers, by=alice, files={"main.py": cast.MAIN_PY, "requirements.txt": "tqdm\n"})
    run = services.run_experiment(cast.experiment(hers, by=alice, versions=[version]), by=alice, now=NOW)[0]
    scheduling.tick(NOW)
    assert not EnvironmentBuild.objects.exists()
    assert fresh(run).plan_reason == WAITS
    bob.is_active = False
    bob.save()
    scheduling.tick(NOW + SECOND)
    assert len(desired.desired_state(node, now=NOW + SECOND).environments) == 1
    bob.is_active = True
    bob.save()
    assert desired.desired_state(node, now=NOW + SECOND).environments == (), "one that is being built is cancelled"


def test_who_counts_as_a_person(hers: Project, alice: User, host: cast.Host) -> None:
    assert isolation.people() == 1
    User.objects.create_user("backups")  # no password: nobody can act as it
    assert isolation.people() == 1
    bob, dora = cast.person("bob"), cast.person("dora", staff=True)
    assert isolation.people() == 3, "administrators can run code too"
    run = cast.run(services.create_project(by=bob, name="His"), by=bob, now=NOW)
    User.objects.filter(pk__in=(bob.pk, dora.pk)).update(is_active=False)
    assert isolation.people() == 2, "his code is still about"
    services.stop_run(run, by=alice)
    turns(host, first=0)
    assert (fresh(run).state, isolation.people()) == (RunState.STOPPED, 1)


def test_who_makes_the_second_account_is_told_what_that_does(hers: Project, alice: User, host: cast.Host) -> None:
    out, said = io.StringIO(), io.StringIO()
    call_command("person", "alice", stdout=out, stderr=said)
    assert said.getvalue() == ""
    call_command("person", "bob", stdout=out, stderr=said)
    assert "2 people can run code here, and the box of local (landlock) does not keep it apart." in said.getvalue()
    assert REMEDY in said.getvalue()
    assert out.getvalue().split()[-2] == "bob", "the password stays alone on its line"


def test_the_planner_is_asked_at_once_when_an_account_is_made(hers: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    monkeypatch.setattr("experiments.live.notify.nudge_schedule", lambda: asked.append(True))
    passwords.give_password("bob")
    assert asked


def test_the_demonstration_says_it_for_its_two_people_and_for_nobody_else(hers: Project, bob: User, dora: User, host: cast.Host) -> None:
    cast.person("carol")
    with pytest.raises(story.DemonstrationFailed, match=r"local \(landlock\) does not .* apart, and carol can run code here too"):
        story.trust_each_other()
    assert not ClusterRules.current().people_trust_each_other
    User.objects.filter(username="carol").update(is_active=False)
    assert story.trust_each_other().startswith("alice and bob trust each other here: the box of local (landlock) does not keep")
    assert ClusterRules.current().people_trust_each_other
    assert story.trust_each_other() == "", "it has been said"


def test_the_demonstration_says_nothing_where_people_are_kept_apart(hers: Project, bob: User) -> None:
    cast.node(now=NOW)
    assert story.trust_each_other() == ""
    assert not ClusterRules.current().people_trust_each_other
