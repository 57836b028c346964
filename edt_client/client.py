"""A studio from Python: `Studio` waits for answers, `AsyncStudio` (in `aio`) awaits them. Both know the same operations."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from edt_client import data, operations, packing, points, registry, searches, sending, transport
from edt_client.connection import Connection
from edt_client.errors import ClientError, NoAnswer
from edt_client.registry import ModelVersion, RegisteredModel
from edt_client.searches import SearchFacts, Trial, Values
from edt_client.things import Curve, DataAsset, File, Import, Node, Project, Reproduction, RunCurves, RunFacts, Series, Slot, Version
from edt_client.transport import EVERY_S, Frame


class Studio(Connection):
    """A studio, as one person. Close it, or use it in a `with`."""

    @classmethod
    def from_environment(cls) -> Studio:
        """The one that EDT_STUDIO and EDT_TOKEN name, or the last `edt login`."""
        named = transport.named()
        return cls(named.url, named.token, ca_cert=named.ca_cert)

    def projects(self, *, q: str = "") -> list[Project]:
        return self.do(operations.projects(q=q))

    def project(self, name: str, *, make: bool = False) -> Project:
        """By its name or its number."""
        return self.do(operations.project_of(name, make=make))

    def runs(self, *, most: int = 50, **wanted: Any) -> list[Run]:
        """Newest first. `wanted`: project, experiment, state ("live", "ended", ...), submitter, tag, q."""
        return [Run(self, facts) for facts in self.do(operations.runs(most=most, **wanted))]

    def get_run(self, number: int) -> Run:
        return Run(self, self.do(operations.run(number)))

    def curves(self, runs: Iterable[int], *metrics: str, max_points: int = 1000) -> list[RunCurves]:
        """Of several runs, by their numbers, in one answer: studio.curves([7, 8], "test loss")."""
        return self.do(points.curves(runs, metrics, max_points=max_points))

    def metrics(self, runs: Iterable[int], *metrics: str, frame: Frame = "pandas") -> Any:
        """All points of those as a frame of pandas or polars, with a column `run`."""
        return transport.as_frame(self.do(points.table(runs, metrics)), frame)

    def save(self, folder: Path | str, *, project: str, name: str = "", **attributes: str) -> Version:
        """The folder's code as a training definition of its name: a new version where it has changed."""
        packed = packing.pack(Path(folder))
        found = self.do(operations.project_of(project, make=True))
        return self.do(sending.save_code(found.id, name or packed.name, packed.zip, attributes))[0]

    def run(self, folder: Path | str, command: str, *, project: str, name: str = "", slots: int | None = None, **said: Any) -> Run:
        """Pack a folder, save it, and run `command` ("main.py --lr 0.1") of it. `said`: data, source_folder, environment."""
        packed = packing.pack(Path(folder))
        found = self.do(operations.project_of(project, make=True))
        attributes = {"command": command, **({"max_slots": str(slots)} if slots else {})}
        version, _ = self.do(sending.save_code(found.id, packed.name, packed.zip, attributes))
        return Run(self, self.do(operations.start(found.id, version.id, command=command, name=name, **said)))

    def sweep(
        self, folder: Path | str, command: str, grid: Mapping[str, Sequence[str]], *, project: str, name: str = "", **said: Any
    ) -> list[Run]:
        """The same for each combination of values of its arguments, in one experiment: {"lr": ["0.1", "0.3"]} is two runs."""
        packed = packing.pack(Path(folder))
        found = self.do(operations.project_of(project, make=True))
        version, _ = self.do(sending.save_code(found.id, packed.name, packed.zip, {"command": command}))
        title = name or f"{packed.name} {' '.join(grid)}"[:120]
        made = self.do(operations.sweep(found.id, version.id, grid=grid, command=command, name=title, **said))
        return [Run(self, facts) for facts in made]

    def search(
        self, folder: Path | str, command: str, parameters: Mapping[str, Values], *, metric: str, project: str, name: str = "", **said: Any
    ) -> Search:
        """Runs with values that are chosen by what came of those before, in one experiment: {"lr": "0.0001..0.1 log", "width": [8, 16]}.

        `metric`: "test loss", whose best value is a run's result. `said`: goal ("minimize" or "maximize"), method ("tpe" or "random"),
        trials, at_once, early_stop, data, source_folder, environment."""
        packed = packing.pack(Path(folder))
        found = self.do(operations.project_of(project, make=True))
        version, _ = self.do(sending.save_code(found.id, packed.name, packed.zip, {"command": command}))
        title = name or f"{packed.name} {' '.join(parameters)}"[:120]
        return Search(self, self.do(searches.begin(found.id, version.id, parameters, metric=metric, name=title, command=command, **said)))

    def get_search(self, experiment: int) -> Search:
        """Of the experiment of this number."""
        return Search(self, self.do(searches.of_experiment(experiment)))

    def upload(self, folder: Path | str, *, project: str, name: str = "", next_of: str = "", note: str = "") -> DataAsset:
        """The files of a folder, or one file, as a data asset, which runs find as DATA_DIR: run(..., data=asset.id).

        `next_of`: the data set of the project ("digits") whose next version it is; `note`: what is new in it."""
        found = self.do(operations.project_of(project, make=not next_of))
        if next_of:
            before = self.do(data.version_of(found.id, next_of, only=True))
            return self.do(data.add_version(before.id, Path(folder), note=note))
        return self.do(data.upload(found.id, name or Path(folder).resolve().name, Path(folder)))

    def data(self, address: str, *, project: str) -> DataAsset:
        """A version of a data set: "digits@2", or "digits" for the newest."""
        return self.do(data.version_of(self.do(operations.project_of(project, make=False)).id, address))

    def export_project(self, project: str, to: Path | str) -> Path:
        """A project, by its name or number, as a .zip: `to` is a folder or its new name."""
        found, target = self.do(operations.project_of(project, make=False)), Path(to)
        target = target / f"project-{found.id}.zip" if target.is_dir() else target
        target.with_name(f"{target.name}.part").unlink(missing_ok=True)  # it is made while it is sent: nothing of it can be gone on with
        self.download(f"/projects/{found.id}/export", target)
        return target

    def import_project(self, archive: Path | str, *, name: str = "", seen: Callable[[Import], object] = lambda _: None) -> Project:
        """A new project of such a .zip, of this studio or of another. Raises Refused with why; `seen` is told each time that it is looked
        at how far it is."""
        begun = self.do(sending.send_project(Path(archive), name=name))
        while not begun.is_over:
            seen(begun)
            time.sleep(EVERY_S)
            with contextlib.suppress(NoAnswer):
                begun = self.do(sending.project_import(begun.id))
        seen(begun)
        return self.do(sending.imported(begun))

    def models(self, *, project: str = "") -> list[RegisteredModel]:
        """Of a project, by its name or number, or of all that are yours."""
        return self.do(registry.models(project=self.number_of(project)))

    def model(self, address: str, *, project: str = "") -> ModelVersion:
        """A version: "digits@champion", "digits@3", or "digits" for the newest."""
        return self.do(registry.version_of(address, project=self.number_of(project)))

    def download_model(self, address: str, to: Path | str = "", *, project: str = "", file: str = "") -> list[Path]:
        """The files of such a version (or one of them) below a folder, by default NAME-NUMBER here, each compared with its hash; what broke
        off is gone on with."""
        version = self.model(address, project=project)
        wanted = [each for each in version.its_files if file in ("", each.path)]
        if not wanted:
            raise ClientError(f"{version.name} version {version.number} has no file {file}.")
        folder, found = Path(to) if to else Path(f"{version.name}-{version.number}".replace("/", "_")), []
        for each in wanted:
            target = registry.target_path(folder, each.path)
            self.download(registry.file_path(version, each.path), target, size_bytes=each.size_bytes)
            registry.check(target, each)
            found.append(target)
        return found

    def set_alias(self, address: str, alias: str, *, project: str = "") -> RegisteredModel:
        """Let the alias point to the version that `address` names."""
        version = self.model(address, project=project)
        return self.do(registry.set_alias(version.model, alias, version.number))

    def number_of(self, project: str) -> int | None:
        """Of a project that is named; None where none is."""
        return self.do(operations.project_of(project, make=False)).id if project else None

    def slots(self) -> list[Slot]:
        return self.do(operations.slots())

    def nodes(self) -> list[Node]:
        return self.do(operations.nodes())


