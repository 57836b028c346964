"""Who may do what by the API: every call as nobody, as a stranger, as a viewer, as an editor, and with tokens that may little."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from django.utils import timezone

from experiments import services
from experiments.models import ApiToken, NamedEnvironment, Project, TrainingDefinition, TrainingRun, Trigger, User
from experiments.services import watches
from tests.web import api
from tests.web.api import DESCRIBED, Script
from tests.web.conftest import As
from tests.web.seed import Seeded
from tests.web.test_every_address import comment_of, import_of, version_of, view_of

CALLS = [(method.upper(), path.removeprefix("/api/v1")) for path, calls in DESCRIBED["paths"].items() for method in calls]
PUBLIC = {("GET", "/")}
# Everybody who is logged in may; of lists they get what is theirs.
EVERYBODY = {
    ("GET", "/projects"), ("POST", "/projects"), ("GET", "/runs"), ("GET", "/me"), ("GET", "/tokens"), ("POST", "/tokens"),
    ("DELETE", "/tokens/current"), ("GET", "/notifications"), ("POST", "/notifications/read"), ("GET", "/webhooks"), ("POST", "/webhooks"),
    ("GET", "/cluster"), ("GET", "/cluster/lanes"), ("GET", "/cluster/grants"), ("GET", "/cluster/jobs"), ("GET", "/cluster/usage"),
    ("GET", "/cluster/prices"),
    ("GET", "/cluster/rules"), ("GET", "/nodes"), ("GET", "/nodes/{name}"), ("GET", "/stream"),
    ("GET", "/search"), ("GET", "/me/notifications"), ("PATCH", "/me/notifications"), ("GET", "/shared-data/files"),
    ("GET", "/projects/imports"), ("POST", "/projects/imports"),
    ("GET", "/shared-data/files/{path}"), ("GET", "/shared-data/previews/{path}"),
    ("GET", "/offered-environments"), ("GET", "/offered-environments/{offered}"),
    ("GET", "/cluster/what-if"), ("GET", "/cluster/replay"),
    ("GET", "/compare"), ("POST", "/receipts/check"), ("GET", "/models"),
}  # fmt: skip
PRIVATE = {
    ("DELETE", "/webhooks/{webhook}"), ("POST", "/webhooks/{webhook}/test"), ("DELETE", "/tokens/{token}"),
    ("GET", "/projects/imports/{imported}"), ("PUT", "/projects/imports/{imported}/archive"),
    ("POST", "/projects/imports/{imported}/finish"), ("DELETE", "/projects/imports/{imported}"),
    ("DELETE", "/runs/{run}/thresholds/{threshold}"), ("DELETE", "/experiments/{experiment}/thresholds/{threshold}"),
}  # fmt: skip
CLUSTER_ADMINS = {
    ("PATCH", "/cluster/rules"),
    ("PATCH", "/cluster/prices"), ("POST", "/cluster/rules/preview"), ("DELETE", "/nodes/{name}"), ("POST", "/nodes/{name}/drain"),
    ("POST", "/nodes/{name}/lost"), ("POST", "/nodes/{name}/slots/{slot}/drain"), ("POST", "/nodes/{name}/drain/preview"),
    ("POST", "/nodes/{name}/slots/{slot}/back"), ("PATCH", "/nodes/{name}"), ("POST", "/nodes"),
    ("GET", "/environments"),
    ("GET", "/people"), ("POST", "/people"), ("GET", "/people/{account}"), ("POST", "/people/{account}/close"),
    ("POST", "/people/{account}/log-out"),
    ("GET", "/store"),
    ("GET", "/pilot-pools"), ("POST", "/pilot-pools"), ("GET", "/pilot-pools/{pool}"), ("PATCH", "/pilot-pools/{pool}"),
    ("DELETE", "/pilot-pools/{pool}"), ("POST", "/pilot-pools/{pool}/preview"),
    ("POST", "/offered-environments"), ("PATCH", "/offered-environments/{offered}"), ("DELETE", "/offered-environments/{offered}"),
    ("POST", "/offered-environments/{offered}/renew"), ("POST", "/offered-environments/{offered}/build"),
}  # fmt: skip
MEMBERS = {call for call in CALLS if call not in PUBLIC | EVERYBODY | PRIVATE | CLUSTER_ADMINS}
BODIES: dict[tuple[str, str], object] = {
    ("POST", "/projects/{project}/members"): {"username": "charlie", "role": "viewer"},
    ("PATCH", "/projects/{project}/members/{username}"): {"role": "viewer"},
    ("PUT", "/projects/{project}/variables/{name}"): {"value": "1"},
    ("PUT", "/definitions/{definition}/variables/{name}"): {"value": "1"},
    ("POST", "/projects/{project}/uploads"): {"kind": "data", "name": "n", "files": [{"path": "a", "size": 1}]},
    ("POST", "/data/{data}/versions"): {"files": [{"path": "a", "size": 1}]},
    ("POST", "/projects/{project}/definitions/git"): {"name": "n", "git_address": "https://example.org/a.git"},
    ("POST", "/definitions/{definition}/versions/git"): {"git_address": "https://example.org/a.git"},
    ("POST", "/projects/{project}/experiments"): {"name": "n", "versions": []},
    ("POST", "/projects/{project}/searches"): {"name": "n", "version": 1, "parameters": {"lr": "1..3"}, "metric": "test loss"},
    ("POST", "/projects/{project}/outside-runs"): {"name": "n"},
    ("POST", "/projects/imports"): {"file": "a.zip", "size": 1},
    ("POST", "/runs/{run}/thresholds"): {"metric": "train loss", "above": True, "threshold": 9},
    ("POST", "/experiments/{experiment}/thresholds"): {"metric": "train loss", "above": True, "threshold": 9},
    ("POST", "/receipts/check"): {"kind": "", "card": {}, "seal": {"sha256": "", "key": "", "signature": ""}},
    ("POST", "/offered-environments"): {"name": "n", "requirements": "tqdm"},
    ("POST", "/runs/{run}/comments"): {"text": "n"},
    ("PATCH", "/comments/{comment}"): {"text": "n"},
    ("POST", "/runs/{run}/end"): {"state": "completed"},
    ("POST", "/projects/{project}/views"): {"name": "n"},
    ("POST", "/projects/{project}/models"): {"name": "n"},
    ("POST", "/runs/{run}/models"): {"name": "n"},
    ("PUT", "/models/{model}/aliases/{alias}"): {"version": 1},
    ("POST", "/projects/{project}/triggers"): {"event": "call", "experiment": 1},
    ("POST", "/nodes/{name}/drain"): {"draining": True},
    ("POST", "/nodes/{name}/lost"): {"confirm_name": "no"},
    ("POST", "/nodes/{name}/slots/{slot}/drain"): {"draining": True},
    ("POST", "/nodes/{name}/slots/{slot}/back"): {"reason": "n"},
    ("PATCH", "/nodes/{name}"): {"title": "n"},
    ("POST", "/nodes"): {"name": "beta"},
    ("POST", "/pilot-pools"): {"name": "cpu", "slots": 2, "most": 1},
    ("POST", "/people"): {"username": "eve"},
    ("POST", "/people/{account}/close"): {},
    ("POST", "/people/{account}/log-out"): {},
}
NOTHING_THERE = (  # in what is seeded
    "/runs/{run}/files/{path}", "/runs/{run}/previews/{path}", "/runs/{run}/media/shown", "/runs/{run}/media/picture",
    "/data/{data}/files/{path}", "/data/{data}/previews/{path}", "/runs/{run}/reproduction",
    "/models/{model}/versions/{which}/files/{path}", "/experiments/{experiment}/search",
)  # fmt: skip
NO_BODY = ("GET", "DELETE")


def filled(path: str, studio: Seeded) -> str:
    """The address with things of Alice's in it."""
    token = ApiToken.objects.filter(person=studio.alice).first()
    triggers = Trigger.objects.filter(project=studio.digits)
    if not triggers.exists():
        services.create_trigger(studio.digits, by=studio.alice, event="call", experiment=studio.experiment, now=timezone.now())
    crossing = {"by": studio.alice, "metric": "train loss", "above": True, "threshold": 9.0}
    of_run, of_experiment = watches.watch_metric(studio.running, **crossing), watches.watch_experiment(studio.experiment, **crossing)
    known = {
        "project": studio.digits.pk, "definition": studio.version.definition.pk, "version": studio.version.pk, "data": studio.data.pk,
        "upload": studio.upload.pk, "number": 0, "experiment": studio.experiment.pk, "run": studio.running.pk, "username": "bob",
        "slot": studio.node.slots.all()[0].pk, "webhook": studio.hook.pk, "trigger": triggers[0].pk, "token": token.pk if token else 0,
        "name": "local" if path.startswith("/nodes") else "driver" if path.startswith("/runs") else "A", "path": "model/model.pth",
        "threshold": (of_run if path.startswith("/runs") else of_experiment).pk, "environment": studio.environment.pk,
        "imported": import_of(studio.alice).pk, "offered": NamedEnvironment.objects.order_by("pk")[0].pk,
        "comment": comment_of(studio).pk, "pool": "gpu", "account": studio.bob.pk,
        "view": view_of(studio).pk, "model": version_of(studio).model_id, "which": "1", "alias": "champion",
    }  # fmt: skip
    return re.sub(r"{(\w+)}", lambda found: str(known[found[1]]), path)


