"""A slot that nobody holds any more, and that the plan has given to somebody: said so where lanes are, by pages and by the API."""

from __future__ import annotations

from django.urls import reverse

from experiments.models import Slot, TrainingRun, User
from tests.web import api
from tests.web.conftest import As
from tests.web.seed import Seeded
from tests.web.serving import handed_over


def lanes(as_: As, user: User) -> list[dict]:
    return as_(user).get(reverse("lanes")).json()["lanes"]


def test_a_freed_slot_is_reserved_for_who_gets_it_and_not_free(studio: Seeded, as_: As) -> None:
    handed_over(studio, proven=True)
    second = lanes(as_, studio.alice)[1]
    words = f"reserved for bob {studio.queued.name}, starting"
    assert (second["state"], second["reserved"]) == ("free", {"run": studio.queued.pk, "person": "bob", "words": words})
    page = as_(studio.alice).get(reverse("cluster")).content.decode()
    assert "1 reserved" in page
    assert "1 free" not in page
    assert "reserved for bob" in as_(studio.alice).get(reverse("cluster"), {"part": "now"}).content.decode()
    slot = api.of(studio.alice).get("/cluster").json()["slots"][1]
    assert (slot["reserved_for"], slot["reserved_run"]) == ("bob", studio.queued.pk)


def test_a_slot_that_is_being_left_says_for_whom(studio: Seeded, as_: As) -> None:
    handed_over(studio, proven=False)
    second = lanes(as_, studio.alice)[1]
    assert (second["state"], second["reserved"]["person"]) == ("leaving", "bob")


def test_a_stranger_reads_whose_it_is_and_no_name(studio: Seeded, stranger: User, as_: As) -> None:
    handed_over(studio, proven=True)
    assert lanes(as_, stranger)[1]["reserved"]["words"] == "reserved for bob, a run in another project, starting"
    assert studio.queued.name not in as_(stranger).get(reverse("cluster")).content.decode()


def test_what_nobody_waits_for_is_free(studio: Seeded, as_: As) -> None:
    handed_over(studio, proven=True)
    TrainingRun.objects.filter(pk=studio.queued.pk).update(paused=True)
    TrainingRun.objects.filter(pk=studio.running.pk).update(max_slots=3)
    assert Slot.objects.count() == 4
    assert [lane["reserved"] for lane in lanes(as_, studio.alice)] == [None] * 4
    assert "1 free" in as_(studio.alice).get(reverse("cluster")).content.decode()
