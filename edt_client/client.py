"""A studio from Python: `Studio` waits for answers, `AsyncStudio` (in `aio`) awaits them. Both know the same operations."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from edt_client import data, folders, operations, packing, points, registry, searches, sending, transport
from edt_client.connection import Connection
from edt_client.errors import NoAnswer
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
        return self.do(folders.save(packing.pack(Path(folder)), attributes, project=project, name=name))[1]

    def run(self, folder: Path | str, command: str, *, project: str, name: str = "", slots: int | None = None, **said: Any) -> Run:
        """Pack a folder, save it, and run `command` ("main.py --lr 0.1") of it. `said`: data, source_folder, environment; distributed
        ("elastic", "single", "torchrun" or "torchrun_elastic"), where that is not to be what its code asks for."""
        return Run(self, self.do(folders.run(packing.pack(Path(folder)), command, project=project, name=name, slots=slots, **said)))

    def sweep(
        self, folder: Path | str, command: str, grid: Mapping[str, Sequence[str]], *, project: str, name: str = "", **said: Any
    ) -> list[Run]:
        """The same for each combination of values of its arguments, in one experiment: {"lr": ["0.1", "0.3"]} is two runs."""
        made = self.do(folders.sweep(packing.pack(Path(folder)), command, grid, project=project, name=name, **said))
        return [Run(self, facts) for facts in made]

    def search(
        self, folder: Path | str, command: str, parameters: Mapping[str, Values], *, metric: str, project: str, name: str = "", **said: Any
    ) -> Search:
        """Runs with values that are chosen by what came of those before, in one experiment: {"lr": "0.0001..0.1 log", "width": [8, 16]}.

        `metric`: "test loss", whose best value is a run's result. `said`: goal ("minimize" or "maximize"), method ("tpe" or "random"),
        trials, at_once, early_stop, data, source_folder, environment."""
        packed = packing.pack(Path(folder))
        return Search(self, self.do(folders.search(packed, command, parameters, metric=metric, project=project, name=name, **said)))

    def get_search(self, experiment: int) -> Search:
        """Of the experiment of this number."""
        return Search(self, self.do(searches.of_experiment(experiment)))

    def upload(self, folder: Path | str, *, project: str, name: str = "", next_of: str = "", note: str = "") -> DataAsset:
        """The files of a folder, or one file, as a data asset, which runs find as DATA_DIR: run(..., data=asset.id).

        `next_of`: the data set of the project ("digits") whose next version it is; `note`: what is new in it."""
        return self.do(data.add_data(Path(folder), project=project, name=name, next_of=next_of, note=note))

    def data(self, address: str, *, project: str) -> DataAsset:
        """A version of a data set: "digits@2", or "digits" for the newest."""
        return self.do(data.of_project(address, project))

    def export_project(self, project: str, to: Path | str) -> Path:
        """A project, by its name or number, as a .zip: `to` is a folder or its new name."""
        number = self.do(operations.project_of(project, make=False)).id
        target = transport.anew(Path(to), f"project-{number}.zip")
        self.download(f"/projects/{number}/export", target)
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
        files, folder = registry.chosen_files(version, file, to)
        targets = [registry.target_path(folder, each.path) for each in files]
        for each, target in zip(files, targets, strict=True):
            self.download(registry.file_path(version, each.path), target, size_bytes=each.size_bytes)
            registry.check(target, each)
        return targets

    def set_alias(self, address: str, alias: str, *, project: str = "") -> RegisteredModel:
        """Let the alias point to the version that `address` names."""
        return self.do(registry.point_alias(address, alias, project=self.number_of(project)))

    def number_of(self, project: str) -> int | None:
        """Of a project that is named; None where none is."""
        return self.do(operations.number_of(project))

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
        """The log from its byte `offset` on, as it is written, until the run has ended. A run that has not begun is waited for, and so is a
        studio that does not answer."""
        while True:
            try:
                ended = self.refresh().facts.has_ended  # asked before the log: what it wrote at its end is in there
                while (tail := self.studio.do(operations.log_from(self.facts, name, offset=offset))) and tail.text:
                    offset = tail.end
                    yield tail.text
                offset = min(offset, tail.end) if tail else offset  # a long one is cut: then it goes on from there
            except NoAnswer:
                if not follow:
                    raise
                ended = False
            if ended or not follow:
                return
            time.sleep(EVERY_S / 2)

    def files(self) -> list[File]:
        return self.studio.do(operations.files(self.facts.id))

    def download(self, path: str, to: Path | str) -> Path:
        """One of its files; goes on where an attempt before broke off."""
        size = self.studio.do(operations.size_of_file(self.facts.id, path))
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
