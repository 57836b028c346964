"""What nobody and a stranger get out of a real studio over its port: other people's addresses with every verb, other hosts and origins,
requests within requests, hostile archives, and sockets. (Limits on bodies and connections: tests/web/test_request_limits.py, against the
real server too.)"""

from __future__ import annotations

import contextlib
import io
import json
import os
import socket
import stat
import tarfile
import uuid
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from websockets.exceptions import InvalidStatus, WebSocketException
from websockets.sync.client import ClientConnection, connect

from tests.attack.conftest import Attack
from tests.attack.scene import Person, Scene
from tests.attack.visitor import Answer, Visitor, errors, form, raw
from tests.e2e.studio import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
RARE = ("HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "MOVE")
OVERRIDES = ("X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override")
EVIL = "http://evil.example"
DL = "/platform/rest/deeplearning/v1"


@pytest.fixture
def nobody(strongest: Scene) -> Visitor:
    return Visitor(strongest.studio.url)


@pytest.fixture
def charlie(attacked: Attack) -> Person:
    return attacked.scene.charlie


def alices(scene: Scene) -> dict[str, int]:
    """The numbers of what is hers."""
    ((version, experiment),) = scene.studio.rows("SELECT version_id, experiment_id FROM experiments_trainingrun WHERE id = ?", scene.hers)
    ((definition,),) = scene.studio.rows("SELECT definition_id FROM experiments_definitionversion WHERE id = ?", version)
    ((data,),) = scene.studio.rows("SELECT id FROM experiments_dataasset WHERE project_id = ?", scene.alice.project)
    numbers = {"project": scene.alice.project, "run": scene.hers, "version": int(version), "experiment": int(experiment)}
    return numbers | {"definition": int(definition), "data": int(data)}


def her_addresses(scene: Scene) -> list[str]:
    n = alices(scene)
    of_project = (
        "",
        "assets/",
        "jobs/",
        "members/",
        "settings/",
        "variables/",
        "delete/",
        "definitions/new/",
        "experiments/new/",
        "data/new/",
    )
    of_run = ("", "overview/", "logs/", "results/", "media/", "series", "points", "use", "log", "log/driver/download", "files/hers.txt")
    of_run += ("results.zip", "notes/", "stop/", "pause/", "priority/", "slots/", "continue/", "delete/", "look/hers.txt", "preview/")
    found = [f"/projects/{n['project']}/{each}" for each in of_project] + [f"/runs/{n['run']}/{each}" for each in of_run]
    found += [f"/definitions/{n['definition']}/{each}" for each in ("", "copy/", "delete/", "variables/", "versions/new/")]
    found += [f"/versions/{n['version']}/{each}" for each in ("code/", "code/?file=main.py", "download/", "changes/", "row/")]
    found += [
        f"/experiments/{n['experiment']}/{each}" for each in ("", "compare/", "overview/", "run/", "delete/", "selected/", "?format=csv")
    ]
    return [*found, *(f"/data/{n['data']}/{each}" for each in ("", "download?path=hers.csv", "delete/"))]


def her_rest(scene: Scene) -> list[str]:
    run = scene.hers
    found = [f"{DL}/execs/{run}", f"{DL}/execs/wmla-{run}", f"{DL}/execs/{run}/log", f"{DL}/execs/{run}/result", f"{DL}/execs/{run}/stop"]
    found += [f"/ml/v4/trainings/{run}", f"{DL}/scheduler/applications/{run}/driver/logs/stdout"]
    return [*found, f"/api/2.0/mlflow/runs/get?run_id={run}", f"/api/2.0/mlflow-artifacts/artifacts/runs/{run}/hers.txt"]


def test_no_verb_opens_what_is_alices_to_nobody_or_to_a_stranger(attacked: Attack, nobody: Visitor, charlie: Person) -> None:
    scene, token = attacked.scene, charlie.token
    addresses = her_addresses(scene)
    asked = [(verb, path) for verb in ("GET", "POST") for path in addresses] + [(verb, path) for verb in RARE for path in addresses[::17]]
    for number, (verb, path) in enumerate(asked):
        people = ((charlie.browser, (404, 405)), (nobody, (302, 403)))
        for who, allowed in people[: 1 if number % 3 else 2]:  # as nobody, all of them: tests/web/test_every_address.py
            answer = who.ask(verb, path, b"" if verb in ("POST", "PUT", "PATCH") else None, X_CSRFToken=who.cookie("csrftoken"))
            assert answer.status in allowed, (verb, path, answer.status)
            assert answer.status != 302 or answer.location.startswith("/login/"), (verb, path, answer.location)
            assert scene.mark.encode() not in answer.body, (verb, path)
    for verb in ("GET", "POST", "PUT", "DELETE"):
        for path in her_rest(scene):
            for headers, allowed in (({}, (401, 404, 405)), ({"Authorization": f"Bearer {token}"}, (400, 403, 404, 405))):
                body = b"{}" if verb in ("POST", "PUT") else None
                answer = nobody.ask(verb, path, body, Accept="application/json", Content_Type="application/json", **headers)
                assert answer.status in allowed, (verb, path, headers, answer.status, answer.text[:200])
                assert scene.mark.encode() not in answer.body, (verb, path)
    assert scene.state(scene.hers) == "running"


def test_a_header_does_not_make_another_verb_of_a_request(attacked: Attack) -> None:
    """Alice follows a link that somebody has sent her: nothing that is only read stops her job."""
    scene = attacked.scene
    for name in OVERRIDES:
        answer = scene.alice.browser.ask("GET", f"/runs/{scene.hers}/stop/?_method=POST", None, **{name: "POST"})
        assert answer.status == 405
    answer = scene.alice.browser.post(f"/runs/{scene.hers}/", {"_method": "DELETE"}, X_HTTP_Method_Override="DELETE")
    assert answer.status == 405
    assert scene.state(scene.hers) == "running"


def test_things_of_others_cannot_be_named_in_ones_own_forms(attacked: Attack, charlie: Person) -> None:
    scene, n = attacked.scene, alices(attacked.scene)
    before = scene.studio.rows("SELECT COUNT(*) FROM experiments_trainingrun")
    fields = {"idempotency_key": uuid.uuid4(), "name": "mine", "description": "", "environment": ""}
    made = charlie.browser.post(f"/projects/{charlie.project}/experiments/new/", {**fields, "versions": [n["version"]]})
    assert (made.status, "Select a valid choice" in errors(made.text) or "not one of the available" in made.text) == (200, True), errors(
        made.text
    )
    own = own_version(scene, charlie)
    made = charlie.browser.post(f"/projects/{charlie.project}/experiments/new/", {**fields, "versions": [own], "data_asset": n["data"]})
    assert made.status == 200, made.location
    assert charlie.browser.get(f"/projects/{charlie.project}/experiments/new/?like={n['experiment']}").status == 404
    assert (
        charlie.browser.post(f"/definitions/{n['definition']}/copy/", {"idempotency_key": uuid.uuid4(), "project": charlie.project}).status
        == 404
    )
    mine = scene.studio.rows("SELECT experiment_id FROM experiments_trainingrun WHERE id = ?", attacked.run)[0][0]
    for do in ("stop", "delete", "tag", "compare"):
        answer = charlie.browser.post(f"/experiments/{mine}/selected/", {"do": do, "run": [n["run"]], "tag": "mine"})
        assert (answer.status, answer.location) == (302, f"/experiments/{mine}/")
    sent = {"model_definition": {"id": str(n["version"])}, "space_id": str(scene.alice.project), "name": "x"}
    answer = charlie.browser.ask(
        "POST", "/ml/v4/trainings", json.dumps(sent).encode(), Content_Type="application/json", X_Auth_Token=charlie.token
    )
    assert answer.status in (400, 403, 404)
    assert scene.studio.rows("SELECT COUNT(*) FROM experiments_trainingrun") == before
    assert scene.studio.rows("SELECT state, tags FROM experiments_trainingrun WHERE id = ?", scene.hers) == [("running", "[]")]


def own_version(scene: Scene, person: Person) -> int:
    wanted = """SELECT v.id FROM experiments_definitionversion v JOIN experiments_trainingdefinition d ON d.id = v.definition_id
        WHERE d.project_id = ? ORDER BY v.id DESC LIMIT 1"""
    ((found,),) = scene.studio.rows(wanted, person.project)
    return int(found)


def test_a_page_of_another_origin_changes_nothing_and_reads_nothing(attacked: Attack) -> None:
    """Alice's browser sends her cookies with what evil.example has it ask."""
    scene, alice = attacked.scene, attacked.scene.alice.browser
    kind, body = form({"name": "stolen"}, {})
    token = alice.cookie("csrftoken")
    for said in (
        {"Content_Type": kind},
        {"Content_Type": kind, "Origin": EVIL, "Referer": f"{EVIL}/"},
        {"Content_Type": kind, "Origin": EVIL, "X_CSRFToken": token},
        {"Content_Type": kind, "Origin": "null", "X_CSRFToken": token},
        {"Content_Type": "text/plain", "Origin": EVIL},
    ):
        assert alice.ask("POST", f"/runs/{scene.hers}/stop/", body, **said).status == 403, said
        assert alice.ask("POST", f"/projects/{scene.alice.project}/data/uploads/", b'{"name": "x", "files": []}', **said).status == 403, (
            said
        )
    for verb in ("OPTIONS", "GET"):
        for path in ("/projects/", f"/runs/{scene.hers}/series", f"{DL}/execs", f"{DL}/openapi.json", "/api/2.0/mlflow/experiments/search"):
            answer = alice.ask(
                verb, path, None, Origin=EVIL, Access_Control_Request_Method="GET", Access_Control_Request_Headers="x-auth-token"
            )
            assert not [name for name in answer.headers if name.lower().startswith("access-control")], path
    for path in (f"{DL}/execs", f"{DL}/execs/{scene.hers}", "/ml/v4/trainings", "/api/2.0/mlflow/experiments/search"):
        assert alice.get(path).status == 401, "cookies count for nothing there"
    assert scene.state(scene.hers) == "running"


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "evil.example:8000", "[::ffff:1.2.3.4]", "127.0.0.1@evil.example", ""]
)
def test_a_name_that_is_not_the_studios_is_not_answered(host: str, attacked: Attack) -> None:
    """As after DNS rebinding: the browser thinks that the studio is evil.example."""
    alice = attacked.scene.alice.browser
    request = f"GET /projects/ HTTP/1.1\r\nHost: {host}\r\nCookie: sessionid={alice.cookie('sessionid')}\r\nConnection: close\r\n\r\n"
    status, said = raw(alice.url, request.encode())
    assert status in (0, 400)
    assert "alice" not in said
    also = request.replace(f"Host: {host}", f"Host: 127.0.0.1\r\nX-Forwarded-Host: {host}")
    status, said = raw(alice.url, also.encode())
    assert (status, not host or host not in said) == (200, True), "no page speaks of a host that it was told beside"


