"""The cluster as an instance group: who walks through WMLA's console finds it, starts it, and sees its applications."""

from __future__ import annotations

import pytest
from django.urls import reverse
from django.utils import timezone

from experiments.models import ClusterChange, Grant, Node, Slot
from experiments.selectors.instance_groups import NAME
from tests.web.conftest import As
from tests.web.seed import Seeded


@pytest.fixture
def second(studio: Seeded) -> Node:
    """Another node that is heard of."""
    Node.objects.update(last_seen_at=timezone.now())
    return Node.objects.create(name="second", last_seen_at=timezone.now())


def listed(as_: As, studio: Seeded) -> str:
    return as_(studio.dora).get(reverse("instance_groups"), {"part": "list"}).content.decode()


def test_it_is_ready_while_all_nodes_take_runs_and_says_what_is_held(studio: Seeded, second: Node, as_: As) -> None:
    page = listed(as_, studio)
    assert "Ready" in page
    held = Grant.objects.filter(released_at=None, slot__device=Slot.Device.CPU).count()
    assert f"{held} of {Slot.objects.filter(device=Slot.Device.CPU).count()}" in page
    Node.objects.filter(pk=second.pk).update(draining=True)
    assert "Started" in listed(as_, studio)
    Node.objects.update(draining=True)
    assert "Stopped" in listed(as_, studio)


def test_an_administrator_stops_and_starts_it_by_its_box(studio: Seeded, second: Node, as_: As) -> None:
    client, address = as_(studio.dora), reverse("instance_groups")
    assert "choose an instance group by its box first" in client.post(address, {"action": "stop"}, follow=True).content.decode()
    assert not Node.objects.filter(draining=True).exists()
    assert "is stopped" in client.post(address, {"action": "stop", "group": NAME}, follow=True).content.decode()
    assert not Node.objects.filter(draining=False).exists()
    assert "is started" in client.post(address, {"action": "start", "group": NAME}, follow=True).content.decode()
    assert not Node.objects.filter(draining=True).exists()
    assert ClusterChange.objects.filter(text__icontains="second").count() == 2, "the history has it"


def test_others_look_and_change_nothing(studio: Seeded, second: Node, as_: As) -> None:
    client, address = as_(studio.alice), reverse("instance_groups")
    page = client.get(address).content.decode()
    assert 'name="action"' not in page
    assert 'type="checkbox"' not in page
    assert client.post(address, {"action": "stop", "group": NAME}).status_code in (403, 404)
    assert not Node.objects.filter(draining=True).exists()


def test_its_applications_are_everybodys_jobs_with_their_slots(studio: Seeded, as_: As) -> None:
    address = reverse("instance_group", args=[NAME])
    page = as_(studio.alice).get(address).content.decode()
    for word in ("Submitted applications", "CPU slots", "GPU slots", "Learning rates", "a run in another project", "New run"):
        assert word in page
    found = as_(studio.alice).get(address, {"part": "jobs", "name": "nothing of that name"}).content.decode()
    assert "No job matches" in found
    assert as_(studio.alice).get(reverse("instance_group", args=["another"])).status_code == 404
