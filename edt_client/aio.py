"""The same studio for programs that await."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from edt_client import data, folders, operations, packing, points, registry, searches, sending, transport
from edt_client.async_connection import AsyncConnection
from edt_client.errors import NoAnswer
from edt_client.packing import Packed
from edt_client.registry import ModelVersion, RegisteredModel
from edt_client.searches import SearchFacts, Trial, Values
from edt_client.things import Curve, DataAsset, File, Import, Node, Project, Reproduction, RunCurves, RunFacts, Series, Slot, Version
from edt_client.transport import EVERY_S, Frame


class AsyncStudio(AsyncConnection):
    """A studio, as one person. Use it in an `async with`, or close it. What each does is said of the same in `client.Studio`."""

    @classmethod
    def from_environment(cls) -> AsyncStudio:
        named = transport.named()
        return cls(named.url, named.token, ca_cert=named.ca_cert)

    async def projects(self, *, q: str = "") -> list[Project]:
        return await self.do(operations.projects(q=q))

    async def project(self, name: str, *, make: bool = False) -> Project:
        return await self.do(operations.project_of(name, make=make))

    async def runs(self, *, most: int = 50, **wanted: Any) -> list[AsyncRun]:
        return [AsyncRun(self, facts) for facts in await self.do(operations.runs(most=most, **wanted))]

    async def get_run(self, number: int) -> AsyncRun:
        return AsyncRun(self, await self.do(operations.run(number)))

    async def curves(self, runs: Iterable[int], *metrics: str, max_points: int = 1000) -> list[RunCurves]:
        return await self.do(points.curves(runs, metrics, max_points=max_points))

    async def metrics(self, runs: Iterable[int], *metrics: str, frame: Frame = "pandas") -> Any:
        return transport.as_frame(await self.do(points.table(runs, metrics)), frame)

    async def save(self, folder: Path | str, *, project: str, name: str = "", **attributes: str) -> Version:
        return (await self.do(folders.save(await _packed(folder), attributes, project=project, name=name)))[1]

    async def run(
        self, folder: Path | str, command: str, *, project: str, name: str = "", slots: int | None = None, **said: Any
    ) -> AsyncRun:
        begun = folders.run(await _packed(folder), command, project=project, name=name, slots=slots, **said)
        return AsyncRun(self, await self.do(begun))

    async def sweep(
        self, folder: Path | str, command: str, grid: Mapping[str, Sequence[str]], *, project: str, name: str = "", **said: Any
    ) -> list[AsyncRun]:
        made = await self.do(folders.sweep(await _packed(folder), command, grid, project=project, name=name, **said))
        return [AsyncRun(self, facts) for facts in made]

    async def search(
        self, folder: Path | str, command: str, parameters: Mapping[str, Values], *, metric: str, project: str, name: str = "", **said: Any
    ) -> AsyncSearch:
        begun = folders.search(await _packed(folder), command, parameters, metric=metric, project=project, name=name, **said)
        return AsyncSearch(self, await self.do(begun))

    async def get_search(self, experiment: int) -> AsyncSearch:
        return AsyncSearch(self, await self.do(searches.of_experiment(experiment)))

    async def upload(self, folder: Path | str, *, project: str, name: str = "", next_of: str = "", note: str = "") -> DataAsset:
        return await self.do(data.add_data(Path(folder), project=project, name=name, next_of=next_of, note=note))

    async def data(self, address: str, *, project: str) -> DataAsset:
        return await self.do(data.of_project(address, project))

    async def export_project(self, project: str, to: Path | str) -> Path:
        number = (await self.do(operations.project_of(project, make=False))).id
        target = transport.anew(Path(to), f"project-{number}.zip")
        await self.download(f"/projects/{number}/export", target)
        return target

    async def import_project(self, archive: Path | str, *, name: str = "", seen: Callable[[Import], object] = lambda _: None) -> Project:
        begun = await self.do(sending.send_project(Path(archive), name=name))
        while not begun.is_over:
            seen(begun)
            await asyncio.sleep(EVERY_S)
            with contextlib.suppress(NoAnswer):
                begun = await self.do(sending.project_import(begun.id))
        seen(begun)
        return await self.do(sending.imported(begun))

    async def models(self, *, project: str = "") -> list[RegisteredModel]:
        return await self.do(registry.models(project=await self.number_of(project)))

    async def model(self, address: str, *, project: str = "") -> ModelVersion:
        return await self.do(registry.version_of(address, project=await self.number_of(project)))

    async def download_model(self, address: str, to: Path | str = "", *, project: str = "", file: str = "") -> list[Path]:
        version = await self.model(address, project=project)
        files, folder = registry.chosen_files(version, file, to)
        targets = [registry.target_path(folder, each.path) for each in files]
        for each, target in zip(files, targets, strict=True):
            await self.download(registry.file_path(version, each.path), target, size_bytes=each.size_bytes)
            await asyncio.to_thread(registry.check, target, each)
        return targets

    async def set_alias(self, address: str, alias: str, *, project: str = "") -> RegisteredModel:
        return await self.do(registry.point_alias(address, alias, project=await self.number_of(project)))

    async def number_of(self, project: str) -> int | None:
        return await self.do(operations.number_of(project))

    async def slots(self) -> list[Slot]:
        return await self.do(operations.slots())

    async def nodes(self) -> list[Node]:
        return await self.do(operations.nodes())


async def _packed(folder: Path | str) -> Packed:
    return await asyncio.to_thread(packing.pack, Path(folder))


class AsyncSearch:
    """A search for hyperparameters, as `client.Search`."""

    def __init__(self, studio: AsyncStudio, facts: SearchFacts) -> None:
        self.studio, self.facts = studio, facts

    def __getattr__(self, name: str) -> Any:
        if name == "facts":
            raise AttributeError(name)
        return getattr(self.facts, name)

    def __repr__(self) -> str:
        return f"<AsyncSearch {self.facts.experiment} {self.facts.name!r}: {self.facts.state}, {self.facts.ended} of {self.facts.most}>"

    @property
    def best(self) -> Trial | None:
        return self.facts.its_best

    @property
    def trials(self) -> list[Trial]:
        return self.facts.its_trials

    async def refresh(self) -> AsyncSearch:
        self.facts = await self.studio.do(searches.of_experiment(self.facts.experiment))
        return self

    async def wait(self, *, timeout: float | None = None) -> AsyncSearch:
        await _wait(self, f"search {self.facts.experiment}", timeout=timeout)
        return self

    async def stop(self) -> AsyncSearch:
        self.facts = await self.studio.do(searches.stop(self.facts.experiment))
        return self


class AsyncRun:
    """A run, as `client.Run`."""

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

    async def wait(self, *, timeout: float | None = None, seen: Callable[[RunFacts], object] = lambda _: None) -> AsyncRun:
        await _wait(self, f"run {self.facts.id}", timeout=timeout, seen=seen)
        return self

    async def stop(self, reason: str = "") -> AsyncRun:
        self.facts = await self.studio.do(operations.stop(self.facts.id, reason=reason))
        return self

    async def pause(self, reason: str = "") -> AsyncRun:
        self.facts = await self.studio.do(operations.pause(self.facts.id, reason=reason))
        return self

    async def resume(self, reason: str = "") -> AsyncRun:
        self.facts = await self.studio.do(operations.resume(self.facts.id, reason=reason))
        return self

    async def change(self, **changes: Any) -> AsyncRun:
        self.facts = await self.studio.do(operations.change(self.facts.id, **changes))
        return self

    async def rerun(self, **changes: Any) -> list[AsyncRun]:
        return [AsyncRun(self.studio, facts) for facts in await self.studio.do(operations.rerun(self.facts.id, **changes))]

    async def reproduce(self) -> AsyncRun:
        return AsyncRun(self.studio, await self.studio.do(operations.reproduce(self.facts.id)))

    async def reproduction(self) -> Reproduction:
        return await self.studio.do(operations.reproduction(self.facts.id))

    async def receipt(self) -> bytes:
        return await self.studio.do(operations.receipt(self.facts.id))

    async def register(self, name: str, **said: Any) -> ModelVersion:
        return await self.studio.do(registry.register(self.facts.id, name, **said))

    async def series(self) -> list[Series]:
        return await self.studio.do(operations.metrics(self.facts.id))

    async def curves(self, *, group: str = "", name: str = "", max_points: int = 1000) -> list[Curve]:
        return await self.studio.do(operations.curves(self.facts.id, group=group, name=name, max_points=max_points))

    async def metrics(self, frame: Frame = "pandas", *, group: str = "", name: str = "") -> Any:
        return transport.as_frame(await self.studio.do(operations.table(self.facts.id, group=group, name=name)), frame)

    async def log(self, name: str = "driver", *, lines: int = 200) -> str:
        return (await self.studio.do(operations.log(self.facts.id, name, lines=lines))).text

    async def log_lines(self, name: str = "driver", *, follow: bool = True, offset: int = 0) -> AsyncIterator[str]:
        while True:
            try:
                ended = (await self.refresh()).facts.has_ended  # asked before the log: what it wrote at its end is in there
                while (tail := await self.studio.do(operations.log_from(self.facts, name, offset=offset))) and tail.text:
                    offset = tail.end
                    yield tail.text
                offset = min(offset, tail.end) if tail else offset  # a long one is cut: then it goes on from there
            except NoAnswer:
                if not follow:
                    raise
                ended = False
            if ended or not follow:
                return
            await asyncio.sleep(EVERY_S / 2)

    async def files(self) -> list[File]:
        return await self.studio.do(operations.files(self.facts.id))

    async def download(self, path: str, to: Path | str) -> Path:
        size = await self.studio.do(operations.size_of_file(self.facts.id, path))
        target = Path(to) / Path(path).name if Path(to).is_dir() else Path(to)
        await self.studio.download(operations.file_path(self.facts.id, path), target, size_bytes=size)
        return target


async def _wait(one: AsyncRun | AsyncSearch, called: str, *, timeout: float | None, seen: Callable[[Any], object] = lambda _: None) -> None:
    within = asyncio.timeout(timeout)
    try:
        async with within:
            while True:
                with contextlib.suppress(NoAnswer):
                    seen((await one.refresh()).facts)
                if one.facts.has_ended:
                    return
                await asyncio.sleep(EVERY_S)
    except TimeoutError:
        if not within.expired():  # it is what `seen` says
            raise
        raise TimeoutError(f"{called} is {one.facts.state} after {timeout:g} s") from None