SMUGGLED = b"GET /projects/ HTTP/1.1\r\nHost: 127.0.0.1\r\nX: "


@pytest.mark.parametrize(
    "head",
    [
        b"Content-Length: 4\r\nTransfer-Encoding: chunked",
        b"Transfer-Encoding: chunked\r\nContent-Length: 60",
        b"Content-Length: 0\r\nContent-Length: 60",
        b"Transfer-Encoding: xchunked",
        b"Transfer-Encoding : chunked",
        b"Transfer-Encoding:\x0bchunked",
        b"Content-Length: +0",
        b"Content-Length: 0\r\n Transfer-Encoding: chunked",
    ],
)
def test_a_request_within_a_request_is_none(head: bytes, strongest: Scene) -> None:
    """What two servers would read in two ways is refused, or the whole connection ends with it."""
    body = b"0\r\n\r\n" + SMUGGLED
    request = b"POST /login/ HTTP/1.1\r\nHost: 127.0.0.1\r\n" + head + b"\r\n\r\n" + body + b"\r\n\r\n"
    with socket.create_connection(("127.0.0.1", strongest.studio.port), timeout=40) as link:
        link.sendall(request)
        said = b""
        while piece := link.recv(1 << 16):  # until the studio ends the connection
            said += piece
    statuses = [int(line.split()[1]) for line in said.splitlines() if line.startswith(b"HTTP/1.1 ")]
    assert 200 not in statuses
    assert 302 not in statuses, "the second request was not answered"
    assert len(statuses) <= 1


