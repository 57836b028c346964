"""The guided sample: one click makes it and runs it, and it is there once."""

from __future__ import annotations

import re
import uuid

import pytest
from django.urls import reverse
from django.utils import timezone

from experiments.cluster import desired, scheduling
from experiments.files import datastore
from experiments.models import Experiment, Node, Project, TrainingRun, User
from experiments.services import reruns
from tests.web.conftest import As

pytestmark = pytest.mark.usefixtures("said")


def test_a_first_visit_offers_it_and_one_click_queues_a_run_with_its_data(charlie: User, node: Node, as_: As) -> None:
    client = as_(charlie)
    assert reverse("sample") in client.get(reverse("projects")).content.decode()
    answer = client.post(reverse("sample"), {"idempotency_key": str(uuid.uuid4())})
    run = TrainingRun.objects.get()
    assert answer.url == reverse("run", args=[run.pk])
    scheduling.tick(timezone.now())
    spec = desired.desired_state(node, now=timezone.now()).runs[0].spec
    assert spec.data_dir == str(datastore.root(run.experiment.data_asset))
    assert spec.argv == ("main.py", "--epochs", "30")
    assert (datastore.root(run.experiment.data_asset) / "train-images-idx3-ubyte.gz").is_file()


def test_its_overview_guides_on(charlie: User, as_: As) -> None:
    client = as_(charlie)
    client.post(reverse("sample"), {"idempotency_key": str(uuid.uuid4())})
    page = client.get(reverse("project", args=[Project.objects.get().pk])).content.decode()
    assert "What to try with this sample" in page
    assert reverse("run", args=[TrainingRun.objects.get().pk]) in page


def test_its_guide_ends_in_a_comparison_of_the_two_newest_runs_that_have_completed(charlie: User, as_: As) -> None:
    client = as_(charlie)
    client.post(reverse("sample"), {"idempotency_key": str(uuid.uuid4())})
    first, now = TrainingRun.objects.get(), timezone.now()
    pair = reruns.run_with_changes(first, by=charlie, commands=[f"main.py --lr {rate}" for rate in ("0.001", "0.003")], now=now)
    address = reverse("project", args=[first.experiment.project_id])

    def end(run: TrainingRun, state: str) -> None:
        TrainingRun.objects.filter(pk=run.pk).update(state=state, started_at=now, ended_at=now)

    def offered() -> list[str]:
        return re.findall(r'href="/compare/\?([^"]*)"', client.get(address).content.decode())

    end(first, "failed")
    end(pair[0], "completed")
    assert offered() == [], "one alone is compared with nothing"
    end(pair[1], "completed")
    assert offered() == [f"run={pair[0].pk}&amp;run={pair[1].pk}"]
    end(first, "completed")
    assert offered() == [f"run={pair[0].pk}&amp;run={pair[1].pk}"]


def test_asked_for_again_it_leads_to_the_one_there_is(charlie: User, as_: As) -> None:
    client = as_(charlie)
    addresses = {client.post(reverse("sample"), {"idempotency_key": str(uuid.uuid4())}).url for _ in range(2)}
    assert len(addresses) == 1
    assert (Project.objects.count(), Experiment.objects.count(), TrainingRun.objects.count()) == (1, 1, 1)


def test_everybody_has_one_of_their_own(charlie: User, alice: User, as_: As) -> None:
    for person in (charlie, alice):
        as_(person).post(reverse("sample"), {})
    assert {project.created_by for project in Project.objects.filter(sample=True)} == {charlie, alice}
    assert as_(alice).get(reverse("project", args=[Project.objects.get(created_by=charlie).pk])).status_code == 404
