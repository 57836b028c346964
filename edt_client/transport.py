"""How calls are sent and answers taken, for both clients: what they say to httpx, and what is made of its failures."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import IO, Any, Literal

import httpx

from edt_client import credentials
from edt_client.calls import MOST_BYTES, ROOT, Answer, Call
from edt_client.errors import ClientError, NoAnswer

TRIES, FIRST_PAUSE_S = 4, 0.2
TIMEOUT = httpx.Timeout(60.0, connect=10.0)
STREAM_TIMEOUT = httpx.Timeout(45.0, connect=10.0)  # a stream says every 15 s that it lives
EVERY_S = 1.0  # a run that is waited for is looked at
CHUNK_BYTES = 1 << 20
Frame = Literal["pandas", "polars"]
NOT_LOGGED_IN = "You are not logged in: run edt login STUDIO, or set EDT_STUDIO and EDT_TOKEN."


def settings(studio: credentials.Studio) -> dict[str, Any]:
    verify: Any = studio.ca_cert or True
    return {
        "base_url": studio.url + ROOT,
        "headers": {"Authorization": f"Bearer {studio.token}"},
        "timeout": TIMEOUT,
        "follow_redirects": False,  # the token would go with the request, to wherever it is sent
        "verify": verify,
    }


def request(call: Call) -> dict[str, Any]:
    said: dict[str, Any] = {"method": call.method, "url": call.path, "params": dict(call.query), "headers": {}}
    if call.key:
        said["headers"]["Idempotency-Key"] = call.key
    if call.fields is not None:
        said["data"] = dict(call.fields)
        said["files"] = {"file": call.file} if call.file else None
        if call.file is None:  # a form all the same
            said["files"] = {name: (None, value) for name, value in call.fields.items()}
            said["data"] = None
    elif call.content is not None:
        said["content"] = call.content
    elif call.json is not None:
        said["json"] = call.json
    return said


def answer_of(response: httpx.Response) -> Answer:
    if len(response.content) > MOST_BYTES:
        raise NoAnswer("The answer is too large: ask for less of it.")
    wait = response.headers.get("Retry-After", "")
    return Answer(response.status_code, response.content, float(wait) if wait.isdigit() else 0.0)


def unreachable(url: str, error: Exception) -> NoAnswer:
    said = str(error) or type(error).__name__
    if "CERTIFICATE_VERIFY_FAILED" in said:
        return NoAnswer(f"The certificate of {url} is not trusted: name your own authority's file with EDT_CA_CERT=FILE.")
    return NoAnswer(f"{url} cannot be reached ({said}): check the address (EDT_STUDIO or edt login), and whether the studio runs.")


def pause_s(attempt: int, answer: Answer | None) -> float:
    return max(FIRST_PAUSE_S * float(1 << attempt), min(answer.wait_s, 30.0) if answer is not None else 0.0)


def named() -> credentials.Studio:
    found = credentials.named(os.environ)
    if found is None:
        raise ClientError(NOT_LOGGED_IN)
    return found


def as_frame(table: bytes, frame: Frame) -> Any:
    """A table in CSV as a frame."""
    try:
        if frame == "polars":
            import polars

            return polars.read_csv(io.BytesIO(table))
        import pandas
    except ImportError:
        raise ClientError(f"{frame} is not installed here: pip install {frame}.") from None
    return pandas.read_csv(io.BytesIO(table))


def anew(to: Path, name: str) -> Path:
    """Where a file goes that is made while it is sent, so that nothing of it can be gone on with: `to` is a folder or its new name."""
    target = to / name if to.is_dir() else to
    target.with_name(f"{target.name}.part").unlink(missing_ok=True)
    return target


class Arriving:
    """A file that is fetched: beside its name while it is not whole, and from where it stands, if that is the beginning of this very file:
    another one beside it says of what. `address`: where the studio has it; `size_bytes`: None where nobody knows."""

    def __init__(self, to: Path, size_bytes: int | None, *, address: str) -> None:
        self._to, self._size, self._address = to, size_bytes, address
        self._beside, self._of = to.with_name(f"{to.name}.part"), to.with_name(f"{to.name}.part.of")
        self._beside.parent.mkdir(parents=True, exist_ok=True)
        self._mark = self._known_mark()
        self._begin = self._beside.stat().st_size if self._mark and self._beside.exists() else 0

    @property
    def is_there(self) -> bool:
        return bool(self._begin) and self._begin == self._size

    @property
    def headers(self) -> dict[str, str]:
        """Of another content than that of which there is a beginning all is sent."""
        return {"Range": f"bytes={self._begin}-", "If-Range": self._mark} if self._begin else {}

    def opened(self, status: int, mark: str) -> IO[bytes]:
        """For what the studio sends with this status of HTTP and this ETag. Raises NoAnswer."""
        if status == 416:  # it has become shorter
            self._forget()
            raise NoAnswer(f"{self._to.name} has changed meanwhile: ask for it again.")
        if status == 206:
            return open(self._beside, "ab")
        self._forget()
        self._of.write_text(json.dumps([self._address, mark.removeprefix("W/")]))  # a proxy may make it weak
        return open(self._beside, "wb")

    def finish(self) -> None:
        """Raises NoAnswer."""
        if self._size is not None and self._beside.stat().st_size != self._size:
            self._forget()
            raise NoAnswer(f"{self._to.name} did not arrive as it is: ask for it again.")
        self._beside.replace(self._to)
        self._forget()

    def _known_mark(self) -> str:
        """The ETag of that whose beginning is there; empty where nobody knows, or it is of something else."""
        try:
            address, mark = json.loads(self._of.read_bytes())
        except (OSError, ValueError, TypeError):
            return ""
        return str(mark) if address == self._address else ""

    def _forget(self) -> None:
        self._beside.unlink(missing_ok=True)
        self._of.unlink(missing_ok=True)
