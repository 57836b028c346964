"""Why a run has the slots that it has, on its page: other runs that are named are links to them."""

from __future__ import annotations

import datetime as dt

import pytest
from django.urls import reverse
from django.utils import timezone

from experiments.models import TrainingRun
from experiments.selectors import run_pages
from experiments.templatetags.reasons import with_links
from tests.web.conftest import As
from tests.web.seed import Seeded

RUNS = {"bob's run Wider net": 6, "bob's run Wider": 7, "alice's run <b>": 8}


@pytest.mark.parametrize(
    ("text", "linked"),
    [
        ("first in the queue; expected in about 4 min, when bob's run Wider net ends", [6]),
        ("gave 2 slots to bob's run Wider and holds 2 of 4 slots: fair share", [7]),
        ("gave 2 slots to bob's run Wider (priority 7000) and bob's run Wider net and holds 2 of 4", [7, 6]),
        ("starts with 2 of 4 slots, 1 slot handed over by alice's run <b>, bob's run Wider and 2 others", [8, 7]),
        ("gave 1 slot to bob's run Wider still and holds 3", []),
        ("gave 1 slot to bob's run in another project and holds 3", []),
        ("its maximum", []),
    ],
)
def test_runs_that_a_reason_names_are_links(text: str, linked: list[int]) -> None:
    html = with_links(text, RUNS)
    assert [number for number in (6, 7, 8) if reverse("run", args=[number]) in html] == sorted(linked)
    assert "<b>" not in html


def test_a_waiting_runs_page_leads_to_the_run_that_it_waits_for(studio: Seeded, as_: As) -> None:
    name = f"{studio.running.submitted_by.username}'s run {studio.running.name}"
    TrainingRun.objects.filter(pk=studio.queued.pk).update(plan_reason=f"first in the queue; expected in about 4 min, when {name} ends")
    TrainingRun.objects.exclude(pk=studio.running.pk).filter(name=studio.running.name).update(name="others")
    page = as_(studio.bob).get(reverse("run", args=[studio.queued.pk])).content.decode()
    assert f'when <a href="{reverse("run", args=[studio.running.pk])}">' in page


def test_of_two_runs_with_one_name_neither_is_led_to_nor_one_of_another_time(studio: Seeded) -> None:
    name = f"{studio.running.submitted_by.username}'s run {studio.running.name}"
    long_ago = timezone.now() - dt.timedelta(days=9)
    TrainingRun.objects.exclude(pk=studio.queued.pk).update(name=studio.running.name, submitted_by=studio.running.submitted_by)
    TrainingRun.objects.filter(pk=studio.completed.pk).update(ended_at=None)
    assert name not in run_pages.companions(studio.queued)
    TrainingRun.objects.exclude(pk__in=[studio.queued.pk, studio.running.pk]).update(submitted_at=long_ago, ended_at=long_ago)
    assert run_pages.companions(studio.queued)[name] == studio.running.pk