@pytest.fixture
def opened(attacked: Attack) -> Iterator[Callable[..., ClientConnection]]:
    with contextlib.ExitStack() as links:

        def open_as(who: Visitor, **headers: str) -> ClientConnection:
            said = {"Cookie": f"sessionid={who.cookie('sessionid')}", **headers}
            origin = said.pop("Origin", attacked.scene.studio.url)
            link = connect(who.url.replace("http", "ws") + "/ws/", origin=origin, additional_headers=said, open_timeout=20)
            return links.enter_context(link)

        yield open_as


def test_sockets_are_for_who_is_logged_in_on_the_studios_own_pages(
    attacked: Attack, nobody: Visitor, charlie: Person, opened: Callable[..., ClientConnection]
) -> None:
    scene = attacked.scene
    for who, headers in (
        (nobody, {}),
        (scene.alice.browser, {"Origin": EVIL}),
        (scene.alice.browser, {"Host": "evil.example", "Origin": EVIL}),
    ):
        with pytest.raises((InvalidStatus, WebSocketException)):
            opened(who, **headers).recv(timeout=20)
    n = alices(scene)
    topics = [
        f"run-{n['run']}",
        f"experiment-{n['experiment']}",
        f"project-{n['project']}",
        f"log-{n['run']}-driver@0",
        "person-1",
        "../etc",
        7,
    ]
    link = opened(charlie.browser)
    link.send(json.dumps({"subscribe": topics}))
    link.send(json.dumps({"subscribe": ["cluster"]}))
    heard = [""]
    while "cluster" not in heard[-1]:
        heard.append(str(link.recv(timeout=20)))
    assert scene.mark not in "".join(heard)
    refused = {each["topic"] for each in map(json.loads, heard[1:]) if each.get("type") == "refused"}
    assert refused >= {*topics[:3], f"log-{n['run']}-driver"}, heard


