"""What strangers may make the web process hold: a real uvicorn as the studio starts it, and bytes on a real socket."""

from __future__ import annotations

import contextlib
import json
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from django.test import Client

from experiments.accounts.addresses import network_of
from experiments.models import DataUpload, User
from experiments.views.uploads import MOST_PIECE_BYTES
from tests import cast
from webapp import asgi, request_limits
from webapp.studio import web

pytestmark = pytest.mark.django_db(transaction=True)
MIB = 1 << 20
DEADLINE_S = 30.0


class Server:
    """The web process in a thread of this one, with limits that a test may have made smaller."""

    def __init__(self, *, app: request_limits.App = asgi.django, **changes: Any) -> None:
        self.limits = request_limits.RequestLimits(app, limits=replace(asgi.limits, **changes), person=asgi.person_of)
        self.uvicorn = uvicorn.Server(web.config(self.limits, log_level="critical"))
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self.listener.getsockname()[1])
        self.thread = threading.Thread(target=self.uvicorn.run, kwargs={"sockets": [self.listener]}, daemon=True)

    def __enter__(self) -> Server:
        self.thread.start()
        wait_until(lambda: self.uvicorn.started, "the server")
        return self

    def __exit__(self, *_: object) -> None:
        self.uvicorn.should_exit = True
        self.thread.join(DEADLINE_S)
        assert not self.thread.is_alive()

    @contextlib.contextmanager
    def connected(self) -> Iterator[socket.socket]:
        with socket.create_connection(("127.0.0.1", self.port), timeout=DEADLINE_S) as made:
            yield made


