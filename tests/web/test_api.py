"""The API does what the pages do: made, run, read, changed and deleted by a script."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import uuid
from typing import Any

import pyarrow as pa
import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from experiments import services
from experiments.models import MetricSeries, Project, TrainingDefinition, TrainingRun, User
from experiments.wmla import openapi
from tests import cast
from tests.web import api
from tests.web.api import Script
from tests.web.conftest import code
from tests.web.seed import Seeded


@pytest.fixture
def script(studio: Seeded) -> Script:
    return api.of(studio.alice, "write")


def test_a_script_makes_a_project_uploads_code_runs_it_and_stops_it(studio: Seeded, script: Script) -> None:
    project = script.post("/projects", {"name": "From a script"}).json()
    assert (project["role"], project["created_by"], project["url"]) == ("admin", "alice", f"http://testserver/projects/{project['id']}/")
    sent = {"name": "lenet", "command": "main.py --epochs 3", "file": code()}
    definition = script.upload(f"/projects/{project['id']}/definitions", sent).json()
    assert definition["newest"]["number"] == 1
    made = script.post(f"/projects/{project['id']}/runs", {"definition": definition["id"], "command": "main.py --epochs 5"})
    assert made.status_code == 201
    run = made.json()
    assert (run["state"], run["command"], run["submitted_by"], run["max_slots"]) == ("queued", "main.py --epochs 5", "alice", 4)
    stopped = script.post(f"/runs/{run['id']}/stop", {"reason": "enough"}).json()
    assert (stopped["state"], stopped["state_reason"]) == ("stopped", "Stopped by alice: enough")
    events = script.get(f"/runs/{run['id']}/events").json()["items"]
    assert [event["detail"].get("new") for event in events] == ["queued", "stopped"]
    assert script.send("DELETE", f"/runs/{run['id']}").status_code == 204
    assert script.get(f"/runs/{run['id']}").status_code == 404


def test_code_that_arrives_in_pieces_becomes_a_definition(studio: Seeded, script: Script) -> None:
    zip_ = cast.zipped().getvalue()
    files = [{"path": "code.zip", "size": len(zip_)}]
    upload = script.post(f"/projects/{studio.digits.pk}/uploads", {"kind": "code", "files": files}).json()
    half = len(zip_) // 2
    at = f"/uploads/{upload['id']}/files/0"
    assert script.send("PUT", f"{at}?offset=0", zip_[:half]).json() == {"received": half}
    wrong = script.send("PUT", f"{at}?offset=0", zip_[half:])
    assert (wrong.status_code, wrong.json()["received"]) == (409, half)
    assert script.send("PUT", f"{at}?offset={half}", zip_[half:]).json() == {"received": len(zip_)}
    done = script.post(f"/uploads/{upload['id']}/finish", {"sha256": [hashlib.sha256(zip_).hexdigest()]}).json()
    assert done == {"data": None, "upload": upload["id"]}
    fields = {"name": "in pieces", "command": "main.py", "upload": upload["id"]}
    made = script.upload(f"/projects/{studio.digits.pk}/definitions", fields, **{"Idempotency-Key": "a"})
    again = script.upload(f"/projects/{studio.digits.pk}/definitions", fields, **{"Idempotency-Key": "a"})
    assert (made.status_code, again.json()["id"]) == (201, made.json()["id"])
    assert made.json()["newest"]["sha256"] == hashlib.sha256(zip_).hexdigest()


def test_data_arrives_in_pieces_and_is_read_back(studio: Seeded, script: Script) -> None:
    said = {"kind": "data", "name": "numbers", "files": [{"path": "a.txt", "size": 5}, {"path": "b/c.txt", "size": 3}]}
    upload = script.post(f"/projects/{studio.digits.pk}/uploads", said).json()
    for number, content in enumerate((b"12345", b"678")):
        script.send("PUT", f"/uploads/{upload['id']}/files/{number}?offset=0", content)
    data = script.post(f"/uploads/{upload['id']}/finish", {}).json()["data"]
    assert (data["files"], data["size_bytes"]) == (2, 8)
    assert script.post(f"/uploads/{upload['id']}/finish", {}).json()["data"]["id"] == data["id"], "sent again it answers the same"
    assert [entry["path"] for entry in script.get(f"/data/{data['id']}/files").json()["items"]] == ["b", "a.txt"]
    part = script.get(f"/data/{data['id']}/files/a.txt", Range="bytes=1-2")
    assert (part.status_code, b"".join(part)) == (206, b"23")


@pytest.mark.parametrize("key", ["the same", ""])
def test_a_key_makes_a_thing_once(studio: Seeded, script: Script, key: str) -> None:
    headers = {"Idempotency-Key": key} if key else {}
    made = [script.post("/projects", {"name": "Once"}, **headers).json()["id"] for _ in range(2)]
    assert (len(set(made)), Project.objects.filter(name="Once").count()) == ((1, 1) if key else (2, 2))
    runs = [script.post(f"/experiments/{studio.experiment.pk}/runs", **headers).json()["items"][0]["id"] for _ in range(2)]
    assert len(set(runs)) == (1 if key else 2)
    others = api.of(studio.bob, "write").post(f"/experiments/{studio.experiment.pk}/runs", **headers).json()["items"][0]["id"]
    assert others not in runs, "a key is of one person"


def test_a_key_that_has_made_something_is_not_taken_for_something_else(studio: Seeded, script: Script) -> None:
    address, key = f"/experiments/{studio.experiment.pk}/runs", {"Idempotency-Key": "nightly"}
    assert script.post("/projects", {"name": ""}, **key).status_code == 400
    made = script.post("/projects", {"name": "Mended", "description": "d"}, **key)
    assert made.status_code == 201, "what was refused has made nothing"
    assert script.post("/projects", {"description": "d", "name": "Mended"}, **key).json() == made.json(), "in whatever order"
    other = script.post("/projects", {"name": "Another"}, **key)
    assert (other.status_code, "a key of its own" in other.json()["detail"]) == (422, True)
    assert not Project.objects.filter(name="Another").exists()
    assert script.post(address, **key).status_code == 201, "of another address it is another key"
    assert script.send("POST", address, b"{nonsense", **key).status_code == 422


def test_what_is_refused_says_what_a_form_would(studio: Seeded, script: Script) -> None:
    refused = script.post("/projects", {"name": "  "})
    assert (refused.status_code, refused["Content-Type"]) == (400, "application/problem+json")
    assert refused.json()["errors"] == {"name": ["Give a name."]}
    assert refused.json()["detail"] == "Give a name."
    missing = script.post("/projects", {"title": "x"}).json()
    assert (missing["status"], set(missing["errors"])) == (422, {"name", "title"})
    unread = script.send("POST", "/projects", b"{")
    assert (unread.status_code, unread["Content-Type"]) == (400, "application/problem+json")
    nothing = script.get("/nothing/here")
    assert (nothing.status_code, nothing["Content-Type"]) == (404, "application/problem+json")
    wrong_way = script.post("/me")
    assert (wrong_way.status_code, wrong_way["Allow"]) == (405, "GET")
    priority = script.send("PATCH", f"/runs/{studio.running.pk}", {"priority": 20_000})
    assert priority.json()["errors"] == {"priority": ["20000 is not possible: give a whole number from 1 to 10000."]}


def test_several_changes_of_a_run_are_made_together_or_not_at_all(studio: Seeded, script: Script) -> None:
    refused = script.send("PATCH", f"/runs/{studio.running.pk}", {"priority": 10, "min_slots": 5, "max_slots": 2})
    assert (refused.status_code, set(refused.json()["errors"])) == (400, {"min_slots"})
    assert TrainingRun.objects.get(pk=studio.running.pk).priority != 10
    done = script.send(
        "PATCH", f"/runs/{studio.running.pk}", {"priority": 10, "max_slots": 2, "any_kind": True, "tags": ["b", "a"], "note": "slow"}
    ).json()
    assert (done["priority"], done["max_slots"], done["any_kind"], done["tags"], done["note"]) == (10, 2, True, ["b", "a"], "slow")
    kept = script.send("PATCH", f"/runs/{studio.running.pk}", {"tags": []}).json()
    assert (kept["tags"], kept["note"], kept["priority"]) == ([], "slow", 10), "what is not named stays"


def test_a_list_comes_a_page_at_a_time_and_nothing_twice_while_it_grows(studio: Seeded, script: Script) -> None:
    wanted = sorted(TrainingRun.objects.filter(experiment__project=studio.digits).values_list("pk", flat=True), reverse=True)
    found, cursor = [], ""
    while True:
        page = script.get(f"/runs?project={studio.digits.pk}&limit=2&cursor={cursor}").json()
        found += [run["id"] for run in page["items"]]
        script.post(f"/experiments/{studio.experiment.pk}/runs")
        if (cursor := page["next"]) is None:
            break
    assert found == wanted
    assert script.get("/runs?cursor=nonsense").status_code == 422


def test_runs_are_found_by_what_they_are(studio: Seeded, script: Script) -> None:
    def ids(query: str) -> set[int]:
        return {run["id"] for run in script.get(f"/runs?{query}").json()["items"]}

    assert ids("state=failed") == {studio.failed.pk}
    assert ids("state=live") == {studio.running.pk, studio.queued.pk}
    assert ids(f"submitter=bob&project={studio.digits.pk}") == {studio.stopped.pk, studio.queued.pk}
    script.send("PATCH", f"/runs/{studio.completed.pk}", {"tags": ["größer", "best"]})
    assert ids("tag=gr%C3%B6%C3%9Fer") == {studio.completed.pk}
    assert ids("tag=grö") == set(), "a tag is a whole one"
    assert ids(f"experiment={studio.experiment.pk}&state=completed") == {studio.completed.pk}


def test_metrics_are_the_same_as_json_as_csv_and_as_arrow(studio: Seeded, script: Script) -> None:
    run = studio.completed.pk
    series = {(each["group"], each["name"]): each for each in script.get(f"/runs/{run}/metrics").json()["items"]}
    stored = {(each.group, each.name): each.points for each in MetricSeries.objects.filter(run=run)}
    assert {key: each["points"] for key, each in series.items()} == stored
    at = f"/runs/{run}/metrics/points"
    curves = script.get(f"{at}?max_points=100000").json()["curves"]
    as_json = [(c["group"], c["name"], s, v) for c in curves for s, v in zip(c["steps"], c["values"], strict=True)]
    table = list(csv.DictReader(io.StringIO(b"".join(script.get(at, Accept="text/csv")).decode())))
    as_csv = [(row["group"], row["name"], int(row["step"]), float(row["value"])) for row in table]
    arrow = pa.ipc.open_stream(b"".join(script.get(f"{at}?format=arrow"))).read_all()
    as_arrow = [(row["group"], row["name"], row["step"], row["value"]) for row in arrow.to_pylist()]
    assert as_json == as_csv == as_arrow
    assert len(as_json) == sum(stored.values())
    some = script.get(f"{at}?group=train&name=loss&from_step=3&to_step=5&format=csv")
    assert [row["step"] for row in csv.DictReader(io.StringIO(b"".join(some).decode()))] == ["3", "4", "5"]


def test_what_has_not_changed_is_not_sent_again_and_not_overwritten(studio: Seeded, script: Script) -> None:
    at = f"/projects/{studio.digits.pk}"
    first = script.get(at)
    assert script.get(at, **{"If-None-Match": first["ETag"]}).status_code == 304
    mine = script.send("PATCH", at, {"description": "mine"}, **{"If-Match": first["ETag"]})
    assert mine.status_code == 200
    late = script.send("PATCH", at, {"description": "late"}, **{"If-Match": first["ETag"]})
    assert (late.status_code, Project.objects.get(pk=studio.digits.pk).description) == (412, "mine")


def test_a_token_asks_so_often_and_then_waits(studio: Seeded, script: Script, settings: Any) -> None:
    settings.EDT_API_RATE = 3
    answers = [script.get("/me") for _ in range(5)]
    assert [each.status_code for each in answers].count(429) >= 1  # the minute may turn meanwhile
    late = next(each for each in answers if each.status_code == 429)
    assert 1 <= int(late["Retry-After"]) <= 60
    assert api.of(studio.bob).get("/me").status_code == 200, "others are not held up"


def test_the_rules_are_changed_in_part_and_previewed(studio: Seeded) -> None:
    script = api.of(studio.dora)
    before = script.get("/cluster/rules").json()
    changed = script.send("PATCH", "/cluster/rules", {"person_quota": {"alice": 2}, "weights": {"bob": 2.0}, "reason": "a deadline"}).json()
    assert changed == {**before, "person_quota": {"alice": 2}, "weights": {**before["weights"], "bob": 2.0}}
    assert script.send("PATCH", "/cluster/rules", {"person_quota": {"alice": None}}).json()["person_quota"] == {}
    preview = script.post("/cluster/rules/preview", {"policy": "priority"}).json()
    assert set(preview) == {"sentences", "differences"}
    assert script.get("/cluster/rules").json()["policy"] == before["policy"]


def test_who_is_no_member_reads_no_names_in_the_cluster(studio: Seeded, stranger: User) -> None:
    named = api.of(studio.alice).get("/cluster").json()["slots"]
    unnamed = api.of(stranger).get("/cluster").json()["slots"]
    assert {slot["run_name"] for slot in named if slot["run"] == studio.running.pk} == {studio.running.name}
    assert {slot["run_name"] for slot in unnamed if slot["run"]} == {"a run in another project"}
    texts = [api.of(stranger).get(path).content for path in ("/cluster/lanes?window=all", "/cluster/jobs", "/cluster/grants")]
    assert not [text for text in texts if studio.running.name.encode() in text]


@pytest.mark.parametrize("kind", ["definitions", "experiments"])
def test_a_page_of_a_list_asks_the_database_as_often_for_many_as_for_few(kind: str, project: Project, alice: User) -> None:
    script, counts, commands = api.of(alice), [], ["main.py --a 1", "main.py --a 2"]
    for many in (2, 12):
        for _ in range(many):
            version = cast.definition(project, by=alice, name=f"net {many}")
            services.add_version(version.definition, by=alice, command="main.py --epochs 2")
            services.create_experiment(project, by=alice, name="e", versions=[version, version], commands=commands)
        script.get(f"/projects/{project.pk}/{kind}")
        with CaptureQueriesContext(connection) as asked:
            items = script.get(f"/projects/{project.pk}/{kind}").json()["items"]
        counts.append(len(asked))
        one = items[0]["newest"] if kind == "definitions" else items[0]["versions"]
        assert one["number"] == 2 if kind == "definitions" else [each["command"] for each in one] == commands
        assert items[0] == script.get(f"/{kind}/{items[0]['id']}").json()
    assert counts[0] == counts[1]


def test_logs_and_files_are_read_and_searched(studio: Seeded, script: Script) -> None:
    run = studio.completed
    names = [log["name"] for log in script.get(f"/runs/{run.pk}/logs").json()["items"]]
    assert "driver" in names
    tail = script.get(f"/runs/{run.pk}/logs/driver?tail_lines=3").json()
    assert tail["end"] == tail["size_bytes"]
    assert script.get(f"/runs/{run.pk}/logs/driver?offset={tail['begin']}").json()["text"] == tail["text"]
    assert script.get(f"/runs/{run.pk}/logs/nothing").status_code == 404
    found = script.get(f"/runs/{run.pk}/logs/driver/search?q=step").json()
    assert found["complete"]
    files = script.get(f"/runs/{run.pk}/files").json()["items"]
    path = next(each["path"] for each in files if each["role"] == "model")
    assert len(b"".join(script.get(f"/runs/{run.pk}/files/{path}"))) == next(each["size_bytes"] for each in files if each["path"] == path)


def test_a_password_gets_a_token_that_is_shown_once(studio: Seeded) -> None:
    alice = User.objects.get(username="alice")
    alice.set_password("correct horse battery")
    alice.save()
    basic = base64.b64encode(b"alice:correct horse battery").decode()
    made = Script().post("/tokens", {"name": "laptop", "scope": "write"}, Authorization=f"Basic {basic}")
    assert made.status_code == 201
    script = Script(made.json()["token"])
    assert script.get("/me").json()["token"]["name"] == "laptop"
    assert "token" not in api.of(alice).get("/tokens").json()["items"][0]
    wrong = base64.b64encode(b"alice:wrong").decode()
    assert Script().post("/tokens", {"name": "x"}, Authorization=f"Basic {wrong}").status_code == 401
    assert Script().get("/me", Authorization=f"Basic {basic}").status_code == 401, "a password gets a token and nothing else"


def test_a_token_works_for_wmlas_addresses_too_where_it_may_write(studio: Seeded) -> None:
    def status(script: Script) -> int:
        return script.client.get(f"{openapi.DL}/execs", headers=script.headers).status_code

    assert status(api.of(studio.alice, "write")) == 200
    assert status(api.of(studio.alice, "read")) == 403
    assert status(api.of(studio.alice, "write", project=studio.digits)) == 403
    assert status(Script(f"edt_{uuid.uuid4()}")) == 401


def test_a_definitions_versions_and_arguments(studio: Seeded, script: Script) -> None:
    definition = studio.version.definition.pk
    changed = script.upload(f"/definitions/{definition}/versions", {"command": "main.py --epochs 9", "max_slots": 2})
    assert (changed.status_code, changed.json()["number"], changed.json()["max_slots"]) == (201, 2, 2)
    assert changed.json()["sha256"] == script.get(f"/versions/{studio.version.pk}").json()["sha256"]
    scripts = script.get(f"/versions/{studio.version.pk}/arguments").json()["items"]
    assert any("--epochs" in argument["flags"] for each in scripts for argument in each["arguments"])
    copied = script.post(f"/definitions/{definition}/copy", {"project": script.post("/projects", {"name": "Other"}).json()["id"]})
    assert TrainingDefinition.objects.get(pk=copied.json()["id"]).project.name == "Other"


def test_runs_side_by_side(studio: Seeded, script: Script) -> None:
    found = script.get(f"/experiments/{studio.experiment.pk}/compare?run={studio.completed.pk},{studio.stopped.pk}").json()
    assert {run["id"] for run in found["runs"]} == {studio.completed.pk, studio.stopped.pk}
    assert any(fact["kind"] == "metric" for fact in found["facts"])


def test_a_grid_of_arguments_is_an_experiment_with_a_run_of_each_combination(studio: Seeded, script: Script) -> None:
    part = {"version": studio.version.pk, "command": "main.py --epochs 3", "grid": {"lr": ["0.1", "0.3"], "note": ["a,b"]}}
    body = {"name": "rates", "versions": [part, {"version": studio.version.pk}], "run": True}
    address = f"/projects/{studio.digits.pk}/experiments"
    made = [script.post(address, body, **{"Idempotency-Key": "rates"}).json() for _ in range(2)]
    assert made[0] == made[1]
    runs = script.get(f"/runs?experiment={made[0]['id']}").json()["items"]
    assert sorted(run["command"] for run in runs) == sorted(
        ["main.py --epochs 3 --lr 0.1 --note a,b", "main.py --epochs 3 --lr 0.3 --note a,b", studio.version.command]
    )
    many = {**part, "grid": {"lr": [str(n) for n in range(101)]}}
    refused = script.post(address, {"name": "too many", "versions": [many]})
    assert (refused.status_code, list(refused.json()["errors"])) == (400, ["grid"])
