"""The connection to a studio for programs that await: what `connection` is for others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Self, TypeVar

import httpx

from edt_client import credentials, operations, transport
from edt_client.calls import Answer, Call, Operation, checked
from edt_client.errors import ClientError, NoAnswer
from edt_client.events import Reader
from edt_client.things import Event
from edt_client.transport import CHUNK_BYTES, STREAM_TIMEOUT, TRIES, Arriving

T = TypeVar("T")


class AsyncConnection:
    """To the address of a studio."""

    def __init__(self, url: str, token: str, *, ca_cert: str = "") -> None:
        self.url = credentials.address(url)
        self._http = httpx.AsyncClient(**transport.settings(credentials.Studio(self.url, token, ca_cert)))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    async def do(self, operation: Operation[T]) -> T:
        """The outcome of an operation of `edt_client.operations`."""
        try:
            call = next(operation)
            while True:
                try:
                    answer = await self._send(call)
                except ClientError as error:  # which the operation may know what to do about
                    call = operation.throw(error)
                else:
                    call = operation.send(answer)
        except StopIteration as end:
            outcome: T = end.value
            return outcome

    async def _send(self, call: Call) -> Answer:
        for attempt in range(TRIES):
            answer = None
            try:
                answer = transport.answer_of(await self._http.request(**transport.request(call)))
                return checked(answer, url=self.url)
            except httpx.HTTPError as error:
                failure: NoAnswer = transport.unreachable(self.url, error)
            except NoAnswer as error:
                failure = error
            if not call.again or attempt == TRIES - 1:
                raise failure
            await asyncio.sleep(transport.pause_s(attempt, answer))
        raise AssertionError("not reached")

    async def get(self, path: str, **query: Any) -> Any:
        """Any call of the API that reads, as plain JSON."""
        return await self.do(operations.get(path, **query))

    async def events(self, *topics: str) -> AsyncIterator[Event]:
        """What happens, as it happens, until the stream ends. Raises NoAnswer where it breaks off."""
        reader = Reader()
        try:
            async with self._http.stream("GET", "/stream", params={"topic": list(topics)}, timeout=STREAM_TIMEOUT) as response:
                if response.status_code >= 300:
                    await response.aread()
                    checked(transport.answer_of(response), url=self.url)
                async for line in response.aiter_lines():
                    if (event := reader.feed(line)) is not None:
                        yield event
        except httpx.HTTPError as error:
            raise transport.unreachable(self.url, error) from None

    async def download(self, path: str, to: Path, *, size_bytes: int | None = None) -> None:
        """A file, from where `to` stands; whole or not under its name."""
        arriving = Arriving(to, size_bytes, address=self.url + path)
        if not arriving.is_there:
            await self._fetch(path, arriving)
        arriving.finish()

    async def _fetch(self, path: str, arriving: Arriving) -> None:
        try:
            async with self._http.stream("GET", path, headers=arriving.headers) as response:
                if response.status_code >= 300 and response.status_code != 416:
                    await response.aread()
                    checked(transport.answer_of(response), url=self.url)
                with arriving.opened(response.status_code, response.headers.get("ETag", "")) as file:
                    async for chunk in response.aiter_bytes(CHUNK_BYTES):
                        file.write(chunk)
        except httpx.HTTPError as error:
            raise transport.unreachable(self.url, error) from None
