"""Which studio is meant, what is kept of a login, and what the client says when something is not as it should be."""

from __future__ import annotations

import asyncio
import datetime as dt
import hashlib
import io
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from edt_client import credentials, registry
from edt_client.async_connection import AsyncConnection
from edt_client.cli.main import main
from edt_client.connection import Connection
from edt_client.credentials import Studio
from edt_client.errors import ClientError, NoAnswer, Refused
from edt_client.studio import Client
from edt_client.transport import CHUNK_BYTES

URL = "https://studio.example.org"


@pytest.mark.parametrize(
    ("said", "url"),
    [
        ("studio.example.org", URL),
        (" https://studio.example.org/ ", URL),
        ("localhost:8000", "http://localhost:8000"),
        ("http://10.0.0.3:9000", "http://10.0.0.3:9000"),
    ],
)
def test_an_address_is_https_unless_it_is_this_machine_or_says_otherwise(said: str, url: str) -> None:
    assert credentials.address(said) == url


@pytest.mark.parametrize(
    "said", ["", "ftp://x", "https://", "https://x?y", "https://alice:secret@x", "ftp://alice:secret@x", "https://x:port"]
)
def test_what_is_no_address_is_refused_without_repeating_a_password(said: str) -> None:
    with pytest.raises(ClientError) as raised:
        credentials.address(said)
    assert "secret" not in str(raised.value)


def test_the_environment_names_a_studio_else_the_last_login_else_there_is_none(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path)}
    assert credentials.named(home) is None
    file = credentials.save_token(Studio(URL, "kept"), "alice", home)
    credentials.save_token(Studio("https://other.example.org", "other", "/ca.pem"), "alice", home)
    assert credentials.named(home) == Studio("https://other.example.org", "other", "/ca.pem")
    assert credentials.named({**home, "EDT_STUDIO": URL}) == Studio(URL, "kept")
    assert credentials.named({**home, "EDT_STUDIO": URL, "EDT_TOKEN": "mine"}) == Studio(URL, "mine", from_environment=True)
    assert credentials.named({**home, "EDT_STUDIO": "local"}) is None
    assert (oct(file.stat().st_mode)[-3:], oct(file.parent.stat().st_mode)[-3:]) == ("600", "700")
    assert "kept" not in repr(credentials.named({**home, "EDT_STUDIO": URL}))


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({"EDT_TOKEN": "x"}, "EDT_TOKEN is set and EDT_STUDIO is not"),
        ({"EDT_STUDIO": URL}, f"not logged in to {URL}: run edt login {URL}, or set EDT_TOKEN. EDT_STUDIO=local trains on this machine."),
        ({"EDT_STUDIO": "https://"}, "no address of a studio"),
    ],
)
def test_what_is_missing_is_said(tmp_path: Path, environment: dict[str, str], says: str) -> None:
    with pytest.raises(ClientError) as raised:
        credentials.named({"HOME": str(tmp_path), **environment})
    assert says in str(raised.value)


@pytest.mark.parametrize("content", ["{", "[]", '{"studios": []}', '{"studios": {"x": 1}}'])
def test_a_file_that_is_not_its_own_is_not_taken_for_one(tmp_path: Path, content: str) -> None:
    file = credentials.path({"HOME": str(tmp_path)})
    file.parent.mkdir(parents=True)
    file.write_text(content)
    with pytest.raises(ClientError, match=r"delete it and run edt login again"):
        credentials.named({"HOME": str(tmp_path)})


Serve = Callable[..., tuple[str, list[tuple[str, str]]]]


class Answers(BaseHTTPRequestHandler):
    """A server that is no studio: it answers what the test wants, and keeps what it was sent."""

    answer: Callable[[BaseHTTPRequestHandler], None]
    heard: list[tuple[str, str]]

    def do_GET(self) -> None:
        type(self).heard.append((self.path, self.headers.get("Authorization", "")))
        type(self).answer(self)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.do_GET()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def serve() -> Iterator[Serve]:
    servers = []

    def begin(answer: Callable[[BaseHTTPRequestHandler], None], *, tls: ssl.SSLContext | None = None) -> tuple[str, list[tuple[str, str]]]:
        handler = type("Handler", (Answers,), {"answer": staticmethod(answer), "heard": []})
        server = HTTPServer(("127.0.0.1", 0), handler)
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        servers.append((server, thread))
        return f"{'https' if tls else 'http'}://localhost:{server.server_address[1]}", handler.heard

    yield begin
    for server, thread in servers:
        server.shutdown()
        thread.join(10)
        server.server_close()


