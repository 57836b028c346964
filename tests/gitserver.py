"""A git server as people have one: `git http-backend` behind https with a certificate of its own authority, one repository open to all and
one for whoever has the token."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import datetime as dt
import http.server
import ipaddress
import os
import shlex
import shutil
import ssl
import subprocess
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import asyncssh
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

TOKEN = "glpat-of-alice"
HOST = "127.0.0.1"
NEEDED = pytest.mark.skipif(not all(map(shutil.which, ("git", "ssh"))), reason="git and ssh are not installed here")


class GitServer:
    """Repositories below `root`: a first commit comes with each. `private` are those that ask for the token."""

    def __init__(self, root: Path, port: int, certificate: Path) -> None:
        self.root, self.port, self.certificate = root, port, certificate

    def address(self, name: str) -> str:
        return f"https://{HOST}:{self.port}/{name}.git"

    def make(self, name: str) -> Repository:
        repository = Repository(self.root / f"{name}.git", self.root / f".{name}-work")
        git(self.root, "init", "--quiet", "--bare", "--initial-branch=main", str(repository.bare))
        git(repository.bare, "config", "http.receivepack", "false")
        git(self.root, "clone", "--quiet", str(repository.bare), str(repository.work))
        return repository


class Repository:
    def __init__(self, bare: Path, work: Path) -> None:
        self.bare, self.work = bare, work

    def commit(self, files: Mapping[str, str], *, branch: str = "main", tag: str = "") -> str:
        """Pushes these files beside those that are there; the commit's id."""
        git(self.work, "checkout", "--quiet", "-B", branch)
        for name, text in files.items():
            path = self.work / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        git(self.work, "add", "--all")
        git(self.work, "commit", "--quiet", "--allow-empty", "--message", "work")
        git(self.work, "push", "--quiet", "--force", "origin", branch)
        if tag:
            git(self.work, "tag", "--annotate", "--message", tag, tag)
            git(self.work, "push", "--quiet", "origin", tag)
        return git(self.work, "rev-parse", "HEAD")


def git(at: Path, *words: str) -> str:
    person = {"NAME": "Alice", "EMAIL": "alice@example.org"}
    own = {f"GIT_{who}_{what}": said for who in ("AUTHOR", "COMMITTER") for what, said in person.items()}
    own |= {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "HOME": str(at)}
    return subprocess.run(["git", *words], cwd=at, env=own, check=True, capture_output=True, text=True).stdout.strip()


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[GitServer]:
    root = folder / "repositories"
    root.mkdir()
    certificate, key = make_certificate(folder)
    server = http.server.ThreadingHTTPServer((HOST, 0), type("Handler", (_Backend,), {"root": root}))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield GitServer(root, server.server_address[1], certificate)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Backend(http.server.BaseHTTPRequestHandler):
    """CGI, as RFC 3875 and git-http-backend(1) have it."""

    root: Path

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""

    def _answer(self) -> None:
        path, _, query = self.path.partition("?")
        if path.startswith("/moved"):
            return self._plain(301, {"Location": path.replace("/moved", "/public")})
        if path.startswith("/private") and self.headers.get("Authorization") != _basic(TOKEN):
            return self._plain(401, {"WWW-Authenticate": 'Basic realm="git"'})
        env = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(self.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "safe.directory",
            "GIT_CONFIG_VALUE_0": "*",
            "REQUEST_METHOD": self.command,
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
        }
        body = self._body()
        env["CONTENT_LENGTH"] = str(len(body))
        done = subprocess.run(["git", "http-backend"], env=env, input=body, capture_output=True, check=False)
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        said = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if line)
        self.send_response(int(said.pop("Status", "200 OK").split()[0]))
        for name, value in {**said, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)
        return None

    def _plain(self, status: int, headers: Mapping[str, str]) -> None:
        self._body()
        self.send_response(status)
        for name, value in {**headers, "Content-Length": "0"}.items():
            self.send_header(name, value)
        self.end_headers()

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        return body


def _basic(token: str) -> str:
    return "Basic " + base64.b64encode(f"x-access-token:{token}".encode()).decode()


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """Of an authority of its own, for this machine's loopback address, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name, now = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, HOST)]), dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(HOST))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    certificate, private = folder / "server.crt", folder / "server.key"
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    return certificate, private


class SshServer:
    """The same repositories over ssh, for who has `client_key`. `host_key` can be replaced, as on a server that was set up anew."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.client_key = asyncssh.generate_private_key("ssh-ed25519").export_private_key().decode()

    @contextlib.contextmanager
    def serving(self, port: int = 0) -> Iterator[int]:
        """Until the end of the block, with a host key of its own; the port."""
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        public = asyncssh.import_private_key(self.client_key).export_public_key().decode()
        options = {
            "server_host_keys": [asyncssh.generate_private_key("ssh-ed25519")],
            "authorized_client_keys": asyncssh.import_authorized_keys(public),
            "process_factory": self._run,
            "encoding": None,
            "reuse_address": True,
        }

        async def listen() -> asyncssh.SSHAcceptor:
            return await asyncssh.listen(HOST, port, **options)

        server = asyncio.run_coroutine_threadsafe(listen(), loop).result(30)
        try:
            yield server.get_port()
        finally:
            loop.call_soon_threadsafe(server.close)
            asyncio.run_coroutine_threadsafe(server.wait_closed(), loop).result(30)
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    async def _run(self, process: asyncssh.SSHServerProcess[bytes]) -> None:
        command, path = shlex.split(process.command or "")
        assert command == "git-upload-pack"
        words = ["git", "upload-pack", str(self.root / path.removeprefix("/"))]
        child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        await process.redirect(stdin=child.stdin, stdout=child.stdout, stderr=child.stderr)
        await process.stdout.drain()
        process.exit(await asyncio.get_running_loop().run_in_executor(None, child.wait))
