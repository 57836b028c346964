"""Forms that make something, sent again: as they were they make it once, with something else in them they make another."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from django.urls import reverse

from experiments import services
from experiments.errors import DomainError
from experiments.models import DefinitionVersion, Experiment, Project, TrainingDefinition, TrainingRun, User
from tests import cast
from tests.conftest import SentMessages
from tests.web.browsing import Site, Visit, go
from tests.web.conftest import As, code, definition_form


@pytest.fixture
def version(project: Project, alice: User, said: SentMessages) -> DefinitionVersion:
    return cast.definition(project, by=alice)


def form(**changes: Any) -> dict[str, Any]:
    return {"name": "first try", "description": "", "source_folder": "", "global_command": "", **changes}


def test_back_and_another_command_is_another_experiment(project: Project, alice: User, version: DefinitionVersion, as_: As) -> None:
    client, address = as_(alice), reverse("new_experiment", args=[project.pk])
    sent = form(idempotency_key=str(uuid.uuid4()), versions=[version.pk])
    for command in ("main.py --lr 0.1", "main.py --lr 0.2", "main.py --lr 0.2"):
        assert client.post(address, {**sent, f"command-{version.pk}": command}).status_code == 302
    assert list(TrainingRun.objects.order_by("pk").values_list("command", flat=True)) == ["main.py --lr 0.1", "main.py --lr 0.2"]


def test_back_and_another_zip_is_another_definition(project: Project, alice: User, said: SentMessages, as_: As) -> None:
    client, address, key = as_(alice), reverse("new_definition", args=[project.pk]), str(uuid.uuid4())
    for files in ({"main.py": "print(1)"}, {"main.py": "print(2)"}, {"main.py": "print(2)"}):
        client.post(address, definition_form(idempotency_key=key, upload=code(files)))
    assert TrainingDefinition.objects.count() == 2


def test_another_name_of_a_project_is_another_project(alice: User, as_: As) -> None:
    key = str(uuid.uuid4())
    for name in ("Digits", "Letters", "Letters"):
        as_(alice).post(reverse("new_project"), {"idempotency_key": key, "name": name})
    assert Project.objects.count() == 2


def test_a_page_that_was_open_before_an_upgrade_still_makes_it_once(alice: User, as_: As) -> None:
    """Its form has the key under the name that it had then."""
    key = str(uuid.uuid4())
    for _ in range(2):
        assert as_(alice).post(reverse("new_project"), {"request_id": key, "name": "Digits"}).status_code == 302
    assert Project.objects.count() == 1


def test_a_definition_that_was_saved_with_a_refused_experiment_is_kept_and_chosen(
    project: Project, alice: User, said: SentMessages, as_: As
) -> None:
    """Without script. The zip has no train.py: the next attempt takes the other command, and no second definition comes of it."""
    client, address = as_(alice), reverse("new_experiment", args=[project.pk])
    inline = {f"new-{name}": value for name, value in definition_form(command="").items()}
    first = client.post(address, form(idempotency_key=str(uuid.uuid4()), use_global="on", global_command="train.py", **inline))
    shown = first.content.decode()
    made = DefinitionVersion.objects.get()
    assert "train.py" in shown
    assert "is saved as a training definition" in shown
    assert f'name="versions" value="{made.pk}"' in shown
    assert 'name="new-name" value="lenet"' not in shown
    assert not Experiment.objects.exists()
    again = client.post(address, form(idempotency_key=str(uuid.uuid4()), use_global="on", global_command="main.py", versions=[made.pk]))
    assert again.status_code == 302
    assert DefinitionVersion.objects.count() == 1
    assert TrainingRun.objects.get().command == "main.py"


def test_an_experiment_whose_runs_cannot_begin_is_not_left_behind(
    project: Project, alice: User, version: DefinitionVersion, as_: As, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder goes between the check and the run."""
    from experiments.services import experiments as verbs

    def gone(*_: Any, **__: Any) -> None:
        raise DomainError({"source_folder": ["There is no folder digits any more."]})

    monkeypatch.setattr(verbs, "run_experiment", gone)
    with pytest.raises(DomainError):
        services.create_and_run(project, by=alice, name="x", versions=[version])
    assert not Experiment.objects.exists()


def test_a_page_whose_button_makes_something_is_not_kept_for_the_way_back(
    project: Project, alice: User, said: SentMessages, as_: As
) -> None:
    run = cast.run(project, by=alice)
    client = as_(alice)
    assert client.get(reverse("experiment", args=[run.experiment_id]))["Cache-Control"] == "no-store"
    assert client.get(reverse("new_experiment", args=[project.pk]))["Cache-Control"] == "private, no-cache", "what was typed comes back"


@pytest.mark.parametrize("script", [True, False])
def test_in_a_browser_back_change_and_submit_makes_another(script: bool, visit: Visit, site: Site) -> None:
    page = visit(script=script)
    go(page, site, "edit as new")
    page.get_by_label("Name").first.fill(f"Learning rates {script}")
    page.get_by_role("button", name="Create and run").click()
    page.wait_for_url("**/experiments/*/")
    first = page.url
    page.go_back()
    page.get_by_label("Name").first.fill(f"Other learning rates {script}")
    page.get_by_role("button", name="Create and run").click()
    page.wait_for_url("**/experiments/*/")
    assert page.url != first
    assert f"Other learning rates {script}" in page.get_by_role("heading", level=1).inner_text()


@pytest.mark.parametrize("script", [True, False])
def test_in_a_browser_run_again_after_back_runs_again(script: bool, visit: Visit, site: Site) -> None:
    page = visit(script=script)
    go(page, site, "edit as new")
    page.get_by_label("Name").first.fill(f"Twice {script}")
    page.get_by_role("button", name="Create and run").click()
    page.wait_for_url("**/experiments/*/")
    runs = page.locator("main a[href^='/runs/']")
    numbers = set()
    for _ in range(2):
        page.get_by_role("button", name="Run again").click()
        page.get_by_text("Queued: the runs are below.").first.wait_for()
        numbers |= {link.get_attribute("href") for link in runs.all()}
        go(page, site, "projects")
        page.go_back()
    assert len({number for number in numbers if number and number.count("/") == 3}) == 3
