"""Somebody with a browser and no page in it: what is sent to a real studio is written here, byte by byte where it has to be."""

from __future__ import annotations

import http.client
import http.cookiejar
import json
import re
import socket
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Answer:
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode(errors="replace")

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def location(self) -> str:
        return str(self.headers.get("Location", ""))


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


class Visitor:
    """Cookies are kept as a browser keeps them, and the token of forms is sent with every write. Nobody in particular before `log_in`."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.cookies = http.cookiejar.CookieJar()
        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(self.cookies), _NoRedirects())

    def log_in(self, name: str, password: str) -> Visitor:
        self.get("/login/")
        answer = self.post("/login/", {"username": name, "password": password})
        assert (answer.status, answer.location) == (302, "/projects/"), answer.text[:2000]
        return self

    def cookie(self, name: str) -> str:
        return next((each.value or "" for each in self.cookies if each.name == name), "")

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
        """`headers`: their names with _ for -."""
        said = {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(self.url + path, data=body, headers=said, method=method)
        try:
            found = self._opener.open(request, timeout=TIMEOUT_S)
        except urllib.error.HTTPError as error:
            found = error
        with found:
            return Answer(found.status, found.headers, found.read())

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, **headers)

    def post(self, path: str, fields: Mapping[str, Any], files: Mapping[str, Path] | None = None, **headers: str) -> Answer:
        """A form, as the page would send it."""
        kind, body = form(fields, files or {})
        said = {"Content_Type": kind, "X_CSRFToken": self.cookie("csrftoken"), **headers}
        return self.ask("POST", path, body, **said)


def form(fields: Mapping[str, Any], files: Mapping[str, Path]) -> tuple[str, bytes]:
    """(Content-Type, body) of a form with files."""
    boundary, parts = uuid.uuid4().hex, []
    for name, value in fields.items():
        for each in value if isinstance(value, list | tuple) else [value]:
            parts.append(f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{each}\r\n'.encode())
    for name, path in files.items():
        head = f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"; filename="{path.name}"\r\n'
        parts.append(f"{head}Content-Type: application/octet-stream\r\n\r\n".encode() + path.read_bytes() + b"\r\n")
    return f"multipart/form-data; boundary={boundary}", b"".join(parts) + f"--{boundary}--\r\n".encode()


def number(answer: Answer, what: str) -> int:
    """Of what was made, from where the answer leads to: /projects/7/."""
    found = re.fullmatch(rf"/{what}/(\d+)/", answer.location)
    assert found, f"{answer.status} {answer.location} {errors(answer.text)}"
    return int(found[1])


def errors(page: str) -> str:
    """What a page says beside its fields; else its beginning."""
    found = re.findall(r'class="error"[^>]*>(?:<svg.*?</svg>)?(.*?)</', page)
    return "; ".join(found) or page[:500]


def raw(url: str, request: bytes, *, timeout_s: float = TIMEOUT_S) -> tuple[int, str]:
    """(status, the rest) of what is answered to these bytes; (0, "") where the connection is closed without a word."""
    parts = urllib.parse.urlsplit(url)
    assert parts.port is not None
    with socket.create_connection((parts.hostname, parts.port), timeout=timeout_s) as client:
        client.sendall(request)
        found = http.client.HTTPResponse(client)
        try:
            found.begin()
            return found.status, found.read().decode(errors="replace")
        except (http.client.BadStatusLine, ConnectionError):
            return 0, ""
