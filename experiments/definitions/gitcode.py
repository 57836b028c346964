"""Code from a git repository: which addresses are taken, and the fetch itself, which a boxed process of its own does
(`training_runtime.host.environments.code_fetch`). What comes is a zip like any that is uploaded, and is checked as one. Knows no database.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urlsplit

from django.conf import settings

from experiments.accounts import sealed
from experiments.files.zipcheck import CHUNK_BYTES
from experiments.notifications import webhook_client

__all__ = ["CHUNK_BYTES", "Access", "Fetched", "GitRefused", "Source", "checked", "fetched", "page_of"]

LONGEST_ADDRESS, LONGEST_REF, LONGEST_FOLDER, LONGEST_KEY = 500, 255, 500, 16_000
ADDRESS = "Give an address such as https://github.com/someone/project.git or git@github.com:someone/project.git."
PURPOSE = "what opens a git repository"
_HOST = r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?"
_SHORT = re.compile(rf"(?P<user>[A-Za-z0-9_][A-Za-z0-9_.-]*)@(?P<host>{_HOST}):(?P<path>[^:/-][^:]*)")
_COMMITS = {"github.com": "commit", "codeberg.org": "commit", "bitbucket.org": "commits", "gitlab.com": "-/commit"}
_KEPT = ("PATH", "HOME", "LANG", "EDT_SANDBOX", "EDT_UID_BASE", "EDT_SANDBOX_READ")
_AT_ONCE = threading.BoundedSemaphore(2)
_PATIENCE_S = 10.0


class GitRefused(Exception):
    """The code is not fetched. `field`: what of the source is wrong; the message says what to do."""

    def __init__(self, message: str, field: str = "git_address") -> None:
        super().__init__(message)
        self.field = field


@dataclass(frozen=True)
class Source:
    """`ref`: a branch, a tag or a commit; empty: the repository's own default. `folder` of it; empty: all."""

    address: str
    ref: str = ""
    folder: str = ""

    @property
    def name(self) -> str:
        """What its code is called as a file."""
        last = re.split(r"[/:]", self.address.rstrip("/"))[-1].removesuffix(".git")
        return f"{last or 'code'}.zip"


@dataclass(frozen=True)
class Access:
    """A deploy key or a token, for one address and no other: who names another is not to learn it. `host_key`: what ssh has learnt of the
    server when code was first fetched."""

    address: str
    key: str = ""
    token: str = ""
    host_key: str = ""

    def sealed(self) -> str:
        return sealed.seal(json.dumps(asdict(self)), purpose=PURPOSE)

    @classmethod
    def unsealed(cls, text: str, *, address: str) -> Access:
        """For that address; one without a key where there is none. Raises GitRefused."""
        try:
            found = cls(**json.loads(sealed.unseal(text, purpose=PURPOSE))) if text else cls(address)
        except sealed.Unreadable:
            said = "The deploy key or token was saved with another key of the studio's: give it again."
            raise GitRefused(said, "git_credential") from None
        return found if found.address == address else cls(address)

    @classmethod
    def from_input(cls, credential: str, *, address: str) -> Access:
        """What a person has typed, which tells itself what it is. Raises GitRefused."""
        clean = credential.strip().replace("\r\n", "\n")
        if len(clean) > LONGEST_KEY or "\0" in clean:
            raise GitRefused("This is no deploy key, and no token either: paste it anew.", "git_credential")
        if clean.startswith("-----BEGIN "):
            return cls(address, key=clean)
        if not clean.isascii() or not clean.isprintable():
            said = "A token is one line of letters and digits; a deploy key begins with -----BEGIN: paste it anew."
            raise GitRefused(said, "git_credential")
        return cls(address, token=clean)


@dataclass(frozen=True)
class Fetched:
    file: BinaryIO
    commit: str
    access: Access


def checked(address: str, ref: str, folder: str) -> Source:
    """The source as it is stored. Raises GitRefused."""
    address, ref, folder = address.strip(), ref.strip(), folder.strip().strip("/")
    _parse_address(address)
    if ref.startswith("-") or len(ref) > LONGEST_REF or re.search(r"[\s\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|/$|\.$", ref):
        raise GitRefused(f"{ref[:80]} is no name of a branch or tag, and no commit: correct it, or leave it empty.", "git_ref")
    parts = folder.split("/") if folder else []
    if len(folder) > LONGEST_FOLDER or not folder.isprintable() or any(part in ("", ".", "..") for part in parts):
        raise GitRefused(f"{folder[:80]} is no folder of a repository: write it as in training/digits.", "git_folder")
    return Source(address, ref, folder)


@dataclass(frozen=True)
class _GitServer:
    scheme: str
    host: str
    port: int


