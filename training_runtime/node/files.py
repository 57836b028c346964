"""The studio's HTTP addresses for files, as a joined machine uses them: trees come down, runs' files go up, each piece after the last, so
that a lost connection costs a piece and no more."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO
from urllib.parse import quote

import httpx

from training_runtime.node import batches
from training_runtime.node.messages import FILES
from training_runtime.node.mirror import File

PIECE_BYTES = 1 << 20
READ_BYTES = 64 << 10  # what a cut connection loses at most of what has come
TIMEOUT_S = 30.0


class Unreachable(Exception):
    """The studio cannot be reached now, or has no room: it is tried again."""


class NotOurs(Exception):
    """The studio takes or gives these files no more: the run has gone elsewhere, or is no more."""


class Rejected(Exception):
    """The studio cannot keep a file of this name, now or later."""


class Changed(Unreachable):
    """A file is not what the list of its folder said: the list is asked for again."""


@dataclass(frozen=True)
class Listed:
    """A file of a folder in the studio. `mark`: of its content, by which two parts of it belong together; empty of a studio that gives
    none."""

    file: File
    mark: str = ""


class WrongOffset(Exception):
    """A piece does not begin where what has arrived ends, which is at `size`."""

    def __init__(self, size: int) -> None:
        super().__init__(f"the studio has {size} bytes")
        self.size = size


class Files:
    """Of one connection to the studio; for any thread of it."""

    def __init__(self, studio: str, token: str, incarnation: int, *, verify: bool | str = True) -> None:
        headers = {"Authorization": f"Bearer {token}", "X-EDT-Incarnation": str(incarnation), "Accept-Encoding": "identity"}
        self._client = httpx.Client(base_url=studio + FILES, headers=headers, timeout=TIMEOUT_S, verify=verify)

    def close(self) -> None:
        self._client.close()

    def tree(self, room: str, name: str, *, term: str = "") -> list[Listed]:
        """The files of a folder in the studio. `term`: GUEST for what this machine has written in one of a run whose driver is
        elsewhere."""
        found = self._answer("GET", f"/trees/{room}/{name}", params={"term": term}).json()
        return [
            Listed(File(str(each["path"]), int(each["size"]), int(each["mtime_ns"])), str(each.get("mark", ""))) for each in found["files"]
        ]

    def fetch(self, room: str, name: str, listed: Listed, target: Path, *, term: str = "") -> None:
        """The file to `target`, from where what is there of it ends: the beginning of the same content. Raises Changed where the studio
        has another one by now."""
        file = listed.file
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(target, "ab") as out:
            if out.tell() < file.size:
                self._stream(f"/trees/{room}/{name}/{quote(file.path)}?term={term}", out, begin=out.tell(), mark=listed.mark)
        if target.stat().st_size != file.size:
            target.unlink()
            raise Changed(f"{file.path} did not come as it was announced")

    def fetch_several(self, room: str, name: str, batch: Sequence[Listed], into: Path, *, term: str = "") -> None:
        """Small files in one answer, each below the folder `into` by its path. Those that have come whole stay when the rest does not.
        Raises Changed."""
        paths = [each.file.path for each in batch]
        with self._streamed("POST", f"/batches/{room}/{name}?term={term}", json={"paths": paths}) as answer:
            said = batches.Reader(answer.iter_raw(READ_BYTES))
            for each in batch:
                head = said.head()
                if head.path != each.file.path or head.mark != each.mark:
                    raise Changed(f"{each.file.path} is another file by now")
                target = into / each.file.path
                target.parent.mkdir(parents=True, exist_ok=True)
                with open(target, "wb") as out:
                    for piece in said.body(each.file.size):
                        out.write(piece)

    def append(self, folder: str, term: str, path: str, body: bytes, *, offset: int) -> int:
        """Write at `offset`, where what has arrived ends or before; what was behind goes. The size after it. Raises WrongOffset."""
        return self._put(folder, path, {"term": term, "offset": offset}, body)

    def replace(self, folder: str, term: str, file: File, opened: BinaryIO) -> bool:
        """Send the file, which is `opened`, whole. False where it has changed meanwhile: then it is sent later."""
        facts: dict[str, Any] = {"term": term, "size": file.size, "mtime_ns": file.mtime_ns}
        offset = 0
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

    def _stream(self, address: str, out: IO[bytes], *, begin: int, mark: str) -> None:
        headers = {"Range": f"bytes={begin}-"} if begin else {}
        if begin and mark:
            headers["If-Range"] = mark
        with self._streamed("GET", address, headers=headers) as answer:
            if mark and answer.headers.get("ETag", "").removeprefix("W/") != mark:  # a proxy may make it weak
                raise Changed("a file is another one by now")
            if begin and answer.status_code == 200:
                out.truncate(0)
            for piece in answer.iter_raw(READ_BYTES):
                out.write(piece)

    @contextlib.contextmanager
    def _streamed(self, method: str, address: str, **more: Any) -> Iterator[httpx.Response]:
        try:
            with self._client.stream(method, address, **more) as answer:
                if answer.status_code not in (200, 206):
                    answer.read()
                yield _checked(answer)
        except (httpx.HTTPError, batches.CutOff) as error:
            raise Unreachable(str(error) or type(error).__name__) from None


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
