"""The same studio for programs that await."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any, TypeVar

import httpx

from edt_client import credentials, operations, packing, points, sending, transport
from edt_client.calls import Answer, Call, Operation, checked
from edt_client.errors import ClientError, NoAnswer
from edt_client.events import Reader
from edt_client.things import Curve, Event, Node, Project, RunCurves, RunFacts, Slot
from edt_client.transport import EVERY_S, STREAM_TIMEOUT, TRIES, Frame

T = TypeVar("T")


class AsyncStudio:
    """A studio, as one person. Use it in an `async with`, or close it."""

    def __init__(self, url: str, token: str, *, ca_cert: str = "") -> None:
        self.url = credentials.address(url)
        self._http = httpx.AsyncClient(**transport.settings(credentials.Studio(self.url, token, ca_cert)))

    @classmethod
    def from_environment(cls) -> AsyncStudio:
        """The one that EDT_STUDIO and EDT_TOKEN name, or the last `edt login`."""
        named = transport.named()
        return cls(named.url, named.token, ca_cert=named.ca_cert)

    async def __aenter__(self) -> AsyncStudio:
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

    async def projects(self, *, q: str = "") -> list[Project]:
        return await self.do(operations.projects(q=q))

    async def project(self, name: str, *, make: bool = False) -> Project:
        """By its name or its number."""
        return await self.do(operations.project_of(name, make=make))

    async def runs(self, *, most: int = 50, **wanted: Any) -> list[AsyncRun]:
        """Newest first. `wanted`: project, experiment, state ("live", "ended", ...), submitter, tag, q."""
        return [AsyncRun(self, facts) for facts in await self.do(operations.runs(most=most, **wanted))]

    async def get_run(self, number: int) -> AsyncRun:
        return AsyncRun(self, await self.do(operations.run(number)))

    async def curves(self, runs: Iterable[int], *metrics: str, max_points: int = 1000) -> list[RunCurves]:
        """Of several runs, by their numbers, in one answer: await studio.curves([7, 8], "test loss")."""
        return await self.do(points.curves(runs, metrics, max_points=max_points))

    async def metrics(self, runs: Iterable[int], *metrics: str, frame: Frame = "pandas") -> Any:
        """All points of those as a frame of pandas or polars, with a column `run`."""
        return transport.as_frame(await self.do(points.table(runs, metrics)), frame)

    async def run(
        self, folder: Path | str, command: str, *, project: str, name: str = "", slots: int | None = None, **said: Any
    ) -> AsyncRun:
        """Pack a folder, save it, and run `command` of it. `said`: data, source_folder, environment."""
        packed = await asyncio.to_thread(packing.pack, Path(folder))
        found = await self.do(operations.project_of(project, make=True))
        attributes = {"command": command, **({"max_slots": str(slots)} if slots else {})}
        version, _ = await self.do(sending.save_code(found.id, packed.name, packed.zip, attributes))
        return AsyncRun(self, await self.do(operations.start(found.id, version.id, command=command, name=name, **said)))

    async def import_project(self, archive: Path | str, *, name: str = "") -> Project:
        """A new project of the .zip of one. Raises Refused with why."""
        begun = await self.do(sending.send_project(Path(archive), name=name))
        while not begun.is_over:
            await asyncio.sleep(EVERY_S)
            with contextlib.suppress(NoAnswer):
                begun = await self.do(sending.project_import(begun.id))
        return await self.do(sending.imported(begun))

    async def slots(self) -> list[Slot]:
        return await self.do(operations.slots())

    async def nodes(self) -> list[Node]:
        return await self.do(operations.nodes())

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


class AsyncRun:
    """A run. `facts` are as old as the last `refresh`; its attributes are those of `things.RunFacts`."""

    def __init__(self, studio: AsyncStudio, facts: RunFacts) -> None:
        self.studio, self.facts = studio, facts

    def __getattr__(self, name: str) -> Any:
        if name == "facts":
            raise AttributeError(name)
        return getattr(self.facts, name)

    def __repr__(self) -> str:
        return f"<AsyncRun {self.facts.id} {self.facts.name!r}: {self.facts.state}>"

    async def refresh(self) -> AsyncRun:
        self.facts = await self.studio.do(operations.run(self.facts.id))
        return self

    async def wait(self) -> AsyncRun:
        """Until it has ended."""
        while not (await self.refresh()).facts.has_ended:
            await asyncio.sleep(EVERY_S)
        return self

    async def stop(self, reason: str = "") -> AsyncRun:
        self.facts = await self.studio.do(operations.stop(self.facts.id, reason=reason))
        return self

    async def change(self, **changes: Any) -> AsyncRun:
        """priority, min_slots, max_slots, any_kind, tags, note."""
        self.facts = await self.studio.do(operations.change(self.facts.id, **changes))
        return self

    async def curves(self, *, group: str = "", name: str = "", max_points: int = 1000) -> list[Curve]:
        return await self.studio.do(operations.curves(self.facts.id, group=group, name=name, max_points=max_points))

    async def metrics(self, frame: Frame = "pandas", *, group: str = "", name: str = "") -> Any:
        """All points as a frame of pandas or polars."""
        return transport.as_frame(await self.studio.do(operations.table(self.facts.id, group=group, name=name)), frame)

    async def log(self, name: str = "driver", *, lines: int = 200) -> str:
        """Its last lines."""
        return (await self.studio.do(operations.log(self.facts.id, name, lines=lines))).text
