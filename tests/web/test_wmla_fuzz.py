"""Every address of WMLA's interface with anything at all: no failure of the server, nothing of other people's, and no answer to nobody."""

from __future__ import annotations

import json
import re
import urllib.parse
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from experiments.models import Project, User
from experiments.wmla.urls import urlpatterns
from tests import cast
from tests.conftest import SentMessages
from tests.web import wmla
from tests.web.submitting import tar
from tests.web.test_wmla_addresses import METHODS, address
from tests.web.wmla import DL, Script

TEXT = st.text(max_size=40)
WORDS = st.sampled_from(
    [
        "--exec-start",
        "edtPyTorch",
        "PyTorch",
        "--model-main",
        "main.py",
        "--model-dir",
        "m",
        "--numWorker",
        "2",
        "0",
        "-1",
        "1e9",
        "99999999999",
        "--workerDeviceNum",
        "--msd-env",
        "A=b",
        "--cs-datastore-meta",
        "type=fs,data_path=..",
        "type=fs",
        "type=cos",
        "--data-source",
        "[]",
        "{}",
        "[{}]",
        "null",
        "--msd-priority",
        "--",
        "--epochs",
        "'",
        '"',
        "\\",
        "\x00",
        "\ud7ff",
        "--workerDeviceType",
        "gpu",
        "cpu",
        "--edt-options",
        "maxWorkers=2",
        "maxWorkers=",
    ]
)
ARGS = st.lists(WORDS | TEXT, max_size=12).map(" ".join)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT, lambda each: st.lists(each) | st.dictionaries(TEXT, each)
)
SPEC = st.dictionaries(st.sampled_from(["args", "hardwareSpec", "dataSource", "nodes"]), JSON | ARGS)
FILES = st.sampled_from([b"", b"PK\x03\x04", b"PK\x05\x06" + bytes(18), b"\x1f\x8b\x08\x00", b"BZh9", cast.MAIN_PY.encode()])
QUERY = st.dictionaries(
    st.sampled_from(
        [
            "args",
            "sigName",
            "limit",
            "state",
            "sort_by",
            "logType",
            "lastlines",
            "start",
            "length",
            "sort",
            "order",
            "search",
            "applicationid",
            "driverid",
            "name",
        ]
    ),
    TEXT | st.sampled_from(["id:desc", "-1", "10", "RUNNING", "wmla-1", "99999999999999999999"]),
)
PATIENT = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture
def script(alice: User, bob: User, said: SentMessages, project: Project) -> Script:
    bobs = cast.run(cast.shared_project(bob, editor=cast.person("eve"), viewer=cast.person("frank"), name="Bob's secret"), by=bob)
    assert bobs.pk
    return wmla.of(alice)


def checked(answer: Any) -> None:
    content = wmla.body(answer)
    assert answer.status_code < 500, content
    assert answer.status_code not in range(300, 400), "a redirect loses what is posted"
    assert b"secret" not in content
    assert not answer["Content-Type"].startswith("text/html") if content else True
    if answer["Content-Type"] == "application/json" and content:
        json.loads(content)


PUBLIC = ("dlicmd", "rest_openapi")  # they say nothing of what the studio has


@PATIENT
@given(place=st.integers(0, len(urlpatterns) - 1), method=st.sampled_from(METHODS), query=QUERY, said=TEXT, data=st.data())
def test_any_address_with_anything(script: Script, place: int, method: str, query: dict[str, str], said: str, data: Any) -> None:
    pattern = urlpatterns[place]
    if pattern.name in PUBLIC:
        return
    path = address(pattern)
    if pattern.pattern.regex.groups and data.draw(st.booleans()):
        path = re.sub("wmla-1|b7a7bb5e[^/]*", lambda _: urllib.parse.quote(said, safe="") or "x", path)
    body = data.draw(st.sampled_from(["", "{}", "[", "\x00"]) | TEXT)
    kind = data.draw(st.sampled_from(["application/json", "multipart/form-data; boundary=x", "text/plain", "multipart/form-data", "x"]))
    target = f"{path}?{urllib.parse.urlencode(query, errors='replace')}"
    sent: dict[str, Any] = {} if method in ("get", "head") else {"data": body.encode(errors="replace"), "content_type": kind}
    accept = data.draw(st.sampled_from(["application/json", "text/plain", "*/*", ""]))
    client = getattr(script.client, method)
    assert client(target, headers={"Accept": accept}, **sent).status_code in (401, 405), "nobody is answered"
    if pattern.name != "wmla_logoff":
        checked(client(target, headers={**script.headers, "Accept": accept}, **sent))


@PATIENT
@given(args=ARGS, spec=SPEC | JSON, content=FILES, name=st.sampled_from(["main.py", "m.tar", "m.zip", "m", "conda.yaml"]))
def test_any_submission(script: Script, args: str, spec: Any, content: bytes, name: str) -> None:
    sent = {"data": json.dumps(spec), "file": SimpleUploadedFile(name, content)}
    path = f"{DL}/execs?args={urllib.parse.quote(args, errors='replace')}"
    checked(script.call("post", path, sent, Accept="application/json"))


HALF = b"\\ud800"  # of a character: it cannot be written down


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/ml/v4/trainings", b'{"name": "' + HALF + b'"}'),
        ("/v2/spaces", b'{"name": "x", "description": "' + HALF + b'"}'),
        ("/v2/spaces", b'{"name": "\\u0000"}'),
        ("/icp4d-api/v1/authorize", b'{"username": "alice", "password": "' + HALF + b'"}'),
    ],
)
def test_text_that_cannot_be_written_down(script: Script, path: str, body: bytes) -> None:
    answer = script.client.post(path, body, content_type="application/json", headers=script.headers if "v1" not in path else {})
    assert answer.status_code == (401 if "v1" in path else 400)


def test_args_that_cannot_be_written_down(script: Script) -> None:
    spec = b'{"args": "--exec-start PyTorch --consumer ' + HALF + b'"}'
    sent = {"data": spec.decode(), "file": SimpleUploadedFile("main.py", cast.MAIN_PY.encode())}
    assert script.call("post", f"{DL}/execs", sent).status_code == 400
    located = '[{"location": {"paths": "' + HALF.decode() + '"}}]'
    args = urllib.parse.quote(f"--exec-start PyTorch --data-source '{located}'")
    assert script.call("post", f"{DL}/execs?args={args}", {"file": sent["file"]}).status_code == 400
    odd = script.call("post", f"{DL}/execs?sigName=a%00b&args=--exec-start%20PyTorch", {"file": SimpleUploadedFile("main.py", b"1\n")})
    assert (odd.status_code, odd.json()["sigName"]) == (200, "ab")


@PATIENT
@given(damage=st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), min_size=1, max_size=6), mode=st.sampled_from(["w", "w:gz"]))
def test_any_damaged_tar(script: Script, damage: list[tuple[int, int]], mode: str) -> None:
    content = bytearray(tar({"m/main.py": cast.MAIN_PY, "m/net.py": "X = 1\n"}, mode))
    for place, byte in damage:
        content[place % len(content)] = byte
    path = f"{DL}/execs?args=--exec-start%20PyTorch%20--model-main%20main.py"
    checked(script.call("post", path, {"file": SimpleUploadedFile("m.tar", bytes(content))}, Accept="application/json"))