def say(status: int, body: bytes, **headers: str) -> Callable[[BaseHTTPRequestHandler], None]:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            request.send_header(name, value)
        request.end_headers()
        request.wfile.write(body)

    return answer


def test_a_redirect_does_not_take_the_token_anywhere(serve: Serve) -> None:
    other, heard = serve(say(200, b"{}"))
    url, _ = serve(say(302, b"", Location=f"{other}/login/"))
    with pytest.raises(Refused, match=r"sends its callers on to .*: name that address instead"):
        Client(Studio(url, "secret")).job("wmla-1")
    assert heard == []


def test_what_is_no_studio_is_not_taken_for_one(serve: Serve) -> None:
    url, _ = serve(say(200, b"<html>Welcome</html>"))
    for call in (lambda: Client(Studio(url)).log_on("alice", "x"), lambda: Client(Studio(url, "t")).job("wmla-1")):
        with pytest.raises(NoAnswer, match=r"is no studio: check the address"):
            call()


def test_an_answer_that_breaks_off_is_no_model(serve: Serve, tmp_path: Path) -> None:
    url, _ = serve(say(200, b"half", **{"Content-Length": "8"}))
    with pytest.raises(NoAnswer):
        Client(Studio(url, "t")).save("wmla-1", tmp_path / "x", file="model/x.pth")


SIZE, HALF = 2 * CHUNK_BYTES, CHUNK_BYTES  # of what is written as it comes


def fetch_waiting(url: str, path: str, to: Path) -> None:
    with Connection(url, "t") as studio:
        studio.download(path, to, size_bytes=SIZE)


def fetch_awaiting(url: str, path: str, to: Path) -> None:
    async def fetch() -> None:
        async with AsyncConnection(url, "t") as studio:
            await studio.download(path, to, size_bytes=SIZE)

    asyncio.run(fetch())


Fetch = Callable[[str, str, Path], None]
both = pytest.mark.parametrize("fetch", [fetch_waiting, fetch_awaiting])


def offer(files: dict[str, tuple[str, bytes]], *, cut: set[str]) -> Callable[[BaseHTTPRequestHandler], None]:
    """Files by their addresses, each with its ETag, or the part that is asked for; of those in `cut` once not all."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        mark, body = files[request.path]
        begin = int(request.headers.get("Range", "bytes=0-")[6:-1]) if request.headers.get("If-Range", mark) == mark else 0
        request.send_response(206 if begin else 200)
        request.send_header("Content-Length", str(len(body) - begin))
        request.send_header("ETag", mark)
        request.end_headers()
        request.wfile.write(body[begin : HALF if request.path in cut else None])
        cut.discard(request.path)

    return answer


@both
def test_a_download_that_broke_off_goes_on_where_it_stopped(serve: Serve, tmp_path: Path, fetch: Fetch) -> None:
    file = "/api/v1/runs/7/files/model.pth"
    url, heard = serve(offer({file: ('"7"', b"7" * SIZE)}, cut={file}))
    with pytest.raises(NoAnswer):
        fetch(url, "/runs/7/files/model.pth", tmp_path / "model.pth")
    assert (tmp_path / "model.pth.part").read_bytes() == b"7" * HALF
    (tmp_path / "model.pth.part").write_bytes(b"-" * HALF)  # so that it is seen whether these are sent again
    fetch(url, "/runs/7/files/model.pth", tmp_path / "model.pth")
    assert (tmp_path / "model.pth").read_bytes() == b"-" * HALF + b"7" * HALF
    assert len(heard) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["model.pth"]


@both
def test_a_download_is_never_put_together_of_two_runs_files(serve: Serve, tmp_path: Path, fetch: Fetch) -> None:
    files = {f"/api/v1/runs/{run}/files/model.pth": (f'"{run}"', str(run).encode() * SIZE) for run in (7, 8)}
    url, _ = serve(offer(files, cut={"/api/v1/runs/7/files/model.pth"}))
    with pytest.raises(NoAnswer):
        fetch(url, "/runs/7/files/model.pth", tmp_path / "model.pth")
    fetch(url, "/runs/8/files/model.pth", tmp_path / "model.pth")
    assert (tmp_path / "model.pth").read_bytes() == b"8" * SIZE


@both
def test_a_file_that_was_written_anew_since_its_download_broke_off_is_sent_from_its_beginning(
    serve: Serve, tmp_path: Path, fetch: Fetch
) -> None:
    file = "/api/v1/runs/7/files/last.pth"
    files = {file: ('"1"', b"1" * SIZE)}
    url, _ = serve(offer(files, cut={file}))
    with pytest.raises(NoAnswer):
        fetch(url, "/runs/7/files/last.pth", tmp_path / "last.pth")
    files[file] = ('"2"', b"2" * SIZE)
    fetch(url, "/runs/7/files/last.pth", tmp_path / "last.pth")
    assert (tmp_path / "last.pth").read_bytes() == b"2" * SIZE


def test_a_file_of_a_model_that_did_not_arrive_as_it_was_registered_does_not_stay(tmp_path: Path) -> None:
    (tmp_path / "model.pth").write_bytes(b"weights")
    whole = registry.ModelFile("model.pth", 7, hashlib.sha256(b"weights").hexdigest())
    registry.check(tmp_path / "model.pth", whole)
    with pytest.raises(NoAnswer, match="ask for it again"):
        registry.check(tmp_path / "model.pth", replace(whole, sha256="0" * 64))
    assert not (tmp_path / "model.pth").exists()


def test_nobody_there_is_said_with_what_to_check() -> None:
    with pytest.raises(NoAnswer, match=r"cannot be reached .*: check the address .*and whether the studio runs"):
        Client(Studio("http://127.0.0.1:9", "t")).job("wmla-1")


def certified(file: Path) -> ssl.SSLContext:
    """For localhost, by nobody but itself."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder(subject_name=name, issuer_name=name, public_key=key.public_key(), serial_number=x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    plain = serialization.NoEncryption()
    secret = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    file.write_bytes(made.public_bytes(serialization.Encoding.PEM) + secret)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(file)
    return tls


