"""What if, and the last days under another policy: by pages and by the API, as who may know what."""

from __future__ import annotations

import datetime as dt
import json
import re

import pytest
from django.urls import reverse
from django.utils import timezone

from experiments.models import ClusterChange, ClusterRules, Grant, Node, TrainingRun, User
from experiments.selectors.what_if import ELSEWHERE
from tests.web import api
from tests.web.conftest import As
from tests.web.seed import Seeded

WHAT_IF = "/cluster/what-if"


def by_run(answer) -> dict[int, dict]:
    assert answer.status_code == 200, answer.content
    return by_pk(answer.json())


def by_pk(answer: dict) -> dict[int, dict]:
    return {row["run"]: row for row in answer["runs"]}


def seconds_left(run: TrainingRun) -> float:
    left = run.remaining_s()
    assert left is not None
    return left


def heard_of(studio: Seeded) -> None:
    Node.objects.filter(pk=studio.node.pk).update(last_seen_at=timezone.now())


@pytest.fixture
def alone(studio: Seeded) -> TrainingRun:
    """One run is left, on two of four slots, of which it can use no more; it is as fast as its journal said."""
    heard_of(studio)
    run = studio.running
    TrainingRun.objects.exclude(pk=run.pk).filter(ended_at=None).update(state="stopped", ended_at=timezone.now())
    Grant.objects.exclude(run=run).filter(released_at=None).update(released_at=timezone.now())
    TrainingRun.objects.filter(pk=run.pk).update(max_slots=2, kind="")
    run.refresh_from_db()
    return run


def test_without_a_wish_both_futures_are_that_of_today(studio: Seeded, alone: TrainingRun) -> None:
    row = by_run(api.of(studio.alice).get(WHAT_IF))[alone.pk]
    assert row["ends_today"] == row["ends_then"]
    left = (dt.datetime.fromisoformat(row["ends_today"]) - timezone.now()).total_seconds()
    assert left == pytest.approx(seconds_left(alone), abs=30)
    assert (row["name"], row["slots_today"], row["known"]) == (alone.name, 2, True)


def test_a_run_ends_when_its_librarys_trainer_says_so(studio: Seeded, alone: TrainingRun) -> None:
    TrainingRun.objects.filter(pk=alone.pk).update(epochs=None, steps_per_epoch=None, bar_left_s=1800.0, bar_is_whole=True)
    row = by_run(api.of(studio.alice).get(WHAT_IF))[alone.pk]
    left = (dt.datetime.fromisoformat(row["ends_today"]) - timezone.now()).total_seconds()
    assert left == pytest.approx(1800, abs=30)


def test_several_wishes_start_from_one_today_until_somebody_changes_something(studio: Seeded, alone: TrainingRun) -> None:
    script = api.of(studio.alice)
    first = script.get(WHAT_IF).json()
    TrainingRun.objects.filter(pk=alone.pk).update(step=alone.step + 1)  # progress: no reason to work out anew what comes of it
    second = script.get(f"{WHAT_IF}?without=local").json()
    assert (second["begin"], by_pk(second)[alone.pk]["ends_today"]) == (first["begin"], by_pk(first)[alone.pk]["ends_today"])
    TrainingRun.objects.filter(pk=alone.pk).update(paused=True)
    third = script.get(WHAT_IF).json()
    assert third["begin"] > first["begin"]
    assert alone.pk not in by_pk(third)


def test_a_drained_machine_ends_nothing_and_a_second_one_takes_it(studio: Seeded, alone: TrainingRun) -> None:
    script = api.of(studio.alice)
    row = by_run(script.get(f"{WHAT_IF}?without=local"))[alone.pk]
    assert (row["ends_then"], row["slots_then"]) == (None, 0)
    answer = script.get(f"{WHAT_IF}?without=local&more=1&like=local")
    row = by_run(answer)[alone.pk]
    assert row["ends_then"] > row["ends_today"]
    lanes = {lane["slot"]: lane for lane in answer.json()["then"]}
    assert {lane["node"] for slot, lane in lanes.items() if slot < 0} == {"local (new 1)"}
    assert {bar["run"] for slot, lane in lanes.items() if slot < 0 for bar in lane["bars"]} == {alone.pk}


