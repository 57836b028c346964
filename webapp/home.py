"""The studio's home folder (EDT_HOME): its folders, its secrets, its broker's address. Standard library only; used by the settings."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

LONGEST_SOCKET_PATH_BYTES = 100  # the kernel's limit is 107


class SettingUnusable(Exception):
    """A setting is not as it must be. The message says which, and what to do."""


class HomeUnusable(SettingUnusable):
    """EDT_HOME cannot be made or written to."""


def folder(said: str, *, project: Path) -> Path:
    """Where EDT_HOME, as it is said, is: set and empty is not the current folder."""
    return Path(said or project / ".edt").resolve()


def prepare(home: Path) -> None:
    """Make the folders that must exist before anything starts. Raises HomeUnusable, with a sentence, where there is no room or no right."""
    try:
        home.mkdir(parents=True, exist_ok=True, mode=0o755)
        for name in ("tmp", "bundles", "models", "uploads"):
            (home / name).mkdir(exist_ok=True, mode=0o700)
        for name in ("assets", "code", "data", "runs", "static"):
            (home / name).mkdir(exist_ok=True, mode=0o755)
        secret(home, "secret_key")
    except OSError as error:
        why = f"{error.strerror}: {error.filename}"
        raise HomeUnusable(
            f"EDT_HOME ({home}) cannot be used ({why}). Set EDT_HOME to a folder of your own with room on its disk."
        ) from None


def secret(home: Path, name: str) -> str:
    """A random secret kept in `home/secrets/NAME` (0600), made on first use. Two processes that start at once agree on one."""
    folder = home / "secrets"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = folder / name
    if not path.exists():
        handle, draft = tempfile.mkstemp(dir=folder)
        with os.fdopen(handle, "w") as file:
            file.write(secrets.token_urlsafe(48))
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)  # first one wins
        Path(draft).unlink()
    return path.read_text()


def broker_socket(home: Path) -> Path:
    """Path of the embedded Valkey's socket: in the home, or in a shorter folder if that path is too long for a socket's address.

    Not in XDG_RUNTIME_DIR, which goes when its user logs out.
    """
    path = home / "run" / "broker.sock"
    if len(os.fsencode(path)) < LONGEST_SOCKET_PATH_BYTES:
        return path
    name = hashlib.sha256(str(home).encode()).hexdigest()[:12]
    return Path(tempfile.gettempdir()) / f"edt-{os.getuid()}-{name}" / "broker.sock"


def broker_urls(home: Path, url: str) -> tuple[str, str]:
    """(Celery's URL, everybody else's): of the server named by `url`, or of the embedded one on its Unix socket. Raises
    SettingUnusable."""
    if url:
        parts = urlsplit(url)
        if parts.scheme not in ("redis", "rediss") or not parts.netloc or not (parts.path.strip("/") or "0").isdecimal():
            raise SettingUnusable("EDT_REDIS_URL names no Redis or Valkey: it must be like redis://:password@host:6379/0.")
        base = f"{parts.scheme}://{parts.netloc}"
        first = int(parts.path.strip("/") or 0)
        return f"{base}/{first}", f"{base}/{first + 1}"
    path, password = broker_socket(home), secret(home, "broker_password")
    return f"redis+socket://:{password}@{path}?virtual_host=0", f"unix://:{password}@{path}?db=1"


def allowed_hosts(named: list[str]) -> list[str]:
    """The hosts named by the setting, and this machine's own, which health checks of containers and load balancers use."""
    return list(dict.fromkeys([*named, "localhost", "127.0.0.1", "[::1]"]))
