"""Applications, executors and their logs, as the first generation's conductor and the second's scheduler tell of them."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from experiments.models import User
from tests import cast
from tests.web import wmla
from tests.web.seed import Seeded
from tests.web.wmla import DL, SC, Script, basic, body

GROUP = "0b6ae6ce-0000-4000-8000-000000000000"


@pytest.fixture
def script(studio: Seeded) -> Script:
    return wmla.of(studio.alice)


def test_a_notebook_of_the_first_generation_watches_what_runs(studio: Seeded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("experiments.selectors.latest_utilization.NODE_SILENT_S", 3600)  # a busy machine is slow
    found = Script(basic("alice")).json(f"{SC}/instances/{GROUP}/applications?state=RUNNING")
    one = next(each for each in found if each["driver"]["id"] == f"wmla-{studio.running.pk}")
    assert {each["state"] for each in found} == {"RUNNING"}
    assert (one["driver"]["state"], one["gpuslots"], one["slots"]) == ("RUNNING", 2, 2)
    assert 7 < one["apprunduration"] < 9
    assert one["gpumemused"]["total"].isdigit()
    assert int(one["gpumemused"]["total"]) > 0
    assert one["gpudevutil"]["total"] > 100, "of both GPUs together"
    assert [each["id"].partition("-")[0] for each in one["executors"]] == ["0", "1", "2", "3"], "it had four, and has two"
    assert [each["state"] for each in one["executors"]].count("RUNNING") == 2


def test_the_second_generation_lists_sorts_and_searches(studio: Seeded, script: Script) -> None:
    applications = f"{DL}/scheduler/applications"
    ids = lambda query: [each["applicationid"] for each in script.json(f"{applications}{query}")]  # noqa: E731
    mine = {studio.running, studio.queued, studio.completed, studio.failed, studio.stopped}
    assert set(ids("")) == {f"wmla-{run.pk}" for run in mine}, "Bob's own project is not Alice's to see"
    assert ids("?state=RUNNING") == ids(f"/?applicationid=wmla-{studio.running.pk}") == [f"wmla-{studio.running.pk}"]
    assert ids("?search=wider") == ids(f"?driverid={studio.queued.pk}") == [f"wmla-{studio.queued.pk}"]
    newest = ids("?sort=submittedtime&order=desc")
    assert ids("?sort=submittedtime&order=asc") == newest[::-1]
    assert ids("?start=1&length=2") == newest[1:3]
    one = script.json(f"{applications}/wmla-{studio.completed.pk}")
    assert (one["type"], one["state"], one["demandslots"], one["username"], one["slots"]) == ("BATCH", "FINISHED", 4, "alice", 0)
    assert one["task12n"] == []
    assert script.json(f"{DL}/scheduler/applicationStatistic")["RUNNING"] == 1


def test_the_engine_behind_it_says_the_same_in_its_words(studio: Seeded, script: Script) -> None:
    query = "?start=0&length=10&sort=-submit_time&state=RUNNING,PENDING_CRD_SCHEDULER"
    queued, running = script.json(f"{DL}/scheduler/engine/applications{query}")
    assert (queued["state"], queued["task12n_num"], queued["start_time"]) == ("PENDING_CRD_SCHEDULER", 0, "")
    assert (running["type"], running["used_gpu"], running["task12n_num"], running["submit_user"]) == ("ELASTIC", 2, 2, "alice")
    assert script.json(f"{DL}/scheduler/engine/applications/wmla-{studio.running.pk}")["id"] == running["id"]


def text(script: Script, path: str, **headers: str) -> str:
    answer = script.get(path, **headers)
    assert answer.status_code == 200, (path, answer.content)
    return body(answer).decode()


def test_logs_of_the_driver_and_of_each_executor(studio: Seeded, script: Script) -> None:
    run = studio.completed
    first = f"{SC}/instances/{GROUP}/applications/wmla-{run.pk}"
    second = f"{DL}/scheduler/applications/wmla-{run.pk}"
    whole = text(script, f"{first}/logs/stdout/download", Accept="application/octet-stream")
    assert (
        whole == text(script, f"{second}/driver/logs/stderr", Accept="text/plain") == text(script, f"{second}/driver/logs/stdout/download")
    )
    assert whole.count("\n") == 300
    assert text(script, f"{second}/driver/logs/stdout?lastlines=2") == "".join(whole.splitlines(keepends=True)[-2:])
    assert script.json(f"{second}/driver/logs/stdout?lastlines=1") == whole.splitlines(keepends=True)[-1]
    ids = [each["id"] for each in script.json(second)["executors"]]
    assert [text(script, f"{first}/{each}/logs/stdout/download") for each in ids] == [
        text(script, f"{second}/executor/{place}/logs/stdout?lastlines=1000") for place in (1, 2, 3, 4)
    ]
    assert "Submitted by alice." in text(script, f"{second}/driver/logs/launcherlog")
    assert "begins: free slots" in text(script, f"{second}/executor/1/logs/launcherlog")
    none = script.get(f"{second}/executor/5/logs/stdout")
    assert (none.status_code, none.content.decode()) == (400, f"Error 400: wmla-{run.pk} has no executor 5: it has had 4 so far.\n")


def test_an_executors_log_is_that_of_its_worker(studio: Seeded, script: Script) -> None:
    from experiments.files import runfiles
    from experiments.wmla.applications import executors

    second = executors(studio.running)[1]
    path = runfiles.folder(studio.running) / "log" / second.log / "console.log"
    path.parent.mkdir(parents=True)
    path.write_text("Iteration 1\n")
    assert text(script, f"{DL}/scheduler/applications/{studio.running.pk}/executor/2/logs/stdout") == "Iteration 1\n"
    assert text(script, f"{DL}/scheduler/applications/{studio.running.pk}/executor/1/logs/stdout") == ""


def test_an_application_is_stopped_by_who_may(studio: Seeded, script: Script, stranger: User) -> None:
    stop = f"{DL}/scheduler/applications/wmla-{studio.queued.pk}/stop"
    assert wmla.of(stranger).call("put", stop).status_code == 400
    assert wmla.of(User.objects.get(username="victor")).call("put", stop).status_code == 403
    assert script.call("put", stop).status_code == 204
    assert script.json(f"{DL}/execs/{studio.queued.pk}")["state"] == "KILLED"


def test_a_stranger_sees_nothing_of_it(studio: Seeded, stranger: User) -> None:
    script, run = wmla.of(stranger), f"wmla-{studio.running.pk}"
    lists: list[Any] = [f"{DL}/scheduler/applications", f"{DL}/scheduler/engine/applications", f"{SC}/instances/{GROUP}/applications"]
    assert [script.json(path) for path in lists] == [[], [], []]
    assert set(script.json(f"{DL}/scheduler/applicationStatistic").values()) == {0}
    one = f"{DL}/scheduler/applications/{run}"
    for path in (one, f"{one}/driver/logs/stdout", f"{one}/executor/1/logs/launcherlog", f"{DL}/scheduler/engine/applications/{run}"):
        assert script.get(path).status_code == 400, path
    assert script.get(f"{lists[0]}?applicationid={run}").status_code == 400


def test_the_resource_plan_is_who_shares_the_slots(studio: Seeded, script: Script) -> None:
    tree = script.json(f"{DL}/resplans/resplantree")
    assert [leaf["id"] for leaf in tree["childTreeDto"]] == ["alice", "bob", "charlie", "dora", "victor"]
    assert script.json(f"{DL}/resplans/resplan/bob") == {
        "id": "bob",
        "pid": "cluster",
        "name": "bob",
        "shareRatio": 1.0,
        "childTreeDto": [],
    }
    assert script.get(f"{DL}/resplans/resplan/nobody").status_code == 400
    assert script.call("delete", f"{DL}/resplans/resplan/bob").status_code == 405
    assert Client().get(f"{DL}/resplans/resplantree").status_code == 401


def test_a_run_that_was_never_given_a_slot_has_no_executor(studio: Seeded, script: Script) -> None:
    one = script.json(f"{DL}/scheduler/applications/{studio.queued.pk}")
    assert (one["executors"], one["apprunduration"], one["driver"]["host"], one["endtime"]) == ([], 0.0, "", "")
    assert cast.PASSWORD not in str(one)
