"""Which studio is meant and by which token: from the environment, or from the file that `edt login` writes for its owner alone.

The file holds tokens, never a password: {"current": ADDRESS, "studios": {ADDRESS: {"username", "token", "ca_cert"}}}.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from edt_client.errors import ClientError

STUDIO, TOKEN, CA_CERT = "EDT_STUDIO", "EDT_TOKEN", "EDT_CA_CERT"
NO_STUDIO = "local"  # as EDT_STUDIO: none, whoever has logged in
NOT_LOGGED_IN = f"You are not logged in to {{0}}: run edt login {{0}}, or set {TOKEN}. {STUDIO}={NO_STUDIO} trains on this machine."
LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Studio:
    """`from_environment`: the token is EDT_TOKEN's, which `edt login` does not change. `ca_cert`: a file that says whom to trust."""

    url: str
    token: str = field(default="", repr=False)
    ca_cert: str = ""
    from_environment: bool = False


def address(said: str) -> str:
    """The studio's address as a URL: https, or http for this machine itself, unless it says which. ClientError for what is none."""
    text = said.strip()
    if "://" not in text:
        host = urlsplit(f"//{text}").hostname
        text = f"{'http' if host in LOOPBACK else 'https'}://{text}"
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and parts.hostname and not parts.query and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ClientError("That is no address of a studio: write it as https://studio.example.org or http://127.0.0.1:8000.")
    if parts.username or parts.password:
        raise ClientError("Leave name and password out of the studio's address: edt login asks for them and keeps neither.")
    return text.rstrip("/")


def path(environment: Mapping[str, str]) -> Path:
    base = environment.get("XDG_CONFIG_HOME") or str(Path(environment.get("HOME") or Path.home(), ".config"))
    return Path(base, "edt", "credentials.json")


def named(environment: Mapping[str, str]) -> Studio | None:
    """The studio that EDT_STUDIO or the last `edt login` names, with its token; None where there is none. ClientError where one is named
    and there is no token for it."""
    said, token = environment.get(STUDIO, "").strip(), environment.get(TOKEN, "").strip()
    if said == NO_STUDIO:
        return None
    kept = read(path(environment))
    if token and not said:
        raise ClientError(f"{TOKEN} is set and {STUDIO} is not: say which studio the token is for, {STUDIO}=https://studio.example.org.")
    url = address(said) if said else str(kept.get("current") or "")
    if not url:
        return None
    found = kept["studios"].get(url, {})
    ca_cert = environment.get(CA_CERT) or str(found.get("ca_cert") or "")
    if not token and not found.get("token"):
        raise ClientError(NOT_LOGGED_IN.format(url))
    return Studio(url, token or str(found["token"]), ca_cert, from_environment=bool(token))


def read(file: Path) -> dict[str, Any]:
    """What is kept; nothing where there is no file. ClientError for one that cannot be read."""
    try:
        found = json.loads(file.read_bytes())
    except FileNotFoundError:
        found = {}
    except (OSError, ValueError) as error:
        raise ClientError(f"{file} cannot be read ({error}): delete it and run edt login again.") from None
    studios = found.get("studios") if isinstance(found, dict) else None
    good = studios is None or (isinstance(studios, dict) and all(isinstance(one, dict) for one in studios.values()))
    if not isinstance(found, dict) or not good:
        raise ClientError(f"{file} is not what edt login writes: delete it and run edt login again.")
    return {"current": found.get("current", ""), "studios": studios or {}}


def save_token(studio: Studio, username: str, environment: Mapping[str, str]) -> Path:
    """Write the token down, and the studio as the one that is meant from now on."""
    file = path(environment)
    kept = read(file)
    kept["studios"][studio.url] = {"username": username, "token": studio.token, "ca_cert": studio.ca_cert}
    _write(file, {**kept, "current": studio.url})
    return file


def forget(url: str, environment: Mapping[str, str]) -> None:
    file = path(environment)
    kept = read(file)
    kept["studios"].pop(url, None)
    _write(file, {**kept, "current": "" if kept["current"] == url else kept["current"]})


def _write(file: Path, content: dict[str, Any]) -> None:
    """Readable by its owner alone from its first byte on, and whole or not at all."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, beside = tempfile.mkstemp(prefix=".credentials.", dir=file.parent)  # mode 0600
    try:
        with os.fdopen(handle, "w") as target:
            json.dump(content, target, indent=1)
        Path(beside).replace(file)
    except BaseException:
        Path(beside).unlink(missing_ok=True)
        raise