def _parse_address(address: str) -> _GitServer:
    if len(address) > LONGEST_ADDRESS or not address.isascii() or not address.isprintable() or " " in address or address.startswith("-"):
        raise GitRefused(ADDRESS)
    if (short := _SHORT.fullmatch(address)) is not None:
        return _GitServer("ssh", short["host"], 22)
    try:
        parts = urlsplit(address)
        scheme, host, port = parts.scheme, parts.hostname or "", parts.port
    except ValueError:
        raise GitRefused(ADDRESS) from None
    is_host = re.fullmatch(_HOST, host) is not None or ":" in host
    if scheme not in ("https", "ssh") or not is_host or len(parts.path) < 2 or parts.query or parts.fragment:
        raise GitRefused(ADDRESS)
    if parts.password is not None or (scheme == "https" and parts.username is not None):
        raise GitRefused("Leave name and password out of the address: a token has a field of its own.")
    if parts.username is not None and not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", parts.username):
        raise GitRefused(ADDRESS)
    return _GitServer(scheme, host, port or (443 if scheme == "https" else 22))


def page_of(address: str, commit: str) -> str:
    """Where people read the commit, of hosts whose pages are known; else empty."""
    try:
        host = _parse_address(address).host
    except GitRefused:
        return ""
    way = _COMMITS.get(host, "-/commit" if host.startswith("gitlab.") else "")
    short = _SHORT.fullmatch(address)
    path = (short["path"] if short is not None else urlsplit(address).path).strip("/").removesuffix(".git")
    return f"https://{host}/{path}/{way}/{commit}" if way and commit and re.fullmatch(r"[\w./-]+", path) else ""


@contextlib.contextmanager
def fetched(source: Source, access: Access) -> Iterator[Fetched]:
    """The zip of the source's newest commit, as long as it is open. Raises GitRefused."""
    place = _parse_address(source.address)
    if place.scheme == "ssh" and not access.key:
        raise GitRefused("An ssh address needs a deploy key: give one, or the https:// address of the repository.", "git_credential")
    wanted = {
        "address": source.address,
        "scheme": place.scheme,
        "host": place.host,
        "port": place.port,
        "pinned": _pinned_addresses(place),
        "ref": source.ref,
        "folder": source.folder,
        "token": access.token,
        "key": access.key,
        "host_key": access.host_key,
    }
    if not _AT_ONCE.acquire(timeout=_PATIENCE_S):
        raise GitRefused("Others are fetching code at this moment: try again in a minute.")
    with contextlib.ExitStack() as cleanup:
        cleanup.callback(_AT_ONCE.release)
        work = Path(tempfile.mkdtemp(prefix="git-", dir=settings.EDT_HOME / "tmp"))
        cleanup.callback(shutil.rmtree, work, ignore_errors=True)
        said = _run_fetch(work, wanted)
        file = cleanup.enter_context(_zip_in(work))
        learnt = Access(access.address, access.key, access.token, said["host_key"] or access.host_key)
        yield Fetched(file, said["commit"], learnt)


def _pinned_addresses(place: _GitServer) -> list[str]:
    """The addresses of its host that git is to use. None where a proxy is asked: it decides, and knows names that this machine need not."""
    if place.scheme == "https" and _has_proxy(place.host):
        return []
    try:
        return list(webhook_client.addresses_of(place.host, place.port, allow=settings.EDT_GIT_ALLOW, setting="EDT_GIT_ALLOW"))
    except (webhook_client.AddressRefused, webhook_client.RequestFailed) as refused:
        raise GitRefused(str(refused)) from None


def _has_proxy(host: str) -> bool:
    with contextlib.suppress(ValueError):
        ipaddress.ip_address(host)
        return False  # a number is looked at, whoever would be asked for it
    proxies = urllib.request.getproxies_environment()
    return bool(proxies.get("https") or proxies.get("all")) and not urllib.request.proxy_bypass(host)


def _run_fetch(work: Path, wanted: dict[str, object]) -> dict[str, str]:
    job = {
        "home": str(settings.EDT_HOME),
        "work": str(work),
        "limit_s": settings.EDT_GIT_FETCH_S,
        "limit_bytes": settings.EDT_MAX_UPLOAD_BYTES,
        "wanted": wanted,
    }
    command = [sys.executable, "-m", "training_runtime.host.environments.code_fetch"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=_environment(), cwd=settings.BASE_DIR)
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        try:
            process.stdin.write(json.dumps(job).encode() + b"\n")
            process.stdin.flush()
            said = process.stdout.read()  # its end: while its input is open, it has a deadline of its own
        finally:
            process.stdin.close()
    found: dict[str, str] = json.loads(said) if said else {"problem": "The code could not be fetched on this machine: try again."}
    if found.get("problem"):
        raise GitRefused(found["problem"])
    return found


def _environment() -> dict[str, str]:
    from_network = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE")
    return {
        name: value
        for name, value in os.environ.items()
        if name in _KEPT or name in from_network or name.lower() in ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
    }


@contextlib.contextmanager
def _zip_in(work: Path) -> Iterator[BinaryIO]:
    """What the box has left there: a plain file, whatever it made of it meanwhile."""
    try:
        fd = os.open(work / "code.zip", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        raise GitRefused("git said that it had fetched the code, and left none: try again.") from None
    with open(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise GitRefused("git left something else than a file: try again.")
        yield file
