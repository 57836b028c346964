"""Fetching is the permission check."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import PermissionDenied
from django.http import Http404

from experiments import access
from experiments.models import Node, Project, User
from tests import cast

pytestmark = pytest.mark.django_db


@pytest.fixture
def owned(project: Project, alice: User) -> dict[str, Any]:
    """One thing of each kind in Alice's project, with the function that fetches it."""
    version = cast.definition(project, by=alice)
    experiment = cast.experiment(project, by=alice, versions=[version])
    run = cast.services.run_experiment(experiment, by=alice)[0]
    return {
        "project": (access.project, project.pk),
        "definition": (access.definition, version.definition_id),
        "version": (access.version, version.pk),
        "experiment": (access.experiment, experiment.pk),
        "run": (access.run, run.pk),
        "run_control": (lambda user, pk, need="write": access.run_control(user, pk), run.pk),
    }


KINDS = ["project", "definition", "version", "experiment", "run"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("who", "reads", "writes", "administers"),
    [("alice", True, True, True), ("bob", True, True, False), ("victor", True, False, False)],
)
def test_members_get_what_their_role_allows(
    owned: dict[str, Any], kind: str, who: str, reads: bool, writes: bool, administers: bool, request: pytest.FixtureRequest
) -> None:
    user, (fetch, pk) = request.getfixturevalue(who), owned[kind]
    for need, allowed in (("read", reads), ("write", writes), ("admin", administers)):
        if allowed:
            assert fetch(user, pk, need=need).pk == pk
        else:
            with pytest.raises(PermissionDenied):
                fetch(user, pk, need=need)


@pytest.mark.parametrize("kind", [*KINDS, "run_control"])
def test_a_stranger_is_told_the_same_as_when_there_is_nothing(owned: dict[str, Any], kind: str, charlie: User) -> None:
    fetch: Callable[..., Any]
    fetch, pk = owned[kind]
    for user in (charlie, AnonymousUser()):
        with pytest.raises(Http404) as refused:
            fetch(user, pk)
        with pytest.raises(Http404) as missing:
            fetch(user, 987_654)
        assert str(refused.value) == str(missing.value)


def test_administrators_of_the_cluster_control_runs_and_nodes_but_read_no_project(owned: dict[str, Any], dora: User, node: Node) -> None:
    run = owned["run"][1]
    assert access.run_control(dora, run).experiment.project.my_role == ""
    assert access.node(dora, node.name, need="write") == node
    for kind in KINDS:
        fetch, pk = owned[kind]
        with pytest.raises(Http404):
            fetch(dora, pk)


def test_viewers_do_not_control_runs(owned: dict[str, Any], victor: User, bob: User) -> None:
    run = owned["run"][1]
    assert access.run_control(bob, run).pk == run
    with pytest.raises(PermissionDenied):
        access.run_control(victor, run)
    assert access.may_control(bob, access.run(bob, run))
    assert not access.may_control(victor, access.run(victor, run))


def test_nodes_and_policy_may_be_seen_by_all_and_changed_by_administrators(node: Node, alice: User, dora: User) -> None:
    assert access.node(alice, node.name) == node
    assert access.rules(alice).policy == "fair_share"
    for change in (lambda: access.node(alice, node.name, need="write"), lambda: access.rules(alice, need="write")):
        with pytest.raises(PermissionDenied):
            change()
    assert access.rules(dora, need="write").pk == 1
    for user in (AnonymousUser(),):
        with pytest.raises(Http404):
            access.node(user, node.name)
    with pytest.raises(Http404):
        access.node(alice, "nowhere")


def test_projects_are_listed_for_their_members_with_the_role(project: Project, alice: User, victor: User, charlie: User) -> None:
    assert [(p.pk, p.my_role) for p in access.projects_for(alice)] == [(project.pk, "admin")]
    assert [p.my_role for p in access.projects_for(victor)] == ["viewer"]
    assert not access.projects_for(charlie).exists()
    assert not access.projects_for(AnonymousUser()).exists()


def test_topics_follow_the_same_rules(owned: dict[str, Any], project: Project, victor: User, charlie: User) -> None:
    topics = [f"project-{project.pk}", f"experiment-{owned['experiment'][1]}", f"run-{owned['run'][1]}"]
    assert all(access.topic(victor, topic) for topic in [*topics, "cluster"])
    assert not any(access.topic(charlie, topic) for topic in topics)
    for topic in ("cluster", f"node-{cast.node().pk}"):
        assert access.topic(charlie, topic)
        assert not access.topic(AnonymousUser(), topic)


@pytest.mark.parametrize("topic", ["", "run", "run-", "run-x", "run--1", "run-1e3", "run-٣", "run-" + "9" * 40, "node-1", "cluster-1"])
def test_nonsense_is_no_topic(alice: User, topic: str) -> None:
    assert not access.topic(alice, topic)


def test_many_topics_are_looked_up_together(project: Project, alice: User, charlie: User, django_assert_max_num_queries: Any) -> None:
    runs = [cast.run(project, by=alice) for _ in range(6)]
    names = [*(f"run-{run.pk}" for run in runs), f"project-{project.pk}", f"user-{alice.pk}", "cluster", "run-0", "planet-1"]
    with django_assert_max_num_queries(2):
        assert access.topics(alice, names) == set(names) - {"run-0", "planet-1"}
    assert access.topics(charlie, names) == {"cluster"}
