"""Logging in and out: a password becomes a token, and only that is kept."""

from __future__ import annotations

import dataclasses
import datetime as dt
import getpass
import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from edt_client import credentials
from edt_client.credentials import LOOPBACK, Studio
from edt_client.errors import ClientError, Refused
from edt_client.studio import Client

IN_CLEAR = "{0} is not encrypted: the password and the token can be read on the way. Use https where you can."


def login(studio: str = "", username: str = "", *, ca_cert: str = "", password: Callable[[], str] | None = None) -> None:
    """Ask for what is missing, log in, and keep the token: `train()` in a notebook submits to this studio from now on."""
    url = credentials.address(studio or os.environ.get(credentials.STUDIO, "") or _current())
    name = username or _ask("Username: ")
    ca_cert = ca_cert or os.environ.get(credentials.CA_CERT, "")
    wanted = Studio(url, ca_cert=str(Path(ca_cert).absolute()) if ca_cert else "")
    client = Client(wanted)
    if url.startswith("http:") and urlsplit(url).hostname not in LOOPBACK:
        _say(IN_CLEAR.format(url))
    word = password() if password is not None else getpass.getpass(f"Password of {name} at {url}: ")
    token, ends = client.make_token(name, word, name=f"edt on {platform.node() or 'a machine'}"[:120])
    file = credentials.save_token(dataclasses.replace(wanted, token=token), name, os.environ)
    _say(f"Logged in to {url} as {name}{f' until {_day(ends)}' if ends else ''}. The token is kept in {file}.")


def keep_token(studio: str, token: str, *, ca_cert: str = "") -> None:
    """Keep a token that was made in the browser."""
    url = credentials.address(studio or os.environ.get(credentials.STUDIO, "") or _current())
    ca_cert = ca_cert or os.environ.get(credentials.CA_CERT, "")
    kept = Studio(url, token, str(Path(ca_cert).absolute()) if ca_cert else "")
    if not token:
        raise ClientError("No token was given: make one on your profile's page, and hand it to the standard input.")
    name = Client(kept).who()
    _say(f"Logged in to {url} as {name}. The token is kept in {credentials.save_token(kept, name, os.environ)}.")


def logout(studio: str = "") -> None:
    """End the token that is kept for the studio, there and here."""
    url = credentials.address(studio or os.environ.get(credentials.STUDIO, "") or _current())
    found = credentials.read(credentials.path(os.environ))["studios"].get(url)
    if found is None:
        raise ClientError(f"You are not logged in to {url}.")
    try:
        Client(Studio(url, str(found.get("token") or ""), str(found.get("ca_cert") or ""))).log_off()
    except Refused as refused:
        if refused.status != 401:  # else it has ended by itself
            raise
    credentials.forget(url, os.environ)
    _say(f"Logged out of {url}.")


def _day(moment: str) -> str:
    """In this machine's time; as it was said where it is no time."""
    try:
        return dt.datetime.fromisoformat(moment).astimezone().strftime("%Y-%m-%d")
    except ValueError:
        return moment


def _current() -> str:
    url = str(credentials.read(credentials.path(os.environ))["current"])
    if not url:
        raise ClientError("Say which studio: edt login https://studio.example.org.")
    return url


def _ask(question: str) -> str:
    try:
        return input(question).strip()
    except EOFError:
        raise ClientError("Say who you are: --username NAME.") from None


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