def sent(script: Script, call: tuple[str, str], studio: Seeded) -> int:
    method, path = call
    asked = {"/stream": "?topic=cluster", "/search": "?q=digits", "/compare": "?run=1", "/points": f"?run={studio.completed.pk}"}
    asked |= {"/runs/{run}/media/shown": "?kind=text&name=notes", "/runs/{run}/media/picture": "?file=a&offset=0&size=1"}
    asked |= dict.fromkeys(("/uploads/{upload}/files/{number}", "/projects/imports/{imported}/archive"), "?offset=0")
    query = asked.get(path, "")
    address = filled(path, studio) + query
    if call in (("POST", "/projects/{project}/definitions"), ("POST", "/definitions/{definition}/versions")):
        return script.upload(address, {"name": "n"} if path.startswith("/projects") else {"command": "main.py"}).status_code
    if call == ("POST", "/definitions/{definition}/copy"):
        return script.post(address, {"project": studio.digits.pk}).status_code
    if call == ("POST", "/projects/{project}/runs"):
        return script.post(address, {"version": studio.version.pk}).status_code
    return script.send(method, address, None if method in NO_BODY else BODIES.get(call, {})).status_code


def counted() -> tuple[int, ...]:
    return tuple(each.objects.count() for each in (Project, TrainingDefinition, TrainingRun))


