"""A run on somebody's own machine, by the API: begun, given figures, parameters and files, ended, in its own time; and no other run."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest
from django.utils import timezone

from experiments import services
from experiments.metrics import ingest
from experiments.models import RunState, TrainingRun, User
from experiments.services import outside
from tests.web import api
from tests.web.api import Script
from tests.web.seed import Seeded

BEGAN = dt.datetime(2024, 3, 1, 12, 0, tzinfo=dt.UTC)
ENDED = BEGAN + dt.timedelta(hours=2)


@pytest.fixture
def script(studio: Seeded) -> Script:
    return api.of(studio.bob)


def begun(script: Script, studio: Seeded, *, key: str = "", started_at: dt.datetime = BEGAN) -> int:
    body = {"name": "of last year", "started_at": started_at.isoformat()}
    answer = script.post(f"/projects/{studio.digits.pk}/outside-runs", body, **({"Idempotency-Key": key} if key else {}))
    assert answer.status_code == 201, answer.content
    return int(answer.json()["id"])


def points(name: str, *values: float | str, first: int = 1) -> list[dict[str, Any]]:
    began = BEGAN.timestamp()
    return [{"name": name, "step": step, "value": value, "time": began + step} for step, value in enumerate(values, first)]


def curves(script: Script, run: int) -> dict[str, list[float | None]]:
    found = script.get(f"/runs/{run}/metrics/points").json()["curves"]
    return {f"{each['group']} {each['name']}": each["values"] for each in found}


def test_a_run_of_last_year_is_there_with_all_that_was_measured(studio: Seeded, script: Script) -> None:
    run = begun(script, studio)
    said = {"points": [*points("loss", 3, 2, "NaN"), *points("val_loss", 4)], "parameters": {"lr": "0.1"}, "tags": {"team": "vision"}}
    assert script.post(f"/runs/{run}/metrics", said).status_code == 204
    assert script.send("PUT", f"/runs/{run}/files/artifacts/notes/a.txt", b"as good as it gets").status_code == 204
    ended = script.post(f"/runs/{run}/end", {"state": "failed", "ended_at": ENDED.isoformat()}).json()
    assert (ended["state"], ended["outside"], ended["submitted_by"]) == ("failed", True, "bob")
    assert [dt.datetime.fromisoformat(ended[at]) for at in ("started_at", "ended_at")] == [BEGAN, ENDED]
    assert curves(script, run) == {"train loss": [3, 2, None], "test val_loss": [4]}
    times = script.get(f"/runs/{run}/metrics/points?name=val_loss").json()["curves"][0]["times"]
    assert times == [BEGAN.timestamp() + 1]
    assert b"".join(script.get(f"/runs/{run}/files/artifacts/notes/a.txt")) == b"as good as it gets"
    row = TrainingRun.objects.get(pk=run)
    assert (row.logged_facts.parameters, row.logged_facts.tags) == ({"lr": "0.1"}, {"team": "vision"})
    assert row.head_node is None
    assert not row.grants.exists()


def test_what_is_sent_twice_is_there_once(studio: Seeded, script: Script) -> None:
    run = begun(script, studio, key="mlflow 7")
    assert begun(script, studio, key="mlflow 7") == run
    assert begun(script, studio) != run
    for _ in range(2):
        script.post(f"/runs/{run}/metrics", {"points": points("loss", 3, 2)})
    script.post(f"/runs/{run}/metrics", {"points": points("loss", 2, 1, first=2)})
    assert curves(script, run) == {"train loss": [3, 2, 1]}
    for state in ("completed", "failed"):
        assert script.post(f"/runs/{run}/end", {"state": state}).json()["state"] == "completed"
    assert begun(script, studio, key="mlflow 7") == run


def test_many_figures_of_a_step_are_taken_at_once(studio: Seeded, script: Script) -> None:
    run = begun(script, studio)
    some = [{"name": f"layer {number}", "step": 1, "value": number} for number in range(700)]
    assert script.post(f"/runs/{run}/metrics", {"points": some}).status_code == 204
    assert len(script.get(f"/runs/{run}/metrics").json()["items"]) == 700
    assert script.post(f"/runs/{run}/metrics", {"points": some * 8}).status_code == 422, "at most 5,000 at a time"


def test_a_run_of_the_studio_measures_itself(studio: Seeded, script: Script) -> None:
    run = studio.running.pk
    for answer in (
        script.post(f"/runs/{run}/metrics", {"points": points("loss", 3)}),
        script.send("PUT", f"/runs/{run}/files/artifacts/a.txt", b"no"),
        script.post(f"/runs/{run}/end", {"state": "failed"}),
    ):
        assert (answer.status_code, answer.json()["detail"]) == (400, outside.STARTED_HERE)
    assert script.post(f"/runs/{run}/metrics", {"tags": {"verdict": "keep"}}).status_code == 204, "what people say of it is theirs"
    assert TrainingRun.objects.get(pk=run).state == RunState.RUNNING


def test_one_that_was_stopped_on_its_page_takes_no_more(studio: Seeded, script: Script) -> None:
    run = begun(script, studio)
    services.stop_run(TrainingRun.objects.get(pk=run), by=studio.alice, reason="")
    for answer in (
        script.post(f"/runs/{run}/metrics", {"points": points("loss", 3)}),
        script.send("PUT", f"/runs/{run}/files/artifacts/a.txt", b"no"),
    ):
        assert (answer.status_code, answer.json()["detail"]) == (400, outside.STOPPED)
    assert script.post(f"/runs/{run}/end", {"state": "completed"}).json()["state"] == "stopped"


@pytest.mark.parametrize("path", ["journal.jsonl", "log/driver/console.log", "artifactsx/a", "artifacts/../journal.jsonl", "artifacts/"])
def test_a_file_goes_nowhere_but_below_its_artifacts(studio: Seeded, script: Script, path: str) -> None:
    run = begun(script, studio)
    script.post(f"/runs/{run}/metrics", {"points": points("loss", 3)})
    before = script.get(f"/runs/{run}/files").json()
    assert script.send("PUT", f"/runs/{run}/files/{path}", b"no").status_code in (400, 404)
    assert script.get(f"/runs/{run}/files").json() == before


@pytest.mark.parametrize("at", ["1969-07-20T20:17:00Z", "2999-01-01T00:00:00Z", "2024-03-01T12:00:00", "yesterday"])
def test_a_time_that_cannot_be_is_said(studio: Seeded, script: Script, at: str) -> None:
    answer = script.post(f"/projects/{studio.digits.pk}/outside-runs", {"name": "n", "started_at": at})
    assert answer.status_code in (400, 422)
    assert "started_at" in json.dumps(answer.json()["errors"])
    run = begun(script, studio)
    assert script.post(f"/runs/{run}/end", {"state": "completed", "ended_at": at}).status_code in (400, 422)
    assert TrainingRun.objects.get(pk=run).state == RunState.RUNNING


def test_a_run_does_not_end_before_it_began(studio: Seeded, script: Script) -> None:
    run = begun(script, studio)
    answer = script.post(f"/runs/{run}/end", {"state": "completed", "ended_at": (BEGAN - dt.timedelta(days=1)).isoformat()})
    assert (answer.status_code, list(answer.json()["errors"])) == (400, ["ended_at"])
    assert "check the clock" in answer.json()["detail"]


def test_old_runs_that_are_brought_are_nobodys_news_and_stay(studio: Seeded, script: Script) -> None:
    before = studio.bob.notifications.count()
    run = begun(script, studio)
    script.post(f"/runs/{run}/metrics", {"points": points("loss", 3)})
    script.post(f"/runs/{run}/end", {"state": "completed", "ended_at": ENDED.isoformat()})
    assert User.objects.get(username="bob").notifications.count() == before
    ingest.catch_up(run, now=timezone.now())
    assert curves(script, run) == {"train loss": [3]}
