"""What the page of a run says of its exactness."""

from __future__ import annotations

from django.urls import reverse

from experiments.models import TrainingRun
from tests.web.conftest import As
from tests.web.seed import Seeded


def test_the_overview_says_whether_the_run_is_exact_or_why_not(studio: Seeded, as_: As) -> None:
    def said(run: TrainingRun) -> str:
        page = as_(studio.alice).get(reverse("run_overview", args=[run.pk])).content.decode()
        return page.split('<dd id="exact">')[1].split("</dd>")[0]

    assert "Not promised, because" in said(studio.running)
    assert "<li><bdi>the same samples, loaded twice, were not the same</bdi></li>" in said(studio.running)
    assert said(studio.completed).startswith("Yes")
    assert "computed twice, came out the same" in said(studio.completed)
    assert "not known yet" in said(studio.queued)
    assert all("docs/exactness.md" in said(run) for run in (studio.running, studio.completed, studio.queued))
