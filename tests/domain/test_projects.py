"""Projects and their members: who makes one is its admin, the last admin stays, and it is deleted with all it owns."""

from __future__ import annotations

import uuid

import pytest

from experiments import services
from experiments.files import runfiles
from experiments.metrics import ingest
from experiments.models import Membership, Metric, Project, Role, TrainingDefinition, TrainingRun, User
from tests import cast
from tests.domain.test_services import refused

pytestmark = pytest.mark.django_db


def test_who_makes_a_project_is_its_admin(alice: User) -> None:
    project = services.create_project(by=alice, name="  Digits  of \t MNIST ", description="Handwritten.")
    assert (project.name, project.description, project.my_role) == ("Digits of MNIST", "Handwritten.", "admin")
    assert Membership.objects.get(project=project).role == Role.ADMIN


def test_the_same_form_makes_one_project(alice: User, bob: User) -> None:
    form = uuid.uuid4()
    first = services.create_project(by=alice, name="Digits", idempotency_key=form)
    assert services.create_project(by=alice, name="Digits", idempotency_key=form) == first
    assert Project.objects.count() == 1


@pytest.mark.parametrize("name", ["", "   ", "x" * 121, "x" * 300, "nul\0"])
def test_a_project_needs_a_proper_name(alice: User, name: str) -> None:
    assert set(refused(lambda: services.create_project(by=alice, name=name))) == {"name"}
    assert not Project.objects.exists()


def test_a_description_has_a_limit(alice: User) -> None:
    assert "4001" in refused(lambda: services.create_project(by=alice, name="x", description="x" * 4001))["description"][0]


def test_members_are_added_changed_and_removed(project: Project, alice: User, charlie: User) -> None:
    services.add_member(project, by=alice, username="charlie", role="viewer")
    services.add_member(project, by=alice, username="charlie", role="viewer")  # again: no harm
    services.set_role(project, by=alice, username="charlie", role="editor")
    assert Membership.objects.get(project=project, user=charlie).role == Role.EDITOR
    services.remove_member(project, by=alice, username="charlie")
    assert not Membership.objects.filter(project=project, user=charlie).exists()


def test_members_must_exist_and_roles_be_known(project: Project, alice: User) -> None:
    assert set(refused(lambda: services.add_member(project, by=alice, username="nobody", role="viewer"))) == {"username"}
    assert set(refused(lambda: services.add_member(project, by=alice, username="bob", role="king"))) == {"role"}
    assert set(refused(lambda: services.set_role(project, by=alice, username="charlie", role="viewer"))) == {"username"}


def test_the_last_admin_stays(project: Project, alice: User) -> None:
    for attempt in (
        lambda: services.remove_member(project, by=alice, username="alice"),
        lambda: services.set_role(project, by=alice, username="alice", role="viewer"),
        lambda: services.add_member(project, by=alice, username="alice", role="editor"),
    ):
        assert "only admin" in refused(attempt)["username"][0]
    services.set_role(project, by=alice, username="bob", role="admin")
    services.remove_member(project, by=alice, username="alice")
    assert Membership.objects.filter(project=project, role=Role.ADMIN).get().user.username == "bob"


def test_an_admin_whose_account_is_closed_is_none_to_leave_a_project_to(project: Project, alice: User, bob: User, dora: User) -> None:
    services.set_role(project, by=alice, username="bob", role="admin")
    services.close_account(bob, by=dora)
    assert "only admin" in refused(lambda: services.remove_member(project, by=alice, username="alice"))["username"][0]
    services.remove_member(project, by=alice, username="bob")
    assert Membership.objects.filter(project=project, role=Role.ADMIN).get().user == alice


def test_a_project_is_deleted_with_all_it_owns_but_not_while_something_runs(project: Project, alice: User) -> None:
    run = cast.run(project, by=alice)
    cast.write_journal(run, *map(cast.step, range(1, 200)))
    ingest.catch_up(run.pk, now=run.submitted_at)
    assert "stop it" in refused(lambda: services.delete_project(project, by=alice))[""][0]
    assert Metric.objects.count() == 199
    services.stop_run(run, by=alice)
    services.delete_project(project, by=alice)
    assert not (Project.objects.exists() or TrainingRun.objects.exists() or TrainingDefinition.objects.exists())
    cast.empty_trash()
    assert not Metric.objects.exists()
    assert not runfiles.folder(run).exists()
