"""Who gets the network: runs whose training definition asks for it, in projects that may have it."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
from django.apps import apps

from experiments import services
from experiments.cluster import scheduling
from experiments.errors import DomainError
from experiments.models import ClusterRules, DefinitionVersion, Node, Project, User
from tests import cast
from tests.domain.test_services import refused
from tests.domain.test_torchrun import NOW, spec_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def node(db: None) -> Node:
    return cast.node(now=NOW)


def asks(project: Project, by: User, **said: Any) -> DefinitionVersion:
    return cast.definition(project, by=by, network="outward", **said)


def close_to(project: Project, *, by: User, closed: bool = True) -> None:
    services.set_policy(by=by, policy="fair_share", without_network=[str(project.pk)] if closed else [])


@pytest.mark.parametrize(("network", "told"), [("none", False), ("outward", True)])
def test_a_machine_is_told_whether_a_run_gets_the_network(network: str, told: bool, project: Project, alice: User, node: Node) -> None:
    version = cast.definition(project, by=alice, network=network)
    run = services.run_experiment(cast.experiment(project, by=alice, versions=[version]), by=alice, now=NOW)[0]
    scheduling.tick(NOW)
    assert spec_of(run, node).network is told


def test_what_was_closed_after_it_was_submitted_is_closed(project: Project, alice: User, dora: User, node: Node) -> None:
    run = services.run_experiment(cast.experiment(project, by=alice, versions=[asks(project, alice)]), by=alice, now=NOW)[0]
    close_to(project, by=dora)
    scheduling.tick(NOW)
    assert spec_of(run, node).network is False


def test_a_run_that_asks_is_not_begun_where_it_is_closed_and_says_what_to_do(project: Project, alice: User, dora: User) -> None:
    version = asks(project, alice)
    experiment = cast.experiment(project, by=alice, versions=[version])
    close_to(project, by=dora)
    with pytest.raises(DomainError, match="ask an administrator to open it on the page Sharing"):
        services.run_experiment(experiment, by=alice)
    assert set(refused(lambda: cast.experiment(project, by=alice, versions=[version]))) == {"versions"}
    elsewhere = services.create_project(by=alice, name="Elsewhere")
    services.run_experiment(cast.experiment(elsewhere, by=alice, versions=[asks(elsewhere, alice)]), by=alice)
    close_to(project, by=dora, closed=False)
    services.run_experiment(experiment, by=alice)


def test_copies_of_a_definition_ask_as_it_does_and_a_new_version_as_it_says(project: Project, alice: User) -> None:
    version = asks(project, alice)
    assert services.copy_definition(version, to=services.create_project(by=alice, name="Elsewhere"), by=alice).network == "outward"
    assert services.add_version(version.definition, by=alice, command="main.py").network == "none"
    assert set(refused(lambda: services.add_version(version.definition, by=alice, command="main.py", network="intranet"))) == {"network"}


def test_projects_to_come_are_closed_where_the_rules_say_so(project: Project, alice: User, dora: User) -> None:
    services.set_policy(by=dora, policy="fair_share", new_projects_network=False)
    made = services.create_project(by=alice, name="New")
    rules = ClusterRules.current()
    assert (rules.may_use_network(made.pk), rules.may_use_network(project.pk)) == (False, True)


def test_versions_from_before_go_on_with_the_network() -> None:
    migration = importlib.import_module("experiments.migrations.0049_network_of_runs").Migration
    added, altered = (each.field.default for each in migration.operations if getattr(each, "name", "") == "network")
    assert (added, altered) == ("outward", "none")
    assert apps.get_model("experiments", "DefinitionVersion")._meta.get_field("network").default == "none"