def test_a_new_run_takes_its_part_when_it_comes(studio: Seeded, alone: TrainingRun) -> None:
    asked = f"{WHAT_IF}?job_hours=2&job_slots=2&job_person=bob&job_in=1"
    rows = by_run(api.of(studio.alice).get(asked))
    new = rows[0]
    begins, ends = (dt.datetime.fromisoformat(new[name]) for name in ("begins_then", "ends_then"))
    assert (begins - timezone.now()).total_seconds() == pytest.approx(3600, abs=30)
    assert (ends - begins).total_seconds() == pytest.approx(7200, rel=0.05)
    assert (new["person"], new["ends_today"], rows[alone.pk]["difference_s"]) == ("bob", None, 0)


def test_who_asks_for_what_is_not_there_is_told_what(studio: Seeded) -> None:
    heard_of(studio)
    script = api.of(studio.alice)
    for query, said in (
        ("weight=nobody:2", "nobody called"),
        ("weight=bob:many", "as in bob:2"),
        ("without=moon", "no machine in service"),
        ("more=1&like=moon", "no machine in service"),
        ("job_hours=1&job_person=nobody", "nobody called"),
    ):
        answer = script.get(f"{WHAT_IF}?{query}")
        assert (answer.status_code, said in answer.content.decode()) == (400, True), query
    assert script.get(f"{WHAT_IF}?more=99").status_code == 422


def test_a_strangers_run_has_no_name_and_nothing_is_changed(studio: Seeded, stranger: User, as_: As) -> None:
    heard_of(studio)
    before = list(Grant.objects.values()), ClusterRules.objects.values().get(), ClusterChange.objects.count()
    rows = by_run(api.of(stranger).get(f"{WHAT_IF}?more=1&policy=priority"))
    assert {row["name"] for row in rows.values()} == {ELSEWHERE}
    page = as_(stranger).get(reverse("what_if"), {"more": "1", "like": "local"}).content.decode()
    again = as_(stranger).get(reverse("replay"), {"policy": "priority"}).content.decode()
    for text in (page, again):
        assert ELSEWHERE in text
        assert studio.running.name not in text
        assert studio.completed.name not in text
    assert (list(Grant.objects.values()), ClusterRules.objects.values().get(), ClusterChange.objects.count()) == before


def test_the_page_says_when_runs_end_and_would_end_and_what_is_assumed(studio: Seeded, alone: TrainingRun, as_: As) -> None:
    page = as_(studio.alice).get(reverse("what_if"), {"without": "local", "job_hours": "1"}).content.decode()
    assert re.search(rf'href="{reverse("run", args=[alone.pk])}"', page)
    for words in ("Ends today", "Ends then", "the new run", "waits", "What is assumed", "in proportion"):
        assert words in page
    picture = json.loads(re.search(r'data-future="([^"]+)"', page)[1].replace("&quot;", '"'))  # type: ignore[index]
    assert [(run, begin) for lane in picture["today"] for run, begin, _ in lane["bars"]] == [(alone.pk, 0.0)] * 2
    assert picture["runs"] == {str(alone.pk): [alone.name, "alice"]}
    assert not [bar for lane in picture["then"] for bar in lane["bars"]]
    wrong = as_(studio.alice).get(reverse("what_if"), {"more": "99", "part": "answer"}).content.decode()
    assert "More machines: Give a whole number from 0 to 16." in wrong
    assert "<html" not in wrong


def test_last_week_is_replayed_as_it_was_and_otherwise(studio: Seeded) -> None:
    """Alice's run held four slots for its time; as nobody waited, no policy would have changed it."""
    script = api.of(studio.alice)
    answer = script.get("/cluster/replay?policy=priority&weight=bob:4&days=7").json()
    ended = next(row for row in answer["runs"] if row["run"] == studio.completed.pk)
    assert ended["same_s"] == pytest.approx(ended["was_s"], rel=0.2)
    people = {each["person"]: each for each in answer["people"]}
    assert people["alice"]["was"]["slot_s"] > 0
    assert {"was", "same", "other"} <= people["alice"].keys()
    assert script.get("/cluster/replay?days=0").status_code == 422
    assert answer["assumed"]


def test_the_cluster_page_leads_to_it(studio: Seeded, as_: As) -> None:
    page = as_(studio.alice).get(reverse("cluster")).content.decode()
    assert reverse("what_if") in page
    panel = as_(studio.alice).get(reverse("what_if"), {"part": "panel"}).content.decode()
    assert 'hx-target="#what-if-answer"' in panel
    assert "<html" not in panel