def test_a_certificate_is_checked_and_ones_own_authority_can_be_named(serve: Serve, tmp_path: Path) -> None:
    tls = certified(tmp_path / "certificate.pem")
    url, heard = serve(say(200, b'{"id": "wmla-1"}'), tls=tls)
    with pytest.raises(NoAnswer, match=r"is not trusted .*--ca-cert FILE"):
        Client(Studio(url, "secret")).job("wmla-1")
    assert heard == []
    assert Client(Studio(url, "secret", str(tmp_path / "certificate.pem"))).job("wmla-1") == {"id": "wmla-1"}
    with pytest.raises(Refused, match=r"cannot be read as certificates"):
        Client(Studio(url, "secret", str(tmp_path / "none.pem")))
    plain = url.replace("https:", "http:")
    with pytest.raises(NoAnswer):
        Client(Studio(plain, "secret")).job("wmla-1")


def test_a_login_keeps_the_token_and_a_logout_forgets_it(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    url, heard = serve(say(200, b'{"token": "edt_kept", "expires_at": "2027-02-03T00:00:00Z"}'))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setattr("sys.stdin", io.StringIO("wrong horse\n"))
    assert main(["login", url, "--username", "alice", "--password-stdin"]) == 0
    said = capsys.readouterr().out
    assert "2027-02-0" in said
    assert "edt_kept" not in said
    kept = json.loads(credentials.path({"HOME": str(tmp_path)}).read_text())
    assert kept == {"current": url, "studios": {url: {"username": "alice", "token": "edt_kept", "ca_cert": ""}}}
    assert heard[0][0] == "/api/v1/tokens"
    assert main(["logout"]) == 1, "that server takes no DELETE"
    assert main(["logout", "https://other.example.org"]) == 1
    assert "You are not logged in to https://other.example.org." in capsys.readouterr().err


def test_a_token_from_the_browser_is_kept_once_the_studio_knows_it(serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url, heard = serve(say(200, b'{"username": "alice"}'))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr("sys.stdin", io.StringIO("edt_pasted\n"))
    assert main(["login", url, "--token-stdin"]) == 0
    assert heard == [("/api/v1/me", "Bearer edt_pasted")]
    assert credentials.named({"XDG_CONFIG_HOME": str(tmp_path)}) == Studio(url, "edt_pasted")
    refusing, _ = serve(say(401, b'{"detail": "The token is unknown."}'))
    monkeypatch.setattr("sys.stdin", io.StringIO("edt_wrong\n"))
    assert main(["login", refusing, "--token-stdin"]) == 1
    assert credentials.named({"XDG_CONFIG_HOME": str(tmp_path)}) == Studio(url, "edt_pasted")


def test_what_the_machine_refuses_is_said_in_a_line(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    url, _ = serve(say(200, b'{"username": "alice"}'))
    (tmp_path / "gone").symlink_to("nowhere")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "gone"))
    monkeypatch.setattr("sys.stdin", io.StringIO("edt_pasted\n"))
    assert main(["login", url, "--token-stdin"]) == 1
    assert capsys.readouterr().err == f"{tmp_path / 'gone'}: File exists.\n"
