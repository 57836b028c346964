"""The studio's HTTP addresses for files, as a joined machine uses them: trees come down, runs' files go up, each piece after the last, so
that a lost connection costs a piece and no more."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from training_runtime.node.messages import FILES
from training_runtime.node.mirror import File

PIECE_BYTES = 1 << 20
TIMEOUT_S = 30.0


class Unreachable(Exception):
    """The studio cannot be reached now, or has no room: it is tried again."""


class NotOurs(Exception):
    """The studio takes or gives these files no more: the run has gone elsewhere, or is no more."""


class Rejected(Exception):
    """The studio cannot keep a file of this name, now or later."""


class WrongOffset(Exception):
    """A piece does not begin where what has arrived ends, which is at `size`."""

    def __init__(self, size: int) -> None:
        super().__init__(f"the studio has {size} bytes")
        self.size = size


class Files:
    """Of one connection to the studio; for any thread of it."""

    def __init__(self, studio: str, token: str, incarnation: int, *, verify: bool | str = True) -> None:
        headers = {"Authorization": f"Bearer {token}", "X-EDT-Incarnation": str(incarnation)}
        self._client = httpx.Client(base_url=studio + FILES, headers=headers, timeout=TIMEOUT_S, verify=verify)

    def close(self) -> None:
        self._client.close()

    def tree(self, room: str, name: str, *, term: str = "") -> list[File]:
        """The files of a folder in the studio. `term`: GUEST for what this machine has written in one of a run whose driver is
        elsewhere."""
        found = self._answer("GET", f"/trees/{room}/{name}", params={"term": term}).json()
        return [File(str(each["path"]), int(each["size"]), int(each["mtime_ns"])) for each in found["files"]]

    def fetch(self, room: str, name: str, file: File, target: Path, *, term: str = "") -> None:
        """The file to `target`, from where an earlier attempt has stopped, with the time of its last change."""
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(target, "ab") as out:
            if out.tell() > file.size:
                out.truncate(0)
            if out.tell() < file.size:
                self._stream(f"/trees/{room}/{name}/{quote(file.path)}?term={term}", out, begin=out.tell())
        if target.stat().st_size != file.size:
            target.unlink()
            raise Unreachable(f"{file.path} did not come as it was announced")
        os.utime(target, ns=(file.mtime_ns, file.mtime_ns))

    def append(self, folder: str, term: str, path: str, body: bytes, *, offset: int) -> int:
        """Write at `offset`, where what has arrived ends or before; what was behind goes. The size after it. Raises WrongOffset."""
        return self._put(folder, path, {"term": term, "offset": offset}, body)

    def replace(self, folder: str, term: str, file: File, source: Path) -> bool:
        """Send the file whole. False where it has changed meanwhile: then it is sent later."""
        facts: dict[str, Any] = {"term": term, "size": file.size, "mtime_ns": file.mtime_ns}
        offset = 0
        with open(os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as opened:
            while True:
                opened.seek(offset)
                body = opened.read(min(PIECE_BYTES, file.size - offset))
                now = os.fstat(opened.fileno())
                if (now.st_size, now.st_mtime_ns) != (file.size, file.mtime_ns):
                    return False
                try:
                    offset = self._put(folder, file.path, {**facts, "offset": offset}, body)
                except WrongOffset as wrong:  # of an attempt before this one
                    offset = wrong.size
                    continue
                if offset >= file.size:
                    return True

    def remove(self, folder: str, term: str, path: str) -> None:
        self._answer("DELETE", f"/runs/{folder}/{quote(path)}", params={"term": term})

    def _put(self, folder: str, path: str, params: dict[str, Any], body: bytes) -> int:
        return int(self._answer("PUT", f"/runs/{folder}/{quote(path)}", params=params, content=body).json()["size"])

    def _answer(self, method: str, address: str, **more: Any) -> httpx.Response:
        try:
            answer = self._client.request(method, address, **more)
        except httpx.HTTPError as error:
            raise Unreachable(str(error) or type(error).__name__) from None
        return _checked(answer)

    def _stream(self, address: str, out: Any, *, begin: int) -> None:
        headers = {"Range": f"bytes={begin}-"} if begin else {}
        try:
            with self._client.stream("GET", address, headers=headers) as answer:
                if answer.status_code not in (200, 206):
                    answer.read()
                _checked(answer)
                if begin and answer.status_code == 200:
                    out.truncate(0)
                for piece in _pieces(answer):
                    out.write(piece)
        except httpx.HTTPError as error:
            raise Unreachable(str(error) or type(error).__name__) from None


def _pieces(answer: httpx.Response) -> Iterator[bytes]:
    yield from answer.iter_raw(PIECE_BYTES)


def _checked(answer: httpx.Response) -> httpx.Response:
    if answer.status_code in (200, 201, 204, 206):
        return answer
    said = answer.text[:300]
    if answer.status_code == 409:
        try:
            raise WrongOffset(int(json.loads(answer.text)["size"]))
        except (ValueError, KeyError, TypeError):
            raise NotOurs(said) from None
    if answer.status_code in (404, 410):
        raise NotOurs(said)
    if answer.status_code == 400:
        raise Rejected(said)
    raise Unreachable(f"the studio answers {answer.status_code}: {said}")