def zip_of(*entries: tuple[str | zipfile.ZipInfo, bytes]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in entries:
            archive.writestr(name, data)
    return content.getvalue()


def entry(name: str, mode: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.create_system, info.external_attr = 3, mode << 16
    return info


def tar_of(*entries: tuple[str, bytes, str, bytes]) -> bytes:
    """(name, type, where it leads, content)."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for name, kind, link, data in (("main.py", tarfile.REGTYPE, "", b"print(1)"), *entries):
            info = tarfile.TarInfo(name)
            info.type, info.linkname, info.size, info.mode = kind, link, len(data), 0o6777
            archive.addfile(info, io.BytesIO(data))
    return content.getvalue()


MAIN = ("main.py", b"print(1)")
ARCHIVES = {
    "a way out": ("code.zip", zip_of(MAIN, ("../../intruder.py", b"x"))),
    "an absolute name": ("code.zip", zip_of(MAIN, ("/tmp/edt-intruder.py", b"x"))),
    "a way out for windows": ("code.zip", zip_of(MAIN, ("..\\..\\intruder.py", b"x"))),
    "a link": ("code.zip", zip_of(MAIN, (entry("secret", stat.S_IFLNK | 0o777), b"/etc/passwd"))),
    "a device": ("code.zip", zip_of(MAIN, (entry("memory", stat.S_IFCHR | 0o666), b""))),
    "a bomb": ("code.zip", zip_of(MAIN, ("zeros", bytes(64 << 20)))),
    "one name twice": ("code.zip", zip_of(MAIN, ("Main.py", b"print(2)"))),
    "a link in a tar": ("code.tar", tar_of(("secret", tarfile.SYMTYPE, "/etc/passwd", b""))),
    "a hard link in a tar": ("code.tar", tar_of(("secret", tarfile.LNKTYPE, "/etc/passwd", b""))),
    "a device in a tar": ("code.tar", tar_of(("memory", tarfile.CHRTYPE, "", b""))),
    "a way out in a tar": ("code.tar", tar_of(("../../intruder.py", tarfile.REGTYPE, "", b"x"))),
    "a pickle that calls itself a script": ("main.py", b"cos\nsystem\n(S'true'\ntR.\0"),
    "no archive": ("code.zip", os.urandom(1000)),
}


@pytest.mark.parametrize("what", list(ARCHIVES))
def test_a_hostile_archive_is_refused_with_a_sentence_and_leaves_nothing(
    what: str, attacked: Attack, charlie: Person, tmp_path: Path
) -> None:
    home = attacked.scene.studio.home
    before = stores(home)
    name, content = ARCHIVES[what]
    (tmp_path / name).write_bytes(content)
    definition = {
        "name": "hostile",
        "description": "",
        "framework": "pytorch",
        "command": "main.py",
        "device": "any",
        "distributed": "single",
    }
    sent = {"idempotency_key": uuid.uuid4(), "max_slots": 1, "network": "none", "packages": "studio", **definition}
    answer: Answer = charlie.browser.post(f"/projects/{charlie.project}/definitions/new/", sent, {"upload": tmp_path / name})
    assert answer.status == 200, answer.location
    assert len(errors(answer.text)) > 20
    assert 'id="id_upload_error"' in answer.text
    wait_until(lambda: stores(home) == before, lambda: f"{set(stores(home)) ^ set(before)}")  # the upload itself goes after the answer
    assert not Path("/tmp/edt-intruder.py").exists()


def stores(home: Path) -> list[str]:
    """What is kept of code, and what lies beside EDT_HOME with such a name."""
    return sorted(str(path) for name in ("code", "bundles", "tmp") for path in (home / name).iterdir()) + sorted(
        str(path) for path in home.parent.glob("intruder*")
    )