def each(calls: set[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    yield from sorted(calls)


def test_nobody_gets_anything(studio: Seeded) -> None:
    wrong = {call: status for call in each(set(CALLS) - PUBLIC) if (status := sent(Script(), call, studio)) != 401}
    assert not wrong


def test_a_token_that_has_ended_is_nobodys(studio: Seeded) -> None:
    script = api.of(studio.alice)
    assert script.get("/me").status_code == 200
    ApiToken.objects.all().delete()
    assert {sent(script, call, studio) for call in each(set(CALLS) - PUBLIC)} == {401}


def test_a_stranger_is_told_that_there_is_no_such_thing(studio: Seeded, stranger: User) -> None:
    before, script = counted(), api.of(stranger)
    api.of(studio.alice)
    wrong = {call: status for call in each(MEMBERS | PRIVATE) if (status := sent(script, call, studio)) != 404}
    assert not wrong
    assert counted() == before


def test_a_viewer_reads_and_changes_nothing(studio: Seeded) -> None:
    before, script = counted(), api.of(User.objects.get(username="victor"))
    of_editors = {("GET", "/uploads/{upload}")}  # what is under way is of who began it
    of_editors |= {("GET", "/projects/{project}/triggers"), ("GET", "/triggers/{trigger}/deliveries")}
    of_nothing = {("GET", path) for path in NOTHING_THERE}
    own = {("POST", "/runs/{run}/thresholds"), ("POST", "/experiments/{experiment}/thresholds"), ("POST", "/projects/{project}/views")}
    got = {call: sent(script, call, studio) for call in each(MEMBERS)}
    wanted = {
        call: 400
        if call == ("GET", "/runs/{run}/receipt")
        else 404
        if call in of_nothing
        else 201
        if call in own
        else 200
        if call[0] == "GET" and call not in of_editors
        else 403
        for call in got
    }
    assert {call: status for call, status in got.items() if status != wanted[call]} == {}
    assert counted() == before


def test_the_cluster_is_changed_by_its_administrators_alone(studio: Seeded) -> None:
    before = {call: sent(api.of(studio.alice), call, studio) for call in each(CLUSTER_ADMINS)}
    assert set(before.values()) == {403}
    narrow = {call: sent(api.of(studio.dora, "write"), call, studio) for call in each(CLUSTER_ADMINS)}
    assert set(narrow.values()) == {403}, "a token of scope write is not that of an administrator"
    may = {call: sent(api.of(studio.dora), call, studio) for call in each(CLUSTER_ADMINS)}
    assert set(may.values()) <= {200, 201, 202, 400}, may


def test_a_token_that_may_read_changes_nothing_but_itself(studio: Seeded) -> None:
    script = api.of(studio.alice, "read")
    writes = {call for call in CALLS if call[0] != "GET"}
    got = {call: sent(script, call, studio) for call in each(writes - {("DELETE", "/tokens/current")})}
    assert set(got.values()) == {403}, got
    assert script.get(f"/runs/{studio.running.pk}").status_code == 200
    assert script.send("DELETE", "/tokens/current").status_code == 204
    assert script.get("/me").status_code == 401


def test_a_token_of_a_project_knows_no_other(studio: Seeded) -> None:
    script = api.of(studio.bob, "write", project=studio.cifar)
    wrong = {call: status for call in each(MEMBERS) if (status := sent(script, call, studio)) != 404}
    assert not wrong, "Bob is an editor there, the token is not"
    assert [each["id"] for each in script.get("/projects").json()["items"]] == [studio.cifar.pk]
    assert {each["project"] for each in script.get("/runs").json()["items"]} == {studio.cifar.pk}
    assert script.post("/projects", {"name": "Another"}).status_code == 403
    assert script.post("/projects/imports", {"file": "a.zip", "size": 1}).status_code == 403
    assert script.get("/tokens").status_code == 403
    assert script.get("/notifications").status_code == 403


@pytest.mark.parametrize("state", ["running", "completed"])
def test_a_token_of_a_run_is_good_as_long_as_the_run_lives(studio: Seeded, state: str) -> None:
    script = api.of(studio.alice, "write")
    answer = script.post("/tokens", {"name": "from the run", "run": getattr(studio, state).pk, "scope": "read"})
    if state == "completed":
        assert answer.status_code == 400
        assert "has ended" in answer.json()["detail"]
        return
    of_run = Script(answer.json()["token"])
    assert of_run.get(f"/runs/{studio.running.pk}").status_code == 200
    TrainingRun.objects.filter(pk=studio.running.pk).update(state="completed")
    assert of_run.get(f"/runs/{studio.running.pk}").status_code == 401


def test_an_administrator_who_is_no_member_controls_a_run_and_reads_nothing_of_it(studio: Seeded) -> None:
    TrainingRun.objects.filter(pk=studio.running.pk).update(note="secret plans", tags=["secret"])
    script = api.of(studio.dora)
    assert script.get(f"/runs/{studio.running.pk}").status_code == 404
    answer = script.send("PATCH", f"/runs/{studio.running.pk}", {"priority": 9000})
    assert (answer.status_code, answer.json()["priority"]) == (200, 9000)
    assert b"secret" not in answer.content
    assert answer.json()["command"] == ""
    assert script.send("PATCH", f"/runs/{studio.running.pk}", {"note": "mine"}).status_code == 404


def test_a_page_of_the_studio_may_ask_and_another_sites_may_not(studio: Seeded, as_: As) -> None:
    assert as_(studio.alice).get("/api/v1/me").json()["username"] == "alice"
    checked = type(as_(studio.alice))(enforce_csrf_checks=True)
    checked.force_login(studio.alice)
    refused = checked.post("/api/v1/projects", b'{"name": "Forged"}', content_type="application/json")
    assert refused.status_code == 403
    assert not Project.objects.filter(name="Forged").exists()


def test_a_shut_out_persons_token_is_over(studio: Seeded) -> None:
    script = api.of(studio.bob)
    User.objects.filter(pk=studio.bob.pk).update(is_active=False)
    assert script.get("/me").status_code == 401
