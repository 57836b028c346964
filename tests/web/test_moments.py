"""Pages of a run while the machines go on: what is newer than the page's own moment is there, and of no length yet."""

from __future__ import annotations

import datetime as dt

from django.db.models import Min

from experiments.cluster import accounting
from experiments.selectors import run_pages
from tests.web.seed import Seeded


def test_a_grant_that_was_made_while_the_page_is_read_has_no_length_yet(studio: Seeded) -> None:
    run = studio.running
    run.grants.exclude(released_at=None).delete()
    first = run.grants.aggregate(at=Min("granted_at"))["at"]
    early = first - dt.timedelta(seconds=1)
    held = run_pages.grants(run, now=early)
    drawn = run_pages.picture(held)
    assert held
    assert drawn is not None
    assert {each.length for each in held} == {dt.timedelta(0)}
    assert all(0 <= begin <= 1000 and width == 0 for strip in drawn.strips for begin, width in strip.bars)
    assert accounting.slot_seconds(run, now=early) == 0


def test_the_picture_ends_where_the_last_grant_ends(studio: Seeded) -> None:
    run = studio.completed
    held = run_pages.grants(run, now=run.submitted_at)
    drawn = run_pages.picture(held)
    assert drawn is not None
    assert drawn.end == max(grant.grant.released_at for grant in held if grant.grant.released_at)
    assert all(round(begin + width, 6) <= 1000 for strip in drawn.strips for begin, width in strip.bars)
