"""A slot that looks ill, on pages and in the API: seen by everybody, put back by administrators of the cluster."""

from __future__ import annotations

import pytest
from django.urls import reverse
from django.utils import timezone

from experiments.cluster import slot_health
from experiments.models import ClusterChange, Grant, Slot
from tests.web import api
from tests.web.conftest import As
from tests.web.seed import Seeded

WORDS = "Workers of 2 runs of 2 people keep dying on it, and the same runs do well on 3 other slots."


@pytest.fixture
def ill(studio: Seeded) -> Slot:
    slot = Slot.objects.get(index=3)
    slot_health.take_out(slot, WORDS, now=timezone.now())
    slot.refresh_from_db()
    return slot


def test_everybody_sees_that_it_is_out_of_service_and_why(studio: Seeded, ill: Slot, as_: As) -> None:
    Grant.objects.filter(slot=ill).delete()
    client = as_(studio.alice)
    page = client.get(reverse("node", args=["local"])).content.decode()
    assert "Out of service" in page
    assert WORDS in page
    assert "Put back" not in page, "she does not administer the cluster"
    assert "1 out of service" in client.get(reverse("cluster"), {"part": "nodes"}).content.decode()
    assert WORDS in client.get(reverse("cluster"), {"part": "feed"}).content.decode()
    assert [lane["state"] for lane in client.get(reverse("lanes")).json()["lanes"] if lane["slot"] == ill.pk] == ["out"]


def test_a_run_that_still_has_it_gives_it_back(studio: Seeded, ill: Slot, as_: As) -> None:
    assert Grant.objects.filter(slot=ill, released_at=None).exists()
    assert "out of service: it is given back" in as_(studio.alice).get(reverse("node", args=["local"])).content.decode()


def test_an_administrator_is_told_and_puts_it_back_with_one_click(studio: Seeded, ill: Slot, as_: As) -> None:
    dora = as_(studio.dora)
    assert WORDS in dora.get(reverse("notifications")).content.decode()
    assert WORDS not in as_(studio.alice).get(reverse("notifications")).content.decode()
    assert "Put back" in dora.get(reverse("node", args=["local"])).content.decode()
    answer = dora.post(reverse("slot_back", args=["local", ill.pk]), follow=True).content.decode()
    assert "GPU 3 is in service again; what spoke against it is forgotten." in answer
    assert "Put back" not in answer
    ill.refresh_from_db()
    assert ill.out_reason == ""
    assert "no such slot" in dora.post(reverse("slot_back", args=["local", 999]), follow=True).content.decode()


def test_the_last_slot_that_looks_ill_says_so_and_the_doubt_can_be_forgotten(studio: Seeded, as_: As) -> None:
    Slot.objects.filter(index=3).update(doubt=f"{WORDS} It stays in service because it is the last GPU slot that is.")
    dora = as_(studio.dora)
    page = dora.get(reverse("node", args=["local"])).content.decode()
    assert "looks ill. Workers of 2 runs" in page
    assert "Forget it" in page
    dora.post(reverse("slot_back", args=["local", Slot.objects.get(index=3).pk]))
    assert Slot.objects.get(index=3).doubt == ""


def test_the_api_says_it_and_puts_it_back(studio: Seeded, ill: Slot) -> None:
    script = api.of(studio.dora)
    (seen,) = [slot for slot in script.get("/nodes/local").json()["slots"] if slot["id"] == ill.pk]
    assert (seen["out_reason"], seen["doubt"]) == (WORDS, "")
    assert seen["out_at"] is not None
    back = script.post(f"/nodes/local/slots/{ill.pk}/back", {"reason": "a new fan"})
    assert [slot["out_reason"] for slot in back.json()["slots"]] == [""] * 4
    change = ClusterChange.objects.latest("pk")
    assert (change.text, change.reason) == ("dora put slot GPU 3 of node local back into service", "a new fan")
    assert script.post("/nodes/local/slots/999/back", {}).status_code == 404
    assert api.of(studio.alice).post(f"/nodes/local/slots/{ill.pk}/back", {}).status_code == 403
