"""Run with changes: new runs in the experiment of any run, by the page, by the API and by the service behind them."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from playwright.sync_api import expect

from experiments import services
from experiments.errors import DomainError
from experiments.models import Project, TrainingRun, User
from tests import cast
from tests.conftest import SentMessages
from tests.web import api
from tests.web.browsing import Site, Visit
from tests.web.conftest import As


@pytest.fixture
def run(project: Project, alice: User, said: SentMessages) -> TrainingRun:
    version = cast.definition(project, by=alice, command="main.py --lr 0.1 --epochs 2")
    experiment = services.create_experiment(project, by=alice, name="rates", versions=[version], environment={"A": "1"})
    made = services.run_experiment(experiment, by=alice)[0]
    return services.set_priority(services.set_slots(made, by=alice, min_slots=2, max_slots=3), by=alice, priority=700)


def form(**changes: Any) -> dict[str, Any]:
    return {
        "idempotency_key": str(uuid.uuid4()),
        "command": "main.py --lr 0.1 --epochs 2",
        "min_slots": 2,
        "max_slots": 3,
        "priority": 700,
    } | changes


def post(client: Client, run: TrainingRun, **changes: Any) -> Any:
    return client.post(reverse("run_with_changes", args=[run.pk]), form(version=run.version_id, **changes))


def others(run: TrainingRun) -> list[TrainingRun]:
    return list(TrainingRun.objects.exclude(pk=run.pk).order_by("pk"))


@pytest.mark.parametrize("state", ["queued", "running", "completed", "failed", "stopped"])
def test_a_run_in_any_state_is_run_again_in_its_experiment_with_changes(state: str, run: TrainingRun, bob: User, as_: As) -> None:
    TrainingRun.objects.filter(pk=run.pk).update(state=state)
    client = as_(bob)
    page = client.get(reverse("run_with_changes", args=[run.pk])).content.decode()
    for filled_in in (
        'value="main.py --lr 0.1 --epochs 2"',
        'name="min_slots" value="2"',
        'name="max_slots" value="3"',
        ">\nA=1</textarea>",
    ):
        assert filled_in in page
    answer = post(client, run, command="main.py --lr 0.3 --epochs 2", max_slots=4, environment="A=2\nB=3")
    (made,) = others(run)
    assert answer.url == reverse("run", args=[made.pk])
    assert (made.experiment_id, made.name, made.state, made.submitted_by) == (run.experiment_id, "rates: lr=0.3", "queued", bob)
    assert (made.min_slots, made.max_slots, made.priority, made.priority_agreed) == (2, 4, 700, 0)
    assert made.environment == {"A": "2", "B": "3"}
    assert made.transitions.get().reason == f"Submitted by bob, from run {run.pk} with changes."
    run.refresh_from_db()
    assert (run.state, run.command) == (state, "main.py --lr 0.1 --epochs 2")


def test_a_list_in_its_command_makes_a_run_of_each_value_and_leads_to_the_experiment(run: TrainingRun, alice: User, as_: As) -> None:
    answer = post(as_(alice), run, command="main.py --lr {0.3, 1} --epochs 2")
    assert answer.url == reverse("experiment", args=[run.experiment_id])
    assert [(made.name, made.command) for made in others(run)] == [
        ("rates: lr=0.3", "main.py --lr 0.3 --epochs 2"),
        ("rates: lr=1", "main.py --lr 1 --epochs 2"),
    ]


def test_a_later_version_of_its_definition_can_be_run_and_another_definitions_cannot(run: TrainingRun, alice: User, as_: As) -> None:
    definition = run.version.definition
    newer = services.add_version(
        definition, by=alice, upload=cast.zipped({"train.py": "", "main.py": ""}), file_name="b.zip", command="train.py"
    )
    assert post(as_(alice), run).status_code == 302
    answer = as_(alice).post(reverse("run_with_changes", args=[run.pk]), form(version=newer.pk, command="train.py"))
    assert [made.version_id for made in others(run)] == [run.version_id, newer.pk], answer.content
    other = cast.definition(definition.project, by=alice, name="other")
    assert "id_version_error" in as_(alice).post(reverse("run_with_changes", args=[run.pk]), form(version=other.pk)).content.decode()
    with pytest.raises(DomainError, match="another training definition"):
        services.run_with_changes(run, by=alice, version=other)


def test_it_is_made_once_for_a_form_that_is_sent_twice(run: TrainingRun, alice: User, as_: As) -> None:
    sent = str(uuid.uuid4())
    addresses = {post(as_(alice), run, idempotency_key=sent, command="main.py --lr {1,2}").url for _ in range(2)}
    assert len(addresses) == 1
    assert len(others(run)) == 2
    post(as_(alice), run, idempotency_key=sent, command="main.py --lr 3")
    assert len(others(run)) == 3, "with something else in it it is another form"


def test_who_may_not_write_makes_no_run(run: TrainingRun, victor: User, charlie: User, as_: As) -> None:
    assert Client().post(reverse("run_with_changes", args=[run.pk]), form()).url.startswith(reverse("login"))
    for person, status in ((victor, 403), (charlie, 404)):
        assert as_(person).get(reverse("run_with_changes", args=[run.pk])).status_code == status
        assert post(as_(person), run).status_code == status
        assert api.of(person).post(f"/runs/{run.pk}/rerun").status_code == status
    assert not others(run)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"command": "other.py --lr 5"}, "command"),
        ({"command": ""}, "command"),
        ({"command": "main.py" + " --x {1,2,3}" * 5}, "command"),
        ({"min_slots": 9}, "min_slots"),
        ({"max_slots": 0}, "max_slots"),
        ({"priority": 10_001}, "priority"),
        ({"environment": "PATH=/tmp"}, "environment"),
        ({"environment": "nothing"}, "environment"),
        ({"version": 10**9}, "version"),
    ],
)
def test_what_is_wrong_is_said_at_its_field_and_what_was_typed_stays(
    changes: dict[str, Any], field: str, run: TrainingRun, alice: User, as_: As
) -> None:
    page = as_(alice).post(
        reverse("run_with_changes", args=[run.pk]), form(**{"version": run.version_id, "environment": "KEPT=1", **changes})
    )
    assert f'id="id_{field}_error"' in page.content.decode()
    assert str(changes.get("environment", "KEPT=1")) in page.content.decode()
    assert not others(run)


def test_a_run_of_a_fixed_number_of_slots_starts_with_all_of_them(project: Project, alice: User, said: SentMessages) -> None:
    run = cast.run(project, by=alice, max_slots=2, distributed="torchrun")
    (made,) = services.run_with_changes(run, by=alice, max_slots=3)
    assert (made.min_slots, made.max_slots) == (3, 3)


def test_an_administrators_priority_counts_at_once(run: TrainingRun, alice: User) -> None:
    User.objects.filter(pk=alice.pk).update(is_staff=True)
    (made,) = services.run_with_changes(run, by=User.objects.get(pk=alice.pk), priority=9000)
    assert (made.priority, made.priority_agreed) == (9000, 9000)


def test_a_run_from_outside_has_no_code_to_run(project: Project, alice: User, said: SentMessages, as_: As) -> None:
    script = api.of(alice)
    outside = script.post(f"/projects/{project.pk}/outside-runs", {"name": "elsewhere"}).json()["id"]
    answer = as_(alice).get(reverse("run_with_changes", args=[outside]), follow=True)
    assert "no code of it to run" in answer.content.decode()
    assert script.post(f"/runs/{outside}/rerun").status_code == 400


def test_a_script_runs_it_with_a_grid_in_place_of_what_it_was_told(run: TrainingRun, alice: User) -> None:
    script = api.of(alice, "write")
    made = script.post(f"/runs/{run.pk}/rerun", {"grid": {"lr": ["1", "2"], "note": ["a,b"]}, "max_slots": 4, "priority": 4000}).json()
    assert [each["command"] for each in made["items"]] == [f"main.py --lr {lr} --epochs 2 --note a,b" for lr in (1, 2)]
    assert {(each["experiment"], each["min_slots"], each["max_slots"], each["priority"]) for each in made["items"]} == {
        (run.experiment_id, 2, 4, 4000)
    }
    refused = script.post(f"/runs/{run.pk}/rerun", {"grid": {"lr": []}})
    assert (refused.status_code, list(refused.json()["errors"])) == (400, ["grid"])
    assert script.post(f"/runs/{run.pk}/rerun", {"nonsense": 1}).status_code == 422
    first, again = (script.post(f"/runs/{run.pk}/rerun", {"command": "main.py"}, **{"Idempotency-Key": "x"}).json() for _ in range(2))
    assert [each["id"] for each in first["items"]] == [each["id"] for each in again["items"]]


def test_in_the_browser_an_argument_is_changed_and_the_run_starts(visit: Visit, site: Site) -> None:
    page = visit()
    page.goto(site.pages["url"] + site.pages["run with changes"])
    page.get_by_text("Arguments of main.py").click()
    page.get_by_label("--lr").fill("0.25")
    expect(page.get_by_label("Execution command")).to_have_value("main.py --epochs 20 --lr 0.25")
    page.get_by_label("Version").select_option(index=0)
    expect(page.get_by_label("--lr")).to_have_value("0.25")
    page.get_by_label("Maximum slots").fill("1")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("lr=0.25")
