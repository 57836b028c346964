"""The connection to a studio, as one person: operations are done over it, files fetched, and what happens is followed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self, TypeVar

import httpx

from edt_client import credentials, events, operations, transport
from edt_client.calls import Answer, Call, Operation, checked
from edt_client.errors import ClientError, NoAnswer
from edt_client.things import Event
from edt_client.transport import CHUNK_BYTES, STREAM_TIMEOUT, TRIES, Arriving

T = TypeVar("T")


class Connection:
    """To the address of a studio. `do` waits for the outcome of an operation."""

    def __init__(self, url: str, token: str, *, ca_cert: str = "") -> None:
        self.url = credentials.address(url)
        self._http = httpx.Client(**transport.settings(credentials.Studio(self.url, token, ca_cert)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def do(self, operation: Operation[T]) -> T:
        """The outcome of an operation of `edt_client.operations`."""
        try:
            call = next(operation)
            while True:
                try:
                    answer = self._send(call)
                except ClientError as error:  # which the operation may know what to do about
                    call = operation.throw(error)
                else:
                    call = operation.send(answer)
        except StopIteration as end:
            outcome: T = end.value
            return outcome

    def _send(self, call: Call) -> Answer:
        for attempt in range(TRIES):
            answer = None
            try:
                answer = transport.answer_of(self._http.request(**transport.request(call)))
                return checked(answer, url=self.url)
            except httpx.HTTPError as error:
                failure: NoAnswer = transport.unreachable(self.url, error)
            except NoAnswer as error:
                failure = error
            if not call.again or attempt == TRIES - 1:
                raise failure
            time.sleep(transport.pause_s(attempt, answer))
        raise AssertionError("not reached")

    def get(self, path: str, **query: Any) -> Any:
        """Any call of the API that reads, as plain JSON."""
        return self.do(operations.get(path, **query))

    def events(self, *topics: str) -> Iterator[Event]:
        """What happens, as it happens, until the stream ends. Raises NoAnswer where it breaks off."""
        try:
            with self._http.stream("GET", "/stream", params={"topic": list(topics)}, timeout=STREAM_TIMEOUT) as response:
                if response.status_code >= 300:
                    response.read()
                    checked(transport.answer_of(response), url=self.url)
                yield from events.events(response.iter_lines())
        except httpx.HTTPError as error:
            raise transport.unreachable(self.url, error) from None

    def download(self, path: str, to: Path, *, size_bytes: int | None = None) -> None:
        """A file, from where `to` stands; whole or not under its name."""
        arriving = Arriving(to, size_bytes, address=self.url + path)
        if not arriving.is_there:
            self._fetch(path, arriving)
        arriving.finish()

    def _fetch(self, path: str, arriving: Arriving) -> None:
        try:
            with self._http.stream("GET", path, headers=arriving.headers) as response:
                if response.status_code >= 300 and response.status_code != 416:
                    response.read()
                    checked(transport.answer_of(response), url=self.url)
                with arriving.opened(response.status_code, response.headers.get("ETag", "")) as file:
                    for chunk in response.iter_bytes(CHUNK_BYTES):
                        file.write(chunk)
        except httpx.HTTPError as error:
            raise transport.unreachable(self.url, error) from None