class Search:
    """A search for hyperparameters. `facts` are as old as the last `refresh`; its attributes are those of `searches.SearchFacts`."""

    def __init__(self, studio: Studio, facts: SearchFacts) -> None:
        self.studio, self.facts = studio, facts

    def __getattr__(self, name: str) -> Any:
        if name == "facts":
            raise AttributeError(name)
        return getattr(self.facts, name)

    def __repr__(self) -> str:
        return f"<Search {self.facts.experiment} {self.facts.name!r}: {self.facts.state}, {self.facts.ended} of {self.facts.most}>"

    @property
    def best(self) -> Trial | None:
        """The best trial so far."""
        return self.facts.its_best

    @property
    def trials(self) -> list[Trial]:
        return self.facts.its_trials

    def refresh(self) -> Search:
        self.facts = self.studio.do(searches.of_experiment(self.facts.experiment))
        return self

    def wait(self, *, timeout: float | None = None) -> Search:
        """Until it has ended with all of its trials. Raises TimeoutError."""
        _wait(self, f"search {self.facts.experiment}", timeout=timeout)
        return self

    def stop(self) -> Search:
        """Nothing more is tried, and trials that run are stopped."""
        self.facts = self.studio.do(searches.stop(self.facts.experiment))
        return self


class Run:
    """A run. `facts` are as old as the last `refresh`; its attributes are those of `things.RunFacts`."""

    def __init__(self, studio: Studio, facts: RunFacts) -> None:
        self.studio, self.facts = studio, facts

    def __getattr__(self, name: str) -> Any:
        if name == "facts":
            raise AttributeError(name)
        return getattr(self.facts, name)

    def __repr__(self) -> str:
        return f"<Run {self.facts.id} {self.facts.name!r}: {self.facts.state}>"

    def refresh(self) -> Run:
        self.facts = self.studio.do(operations.run(self.facts.id))
        return self

    def wait(self, *, timeout: float | None = None, seen: Callable[[RunFacts], object] = lambda _: None) -> Run:
        """Until it has ended. Raises TimeoutError; `seen` is told each time that it is looked at."""
        _wait(self, f"run {self.facts.id}", timeout=timeout, seen=seen)
        return self

    def stop(self, reason: str = "") -> Run:
        self.facts = self.studio.do(operations.stop(self.facts.id, reason=reason))
        return self

    def pause(self, reason: str = "") -> Run:
        self.facts = self.studio.do(operations.pause(self.facts.id, reason=reason))
        return self

    def resume(self, reason: str = "") -> Run:
        self.facts = self.studio.do(operations.resume(self.facts.id, reason=reason))
        return self

    def change(self, **changes: Any) -> Run:
        """priority, min_slots, max_slots, any_kind, tags, note."""
        self.facts = self.studio.do(operations.change(self.facts.id, **changes))
        return self

    def rerun(self, **changes: Any) -> list[Run]:
        """New runs in its experiment, with what it had and these: version, command, grid, min_slots, max_slots, priority, environment."""
        return [Run(self.studio, facts) for facts in self.studio.do(operations.rerun(self.facts.id, **changes))]

    def reproduce(self) -> Run:
        """The same run again, on whatever slots there are; its `reproduction()` says whether the same comes out."""
        return Run(self.studio, self.studio.do(operations.reproduce(self.facts.id)))

    def reproduction(self) -> Reproduction:
        """Of a run that repeats another one: how they compare, so far or in the end."""
        return self.studio.do(operations.reproduction(self.facts.id))

    def receipt(self) -> bytes:
        """Sealed, of a run that has ended: the file. `edt_client.receipts.check` checks one."""
        return self.studio.do(operations.receipt(self.facts.id))

    def register(self, name: str, **said: Any) -> ModelVersion:
        """A version of the model of this name, of what it has written. `said`: path (of a file or folder of it), note, tags, aliases."""
        return self.studio.do(registry.register(self.facts.id, name, **said))

    def series(self) -> list[Series]:
        return self.studio.do(operations.metrics(self.facts.id))

    def curves(self, *, group: str = "", name: str = "", max_points: int = 1000) -> list[Curve]:
        return self.studio.do(operations.curves(self.facts.id, group=group, name=name, max_points=max_points))

    def metrics(self, frame: Frame = "pandas", *, group: str = "", name: str = "") -> Any:
        """All points as a frame of pandas or polars: group, name, step, epoch, time (Unix seconds), value, workers."""
        return transport.as_frame(self.studio.do(operations.table(self.facts.id, group=group, name=name)), frame)

    def log(self, name: str = "driver", *, lines: int = 200) -> str:
        """Its last lines."""
        return self.studio.do(operations.log(self.facts.id, name, lines=lines)).text

    def log_lines(self, name: str = "driver", *, follow: bool = True, offset: int = 0) -> Iterator[str]:
        """The log from its byte `offset` on, as it is written, until the run has ended."""
        while True:
            ended = self.refresh().facts.has_ended  # asked before the log: what it wrote at its end is in there
            while (tail := self.studio.do(operations.log(self.facts.id, name, offset=offset))).text:
                offset = tail.end
                yield tail.text
            if ended or not follow:
                return
            time.sleep(EVERY_S / 2)

    def files(self) -> list[File]:
        return self.studio.do(operations.files(self.facts.id))

    def download(self, path: str, to: Path | str) -> Path:
        """One of its files; goes on where an attempt before broke off."""
        size = next((each.size_bytes for each in self.files() if each.path == path), None)
        if size is None:
            raise ClientError(f"Run {self.facts.id} has no file {path}: edt download {self.facts.id} --list names them.")
        target = Path(to) / Path(path).name if Path(to).is_dir() else Path(to)
        self.studio.download(operations.file_path(self.facts.id, path), target, size_bytes=size)
        return target

    def plot(self, *, live: bool = True) -> None:
        """Its curves in the notebook's cell, until it has ended (or, where not `live`, as they are)."""
        from edt_client import notebook

        notebook.show(self, live=live)


def _wait(one: Run | Search, called: str, *, timeout: float | None, seen: Callable[[Any], object] = lambda _: None) -> None:
    """Until it has ended. Raises TimeoutError."""
    end = None if timeout is None else time.monotonic() + timeout
    while True:
        with contextlib.suppress(NoAnswer):
            seen(one.refresh().facts)
        if one.facts.has_ended:
            return
        if end is not None and time.monotonic() >= end:
            raise TimeoutError(f"{called} is {one.facts.state} after {timeout:g} s")
        time.sleep(EVERY_S)
