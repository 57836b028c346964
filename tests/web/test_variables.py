"""The pages of environment variables: who sees and sets what; a secret's value is on none of them."""

from __future__ import annotations

import pytest
from django.urls import reverse

from experiments import services
from experiments.models import EnvironmentVariable, User
from tests.web.conftest import As
from tests.web.seed import Seeded

SECRET = "hf_Another-s3cret"
pytestmark = pytest.mark.django_db


def pages(studio: Seeded) -> dict[str, str]:
    return {
        "project": reverse("project_variables", args=[studio.digits.pk]),
        "definition": reverse("definition_variables", args=[studio.version.definition.pk]),
    }


@pytest.mark.parametrize("of", ["project", "definition"])
@pytest.mark.parametrize("kind", ["yes", "no"])
def test_one_is_set_replaced_and_deleted(studio: Seeded, as_: As, of: str, kind: str) -> None:
    alice, page = as_(studio.alice), pages(studio)[of]
    for value in (SECRET, f"{SECRET} 2"):
        assert alice.post(page, {"name": "TOKEN", "secret": kind, "value": value}).status_code == 302
        shown = alice.get(page).content.decode()
        assert ">TOKEN<" in shown
        assert (value in shown) is (kind == "no")
        assert (value in alice.get(f"{page}?edit=TOKEN").content.decode()) is (kind == "no")
    assert EnvironmentVariable.objects.filter(name="TOKEN").count() == 1
    assert alice.post(f"{page}TOKEN/delete/").status_code == 302
    assert ">TOKEN<" not in alice.get(page).content.decode()


def test_who_may(studio: Seeded, as_: As) -> None:
    """A project's: its admins; a training definition's: who may edit it. Members see names and plain values."""
    allowed = {("alice", "project"), ("alice", "definition"), ("bob", "definition")}
    for name in ("alice", "bob", "victor"):
        for of, page in pages(studio).items():
            browser = as_(User.objects.get(username=name))
            assert browser.get(page).status_code == 200
            may = (name, of) in allowed
            sent = browser.post(page, {"name": "TOKEN", "secret": "yes", "value": SECRET})
            assert sent.status_code == (302 if may else 403), (name, of)
            assert browser.post(f"{page}TOKEN/delete/").status_code == (302 if may else 403), (name, of)
            assert ("Delete" in browser.get(page).content.decode()) is may
    shown = as_(User.objects.get(username="victor")).get(pages(studio)["project"]).content.decode()
    assert "HF_TOKEN" in shown
    assert "offline" in shown


def test_a_secret_that_is_refused_does_not_come_back(studio: Seeded, as_: As) -> None:
    answer = as_(studio.alice).post(pages(studio)["project"], {"name": "LD_PRELOAD", "secret": "yes", "value": SECRET})
    assert answer.status_code == 200
    assert "could change which code runs" in answer.content.decode()
    assert SECRET not in answer.content.decode()
    assert answer["Cache-Control"] == "no-store"
    plain = as_(studio.alice).post(pages(studio)["project"], {"name": "LD_PRELOAD", "secret": "no", "value": "typed"})
    assert "typed" in plain.content.decode()


@pytest.mark.parametrize("sent", [{}, {"name": "A"}, {"name": "A", "secret": "perhaps"}, {"secret": "yes"}])
def test_what_is_not_whole_is_refused(studio: Seeded, as_: As, sent: dict[str, str]) -> None:
    before = EnvironmentVariable.objects.count()
    answer = as_(studio.alice).post(pages(studio)["definition"], {**sent, "value": SECRET})
    assert answer.status_code == 200
    assert SECRET not in answer.content.decode()
    assert EnvironmentVariable.objects.count() == before


def test_all_but_the_secret_comes_back_as_it_was_typed(studio: Seeded, as_: As) -> None:
    sent = {"name": "HF TOKEN", "secret": "yes", "value": "hf_1"}
    page = as_(studio.alice).post(reverse("project_variables", args=[studio.digits.pk]), sent).content.decode()
    assert 'value="HF TOKEN"' in page
    assert '<option value="yes" selected>' in page
    assert "hf_1" not in page


def test_no_page_of_the_studio_has_the_value(studio: Seeded, as_: As) -> None:
    services.set_variable(studio.digits, by=studio.alice, name="TOKEN", value=SECRET, secret=True)
    run, experiment = studio.queued, studio.experiment
    looked = [
        *pages(studio).values(),
        *(reverse(name, args=[run.pk]) for name in ("run", "run_overview", "run_logs", "run_results", "change_run")),
        *(reverse(name, args=[experiment.pk]) for name in ("experiment", "experiment_overview", "compare")),
        *(reverse(name, args=[studio.digits.pk]) for name in ("project", "assets", "members", "project_settings", "new_experiment")),
        f"{reverse('new_experiment', args=[studio.digits.pk])}?like={experiment.pk}",
        reverse("definition", args=[studio.version.definition.pk]),
    ]
    for address in looked:
        answer = as_(studio.alice).get(address)
        assert answer.status_code == 200, address
        assert SECRET not in answer.content.decode(), address
        stored = EnvironmentVariable.objects.get(name="TOKEN").value
        assert stored[:30] not in answer.content.decode(), address
    assert "TOKEN" in as_(studio.alice).get(reverse("run_overview", args=[run.pk])).content.decode()


def test_the_log_of_who_did_what_has_no_value(studio: Seeded, as_: As, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        as_(studio.alice).post(pages(studio)["project"], {"name": "TOKEN", "secret": "yes", "value": SECRET})
    assert "alice sets the secret TOKEN of project" in caplog.text
    assert SECRET not in caplog.text
