"""Kubernetes' API over HTTP, as far as pilots need it: create, list and delete. Plain httpx, because five calls of a stable interface
need no client library, which would bring a release of its own for each release of Kubernetes.

In a pod the studio finds server, token, certificate and namespace where Kubernetes mounts them; elsewhere settings say where they are. The
token is read for each call: those of service accounts are bound to a time, and are written anew before it is over.
"""

from __future__ import annotations

import functools
import json
import re
import ssl
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
from django.conf import settings

from experiments.cluster.providers import EngineProblem

TIMEOUT_S, CONNECT_S = 20.0, 5.0
MOST_BYTES = 64 << 20  # of an answer
IN_POD = "https://kubernetes.default.svc"
ACCEPTED = (200, 201, 202)


class Refused(EngineProblem):
    """The API server answers, and says no. `status`: of HTTP."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


def namespace() -> str:
    """The one that pilots are in: as a setting says, else the studio's own, else `default`, as with kubectl."""
    return settings.EDT_KUBERNETES_NAMESPACE or _mounted("namespace") or "default"


def ask(method: str, path: str, *, body: Mapping[str, Any] | None = None, parameters: Mapping[str, str] | None = None) -> Mapping[str, Any]:
    """What the API server answers to it. Raises EngineProblem, Refused where it answers with no."""
    address = _address()
    headers = {"Authorization": f"Bearer {token}"} if (token := _token()) else {}
    received, end = bytearray(), time.monotonic() + 2 * TIMEOUT_S
    timeout = httpx.Timeout(TIMEOUT_S, connect=CONNECT_S)
    try:
        with (
            httpx.Client(verify=_trusted(), timeout=timeout, trust_env=not _mounted("token")) as client,
            client.stream(method, address + path, headers=headers, params=parameters, json=body) as answer,
        ):
            for piece in answer.iter_bytes():
                received += piece
                if len(received) > MOST_BYTES or time.monotonic() > end:
                    raise EngineProblem(f"{_without_password(address)} answers with too much, or too slowly.")
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:  # the last: a token that no header can have
        raise EngineProblem(f"{_without_password(address)} cannot be reached: {error or type(error).__name__}") from None
    return _read(address, answer, bytes(received))


def _read(address: str, answer: httpx.Response, received: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(received)
    except ValueError:
        found = None
    if answer.status_code not in ACCEPTED:
        raise Refused(answer.status_code, _refusal(answer, found))
    if not isinstance(found, dict):
        raise EngineProblem(f"{_without_password(address)} answers, but not as Kubernetes' API server does.")
    return found


def _refusal(answer: httpx.Response, found: Any) -> str:
    """In the words of the Status object that the API server answers with."""
    words = str(found.get("message") or "") if isinstance(found, dict) else ""
    words = " ".join(words.split())[:700] or f"status {answer.status_code}"
    if answer.status_code == 401:
        return f"{words} (EDT_KUBERNETES_TOKEN, EDT_KUBERNETES_TOKEN_FILE: the token is not known there, or is over)"
    if answer.status_code == 429:
        return f"{words} (it has too much to do, and is asked again)"
    return words


def _address() -> str:
    address: str = settings.EDT_KUBERNETES_ADDRESS or (IN_POD if _mounted("token") else "")
    if not address:
        raise EngineProblem("the setting EDT_KUBERNETES_ADDRESS, which says where its API server is (https://10.0.0.1:6443), is empty.")
    return address


def _token() -> str:
    if settings.EDT_KUBERNETES_TOKEN:
        return str(settings.EDT_KUBERNETES_TOKEN)
    if not settings.EDT_KUBERNETES_TOKEN_FILE:
        return _mounted("token")
    try:
        return Path(settings.EDT_KUBERNETES_TOKEN_FILE).read_text().strip()
    except (OSError, ValueError) as error:
        raise EngineProblem(f"EDT_KUBERNETES_TOKEN_FILE cannot be read: {error}") from None


def _mounted(name: str) -> str:
    """A file of the service account that a pod is given; empty where there is none. Its token and certificate are for its own server."""
    if settings.EDT_KUBERNETES_ADDRESS and name != "namespace":
        return ""
    try:
        return (Path(settings.EDT_KUBERNETES_ACCOUNT) / name).read_text().strip()
    except (OSError, ValueError):
        return ""


def _trusted() -> ssl.SSLContext:
    mounted = Path(settings.EDT_KUBERNETES_ACCOUNT) / "ca.crt"
    own = settings.EDT_KUBERNETES_CA or (str(mounted) if not settings.EDT_KUBERNETES_ADDRESS and mounted.exists() else "")
    try:
        return _context(own, Path(own).stat().st_mtime_ns if own else 0)
    except OSError as error:  # ssl.SSLError is one
        raise EngineProblem(f"the certificate {own} (EDT_KUBERNETES_CA) cannot be read: {error}") from None


@functools.lru_cache(maxsize=1)
def _context(file: str, changed_ns: int) -> ssl.SSLContext:  # noqa: ARG001
    """To make one takes longer than a call. It is made anew when the file has changed."""
    return ssl.create_default_context(cafile=file or None)


def _without_password(address: str) -> str:
    """Without a password, should one be in it."""
    return re.sub(r"//[^/]*@", "//", address)
