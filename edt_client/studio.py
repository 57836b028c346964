"""The studio's REST interface (docs/rest.md) as calls. Every answer is read as what anybody may have sent; nothing is unpickled or run.

Certificates are checked. Redirects are not followed: the token would go with the request, to wherever it is sent.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import shutil
import ssl
import tempfile
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, NoReturn, TypeVar

from edt_client.credentials import CA_CERT, STUDIO, TOKEN, Studio
from edt_client.errors import NoAnswer, Refused

DL = "/platform/rest/deeplearning/v1"
API_TOKEN = "edt_"  # noqa: S105  (how tokens of the API begin)
TIMEOUT_S = 60.0
MOST_JSON_BYTES = 64 << 20
MOST_MESSAGE_BYTES = 64 << 10
CHUNK_BYTES = 1 << 20
NO_STUDIO = "What answers at {} is no studio: check the address."
T = TypeVar("T")
AGAIN = (429, 502, 503, 504)  # later it may be another answer


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


class Client:
    """Calls to one studio as one person."""

    def __init__(self, studio: Studio) -> None:
        self.studio = studio
        handlers: list[urllib.request.BaseHandler] = [_NoRedirects()]
        if studio.url.startswith("https:"):
            try:
                handlers.append(urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=studio.ca_cert or None)))
            except (OSError, ssl.SSLError) as error:
                raise Refused(f"{studio.ca_cert} cannot be read as certificates: {error}.", 0) from None
        self._opener = urllib.request.build_opener(*handlers)

    def log_on(self, username: str, password: str) -> str:
        """A token."""
        basic = base64.b64encode(f"{username}:{password}".encode()).decode()
        said = self._json("GET", "/auth/v1/logon", headers={"Authorization": f"Basic {basic}"})
        token = said.get("accessToken") if isinstance(said, dict) else None
        if not isinstance(token, str) or not token:
            raise NoAnswer(NO_STUDIO.format(self.studio.url))
        return token

    def make_token(self, username: str, password: str, *, name: str) -> tuple[str, str]:
        """An API token that may write, for name and password; and when it ends."""
        basic = base64.b64encode(f"{username}:{password}".encode()).decode()
        body = json.dumps({"name": name, "scope": "write"}).encode()
        headers = {"Authorization": f"Basic {basic}", "Content-Type": "application/json"}
        said = self._json("POST", "/api/v1/tokens", headers=headers, body=body)
        token = said.get("token") if isinstance(said, dict) else None
        if not isinstance(token, str) or not token:
            raise NoAnswer(NO_STUDIO.format(self.studio.url))
        return token, str(said.get("expires_at") or "")

    def who(self) -> str:
        """Whose token it is."""
        return str(object_of(self._json("GET", "/api/v1/me")).get("username") or "")

    def log_off(self) -> None:
        if self.studio.token.startswith(API_TOKEN):
            with self._open("DELETE", "/api/v1/tokens/current"):
                return
        self._json("POST", "/auth/v1/logoff")

    def submit(self, args: str, code: Path) -> dict[str, Any]:
        """A job of the zip `code`; its description."""
        boundary = uuid.uuid4().hex
        with tempfile.TemporaryFile() as body:
            head = f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{code.name}"\r\n'
            body.write(f"{head}Content-Type: application/zip\r\n\r\n".encode())
            with open(code, "rb") as source:
                shutil.copyfileobj(source, body)
            body.write(f"\r\n--{boundary}--\r\n".encode())
            kind = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
            found = self._json("POST", f"{DL}/execs?args={urllib.parse.quote(args)}", headers=kind, body=body)
        return object_of(found)

    def job(self, name: str) -> dict[str, Any]:
        return object_of(self._json("GET", f"{DL}/execs/{_part(name)}"))

    def curves(self, name: str) -> dict[str, list[dict[str, Any]]]:
        """Rows of the training's curves by group, "train" and "test"; an iteration each."""
        status = object_of(self._json("GET", f"/ml/v4/trainings/{_part(name)}")).get("entity", {}).get("status", {})
        return {"train": status.get("metrics") or [], "test": status.get("validation_metrics") or []}

    def stop(self, name: str) -> None:
        with self._open("POST", f"{DL}/execs/{_part(name)}/stop", body=b""):
            pass

    def log_tail(self, name: str, *, lines: int) -> str:
        """The end of the driver's log."""
        return str(self._json("GET", f"{DL}/scheduler/applications/{_part(name)}/driver/logs/stdout?lastlines={lines}"))

    def save(self, name: str, target: Path, *, file: str = "") -> bool:
        """Write the job's result to `target`: a zip, or of its folder the one `file`. False where there is none (yet)."""
        query = f"?file={urllib.parse.quote(file)}" if file else ""
        try:
            answer = self._open("GET", f"{DL}/execs/{_part(name)}/result{query}", accept="application/octet-stream")
        except Refused as refused:
            if refused.status in (400, 404):
                return False
            raise
        expected = int(answer.headers.get("Content-Length") or 0)
        with answer, open(target, "wb") as into:
            while chunk := self._read(lambda: answer.read(CHUNK_BYTES)):
                into.write(chunk)
            if into.tell() < expected:
                raise NoAnswer(f"The connection to {self.studio.url} broke while {file or 'the result'} was sent: try again.")
        return True

    def _json(self, method: str, path: str, *, headers: dict[str, str] | None = None, body: IO[bytes] | bytes | None = None) -> Any:
        with self._open(method, path, headers=headers, body=body) as answer:
            data = self._read(lambda: answer.read(MOST_JSON_BYTES))
        try:
            return json.loads(data)
        except (ValueError, RecursionError):
            raise NoAnswer(NO_STUDIO.format(self.studio.url)) from None

    def _open(
        self, method: str, path: str, *, headers: dict[str, str] | None = None, body: IO[bytes] | bytes | None = None, accept: str = ""
    ) -> http.client.HTTPResponse:
        """The answer, which the caller closes. Raises Refused with what the studio says, or NoAnswer."""
        said = {"Accept": accept or "application/json", **(headers or {})}
        if self.studio.token:
            said.setdefault("Authorization", f"Bearer {self.studio.token}")
        if body is not None and not isinstance(body, bytes):
            said["Content-Length"] = str(body.seek(0, os.SEEK_END))
            body.seek(0)
        request = urllib.request.Request(self.studio.url + path, method=method, headers=said, data=body)  # noqa: S310
        try:
            answer: http.client.HTTPResponse = self._read(lambda: self._opener.open(request, timeout=TIMEOUT_S))
            return answer
        except urllib.error.HTTPError as error:
            with error:
                self._refuse(error)

    def _read(self, do: Callable[[], T]) -> T:
        """What it returns; NoAnswer where the network fails."""
        try:
            return do()
        except urllib.error.HTTPError:
            raise
        except (OSError, http.client.HTTPException) as error:
            raise NoAnswer(self._unreachable(getattr(error, "reason", error))) from None

    def _refuse(self, error: urllib.error.HTTPError) -> NoReturn:
        if 300 <= error.code < 400:
            where = error.headers.get("Location", "")
            raise Refused(f"{self.studio.url} sends its callers on to {where[:200]}: name that address instead.", error.code) from None
        said = error.read(MOST_MESSAGE_BYTES).decode(errors="replace").strip()
        try:
            answer = json.loads(said)
            said = str(answer["detail"] if "detail" in answer else answer["message"])
        except (ValueError, KeyError, TypeError):
            said = f"{self.studio.url} answers {error.code} {error.reason}."
        if error.code in AGAIN:
            raise NoAnswer(said) from None
        if error.code == 401 and self.studio.token:
            said = self.token_is_over()
        raise Refused(said, error.code) from None

    def token_is_over(self) -> str:
        renew = f"set {TOKEN} to a new one" if self.studio.from_environment else f"run edt login {self.studio.url}"
        return f"{self.studio.url} does not accept your token any more: {renew}."

    def _unreachable(self, reason: object) -> str:
        url = self.studio.url
        if isinstance(reason, ssl.SSLCertVerificationError):
            how = f"edt login {url} --ca-cert FILE, or {CA_CERT}=FILE"
            return f"The certificate of {url} is not trusted ({reason.verify_message}): name your own authority's file with {how}."
        if isinstance(reason, ssl.SSLError):
            plain = url.replace("https:", "http:", 1)
            return f"{url} does not speak https ({reason.reason}). If it is meant to be without: {plain}."
        return f"{url} cannot be reached ({reason}): check the address ({STUDIO} or edt login), and whether the studio runs."


def _part(name: str) -> str:
    return urllib.parse.quote(name, safe="")


def object_of(found: Any) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise NoAnswer("The studio's answer is not what was asked for: is it of another version?")
    return found