def wait_until(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end, f"{what}: not within {DEADLINE_S} s"
        time.sleep(0.01)


def head(method: str, path: str, **headers: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode()


def send_chunks(to: socket.socket, total: int) -> int:
    """Zeros in chunks, as far as the server takes them; how many bytes it took."""
    chunk, sent = bytes(64 << 10), 0
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        while sent < total:
            to.sendall(b"%x\r\n%b\r\n" % (len(chunk), chunk))
            sent += len(chunk)
    return sent


def answer(of: socket.socket) -> tuple[int, str]:
    """(status, all that came); a connection that the server has closed hard says what came before."""
    said = b""
    with contextlib.suppress(ConnectionResetError):
        while more := of.recv(1 << 16):
            said += more
    return int(said.split(b" ", 2)[1]) if said else 0, said.decode(errors="replace")


def held_in_files() -> int:
    """Bytes of files that have no name any more, which is how Django keeps a body."""
    total = 0
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if "(deleted)" in str(link.readlink()):
                total += link.stat().st_size
    return total


def login(username: str) -> dict[str, str]:
    """The headers of a browser that is logged in."""
    client = Client()
    client.force_login(User.objects.get(username=username))
    client.get("/projects/")
    session, token = client.cookies["sessionid"].value, "a" * 32
    return {"Cookie": f"sessionid={session}; csrftoken={token}", "X_CSRFToken": token, "Accept": "application/json"}


@pytest.fixture
def upload(transactional_db: None, home: Path) -> DataUpload:
    """Of Alice, who has announced a file of 32 MiB."""
    project = cast.shared_project(cast.person("alice"), editor=cast.person("bob"), viewer=cast.person("victor"))
    client = Client()
    client.force_login(User.objects.get(username="alice"))
    files = {"name": "digits", "files": [{"path": "digits.bin", "size": 32 * MIB}]}
    made = client.post(f"/projects/{project.pk}/data/uploads/", json.dumps(files), content_type="application/json")
    assert made.status_code == 201, made.content
    return DataUpload.objects.get()


@pytest.mark.parametrize("path", ["/nosuchpage", "/login/", "/projects/1/data/new/"])
def test_an_endless_body_of_a_stranger_is_given_up_and_nothing_of_it_is_held(path: str, transactional_db: None) -> None:
    before = held_in_files()  # by other tests of this process
    with Server() as server, server.connected() as client:
        client.sendall(head("POST", path, Transfer_Encoding="chunked"))
        sent = send_chunks(client, 64 * MIB)
        assert sent < 16 * MIB, "beside what the sockets hold, 2 MiB"
        wait_until(lambda: held_in_files() < before + 4 * MIB, "the body is thrown away")
        wait_until(lambda: not server.limits.bodies and not server.limits.open, "the request is over")


@pytest.mark.parametrize("path", ["/login/", "/projects/1/definitions/new/"])
def test_a_body_that_says_how_large_it_is_is_refused_unread(path: str, transactional_db: None) -> None:
    with Server() as server, server.connected() as client:
        client.sendall(head("POST", path, Content_Length=str(300 * MIB)))
        status, said = answer(client)
        assert status == (413 if path == "/login/" else 401)
        assert ("at most 2 MiB" if path == "/login/" else "Log in") in said


def test_who_is_logged_in_sends_pieces_and_no_more_than_a_piece(upload: DataUpload) -> None:
    place = f"/uploads/{upload.pk}/files/0"
    with Server() as server:
        with server.connected() as client:
            client.sendall(head("PUT", f"{place}?offset=0", Connection="close", Content_Length=str(8 * MIB), **login("alice")))
            client.sendall(bytes(8 * MIB))
            status, said = answer(client)
            assert (status, said.rsplit("\r\n", 1)[-1]) == (200, json.dumps({"size": 8 * MIB}))
        with server.connected() as client:
            client.sendall(head("PUT", f"{place}?offset={8 * MIB}", Transfer_Encoding="chunked", **login("alice")))
            assert send_chunks(client, 64 * MIB) < 64 * MIB
        with server.connected() as client:
            client.sendall(head("PUT", f"{place}?offset={8 * MIB}", Content_Length=str(MOST_PIECE_BYTES + 1), **login("alice")))
            status, said = answer(client)
            assert status == 413
            assert "at most 16 MiB" in json.loads(said.rsplit("\r\n", 1)[-1])["errors"]["upload"][0]


def test_a_body_that_stops_coming_is_given_up(transactional_db: None) -> None:
    with Server(first_s=0.2) as server, server.connected() as client:
        client.sendall(head("POST", "/login/", Content_Length="1000") + b"username=")
        status, said = answer(client)
        assert status == 408
        assert "too slowly" in said


def test_a_body_that_keeps_coming_has_the_time_it_needs(transactional_db: None) -> None:
    """Far longer than `first_s`, by the clock of the server: each byte buys a second."""
    with Server(first_s=0.3, slowest_bytes_s=1) as server, server.connected() as client:
        body = b"username=alice&password=x"
        began = time.monotonic()
        client.sendall(head("POST", "/login/", Connection="close", Content_Length=str(len(body))) + body[:-1])
        wait_until(lambda: time.monotonic() - began > 0.5, "the first stretch is over")
        client.sendall(body[-1:])
        assert answer(client)[0] == 403  # no CSRF token: Django has read it all


def test_an_address_has_so_many_bodies_and_requests_open_and_then_waits(transactional_db: None) -> None:
    with Server(open_requests=3, small_bodies=2) as server, contextlib.ExitStack() as clients:
        for _ in range(2):
            client = clients.enter_context(server.connected())
            client.sendall(head("POST", "/login/", Content_Length="100") + b"username=")
        wait_until(lambda: server.limits.bodies["127.0.0.1"] == 2, "two bodies on their way")
        third = clients.enter_context(server.connected())
        third.sendall(head("POST", "/login/", Content_Length="100") + b"username=")
        status, said = answer(third)
        assert (status, "Retry-After: 5".lower() in said.lower()) == (503, True)
        page = clients.enter_context(server.connected())
        page.sendall(head("GET", "/login/", Connection="close"))
        assert answer(page)[0] == 200, "a page needs no body"


def test_a_head_without_end_is_refused(transactional_db: None) -> None:
    with Server() as server, server.connected() as client:
        client.sendall(b"GET /login/ HTTP/1.1\r\nHost: localhost\r\n")
        sent, line = 0, b"X-Long: " + b"x" * 1000 + b"\r\n"
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            while sent < 64 * MIB:
                client.sendall(line)
                sent += len(line)
        assert sent < 16 * MIB


@pytest.mark.parametrize("said", [b"", b"GET /login/ HT", head("GET", "/login/") + b"GET /lo"])
def test_a_connection_that_does_not_say_what_it_wants_is_closed(said: bytes, transactional_db: None, monkeypatch: Any) -> None:
    monkeypatch.setattr(web, "HEAD_S", 0.2)
    with Server() as server, server.connected() as client:
        client.sendall(said)
        answer(client)  # returns, because the server closes


def test_nobody_is_believed_about_addresses_but_a_named_proxy(transactional_db: None, settings: Any) -> None:
    seen: list[Any] = []

    async def note(scope: Any, receive: Any, send: Any) -> None:
        seen.append((scope["client"][0], scope["scheme"]))
        await asgi.django(scope, receive, send)

    for proxies in ([], ["10.0.0.9"], ["127.0.0.1"]):
        settings.EDT_TRUSTED_PROXIES = proxies
        with Server(app=note) as server, server.connected() as client:
            client.sendall(head("GET", "/login/", Connection="close", X_Forwarded_For="203.0.113.7", X_Forwarded_Proto="https"))
            assert answer(client)[0] == 200
    assert seen == [("127.0.0.1", "http"), ("127.0.0.1", "http"), ("203.0.113.7", "https")]


def test_the_neighbours_of_an_ipv6_network_are_one_address() -> None:
    assert network_of("2001:db8::1") == network_of("2001:db8::ffff:2")
    assert network_of("2001:db8::1") != network_of("2001:db8:0:1::1")
    assert network_of("::ffff:192.0.2.1") == "192.0.2.1"
    assert network_of("") == ""


def test_bodies_are_written_into_the_studios_own_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, settings: Any) -> None:
    settings.FILE_UPLOAD_TEMP_DIR = tmp_path
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr("sys.argv", ["web", "--port", "0"])
    written: list[str] = []
    monkeypatch.setattr(uvicorn.Server, "run", lambda *_, **__: written.append(tempfile.gettempdir()))
    web.main()
    assert written == [str(tmp_path)]
