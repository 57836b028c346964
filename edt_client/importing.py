"""Runs that other tools have kept, read by these tools' own libraries: MLflow's tracking (a folder, a database, a server) and TensorBoard's
event files. What is read is one shape, `RecordedRun`, and `bring` sends it to a studio, where the same run is brought once."""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import importlib
import math
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edt_client import operations
from edt_client.calls import Operation
from edt_client.errors import ClientError, Refused
from edt_client.things import RunFacts

STATES = {"FINISHED": "completed", "FAILED": "failed", "KILLED": "stopped"}
EVENTS = "events.out.tfevents."
NAME, VALUE, RUN_NAME = 250, 6000, 120  # characters that a studio takes
PAGE = 200
EARLIEST_S = dt.datetime(2000, 1, 1, tzinfo=dt.UTC).timestamp()
MOST_FILE_BYTES = 1 << 30  # that is read into memory to be sent
Point = dict[str, Any]
Files = Mapping[str, Path]


@dataclass
class RecordedRun:
    """A run as it was kept. `key`: what it is known by, wherever it is brought from again; `state`: None while it runs. `points` of each
    metric are in the order of their steps. `files`: by their names, there while it is open."""

    key: str
    name: str
    state: str | None
    started_at: dt.datetime | None
    ended_at: dt.datetime | None
    points: list[Point]
    parameters: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    files: Callable[[], AbstractContextManager[Files]] = lambda: nullcontext({})


@dataclass(frozen=True)
class Brought:
    """`run`: None where it was left out, and why. `refused`: files that were not taken, with the reason."""

    name: str
    run: RunFacts | None
    points: int = 0
    files: int = 0
    left_out: str = ""
    refused: tuple[str, ...] = ()


def bring(project: int, kept: RecordedRun, *, files: bool) -> Operation[Brought]:
    """Send a run to a project. One that is there already stays as it is; one that was cut off on its way is gone on with."""
    if kept.state is None:
        return Brought(kept.name, None, left_out="it still runs: bring it when it has ended")
    key = hashlib.sha256(kept.key.encode(errors="replace")).hexdigest()[:32]
    facts = yield from operations.begin_outside(project, _printable(kept.name, RUN_NAME), started_at=kept.started_at, key=key)
    if facts.state != "running":
        return Brought(kept.name, facts, left_out="it is there already")
    parameters, tags = _named(kept.parameters), _named(kept.tags)
    yield from operations.log_metrics(facts.id, kept.points, parameters=parameters, tags=tags)
    sent, refused = 0, []
    with kept.files() if files else nullcontext({}) as found:
        for name, path in found.items():
            try:
                yield from operations.send_file(facts.id, name, _content(path))
                sent += 1
            except Refused as error:
                refused.append(f"{name}: {error}")
    facts = yield from operations.end_outside(facts.id, kept.state, ended_at=kept.ended_at)
    return Brought(kept.name, facts, points=len(kept.points), files=sent, refused=tuple(refused))


def _named(values: Mapping[str, str]) -> dict[str, str]:
    return {_printable(name, NAME): value.replace("\0", "")[:VALUE] for name, value in values.items()}


def _printable(name: str, most: int) -> str:
    return "".join(each if each.isprintable() else "?" for each in name)[:most].strip() or "unnamed"


def _content(path: Path) -> bytes:
    if path.stat().st_size > MOST_FILE_BYTES:
        raise Refused(f"It is larger than {MOST_FILE_BYTES >> 30} GiB.", 413)
    return path.read_bytes()


def point(name: str, step: int, value: float, time: float) -> Point:
    """As the API takes it: JSON has neither NaN nor infinity."""
    said: float | str = value
    if not math.isfinite(value):
        said = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return {"name": _printable(name, NAME), "step": max(step, 0), "value": said, "time": time}


def mlflow_runs(store: str, experiments: Sequence[str] = ()) -> Iterator[RecordedRun]:
    """Of a tracking store, the oldest first: a folder (mlruns), sqlite:///mlflow.db, or a server's address. `experiments`: by their names;
    else all."""
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # else newer versions read no folder
    library, uri = _library("mlflow", "mlflow"), _uri(store)
    try:
        yield from _tracked(library.MlflowClient(tracking_uri=uri), store, experiments)
    except library.exceptions.MlflowException as error:
        raise ClientError(f"MLflow cannot read {store}: {str(error).splitlines()[0][:500]}") from None
    except ImportError:  # its smaller package reads no database
        raise ClientError(f"MLflow is not installed as a whole here, which {store} needs: pip install mlflow.") from None


def _uri(store: str) -> str:
    """MLflow would make what is not there."""
    path = Path(store.removeprefix("sqlite:///"))
    if "://" in store and not store.startswith("sqlite:///"):
        return store
    if not path.exists():
        raise ClientError(f"There is no {path}: name a folder (mlruns), a database (mlflow.db) or the address of a server (http://...).")
    return str(path.resolve()) if path.is_dir() else f"sqlite:///{path.resolve()}"


def _tracked(client: Any, store: str, experiments: Sequence[str]) -> Iterator[RecordedRun]:
    wanted = [each for each in client.search_experiments() if not experiments or each.name in experiments]
    if missing := sorted(set(experiments) - {each.name for each in wanted}):
        raise ClientError(f"{store} has no experiment named {missing[0]}.")
    token = None
    for experiment in sorted(wanted, key=lambda each: int(each.creation_time or 0)):
        while True:
            page = client.search_runs(
                [experiment.experiment_id], max_results=PAGE, order_by=["attributes.start_time ASC"], page_token=token
            )
            for run in page:
                yield _of_mlflow(client, experiment.name, run)
            if not (token := page.token):
                break


def _of_mlflow(client: Any, experiment: str, run: Any) -> RecordedRun:
    info, data, points = run.info, run.data, []
    for name in data.metrics:
        history = sorted(client.get_metric_history(info.run_id, name), key=lambda each: (each.step, each.timestamp))
        points += [point(name, each.step, each.value, each.timestamp / 1000) for each in history]
    tags = {name: value for name, value in data.tags.items() if not name.startswith("mlflow.")}
    tags |= {"mlflow experiment": experiment, "mlflow run": info.run_id}
    if user := data.tags.get("mlflow.user"):
        tags["mlflow user"] = user

    @contextlib.contextmanager
    def artifacts() -> Iterator[Files]:
        with tempfile.TemporaryDirectory() as into:
            if client.list_artifacts(info.run_id):
                client.download_artifacts(info.run_id, "", into)
            paths = sorted(path for path in Path(into).rglob("*") if path.is_file())
            yield {path.relative_to(into).as_posix(): path for path in paths}

    state = STATES.get(info.status)
    name = info.run_name or data.tags.get("mlflow.runName") or info.run_id
    times = span([at / 1000 for at in (info.start_time, info.end_time) if at])
    return RecordedRun(f"mlflow {info.run_id}", name, state, *times, points, data.params, tags, artifacts)


def span(times: Iterable[float]) -> tuple[dt.datetime | None, dt.datetime | None]:
    """The first and the last of some moments (Unix seconds) that can be."""
    now = dt.datetime.now(dt.UTC).timestamp()
    found = [each for each in times if EARLIEST_S <= each <= now]
    if not found:
        return None, None
    return dt.datetime.fromtimestamp(min(found), dt.UTC), dt.datetime.fromtimestamp(max(found), dt.UTC)


def tensorboard_runs(folder: Path) -> Iterator[RecordedRun]:
    """Each folder with event files is a run, as TensorBoard has it; its name is the path to it."""
    folders = sorted({path.parent for path in folder.rglob(f"*{EVENTS}*") if path.is_file()})
    if not folders:
        raise ClientError(f"{folder} has no event files ({EVENTS}...): name the folder that tensorboard --logdir takes.")
    loader = _library("tensorboard.backend.event_processing.event_file_loader", "tensorboard")
    for each in folders:
        name = each.relative_to(folder).as_posix()
        yield _of_tensorboard(loader, each, name if name != "." else folder.resolve().name)


def _of_tensorboard(loader: Any, folder: Path, name: str) -> RecordedRun:
    numbers = _library("tensorboard.util.tensor_util", "tensorboard")
    paths = sorted(path for path in folder.iterdir() if EVENTS in path.name)
    points: list[Point] = []
    parameters: dict[str, str] = {}
    times: list[float] = []
    for path in paths:
        plugins: dict[str, str] = {}
        for event in loader.EventFileLoader(str(path)).Load():
            times.append(event.wall_time)
            for value in event.summary.value:
                said = value.metadata.plugin_data
                plugin = plugins.setdefault(value.tag, said.plugin_name)
                if plugin == "scalars":
                    points.append(point(value.tag, event.step, float(numbers.make_ndarray(value.tensor).item()), event.wall_time))
                elif plugin == "hparams":
                    parameters |= _hyperparameters(said.content)
    files = {path.name: path for path in paths}
    key = f"tensorboard {name} {paths[0].name}"
    return RecordedRun(key, name, "completed", *span(times), points, parameters, files=lambda: nullcontext(files))


def _hyperparameters(content: bytes) -> dict[str, str]:
    """What the summary of a session's start says."""
    metadata = _library("tensorboard.plugins.hparams.metadata", "tensorboard")
    try:
        found = metadata.parse_session_start_info_plugin_data(content).hparams
    except Exception:  # another kind of summary of the same plugin, or none
        return {}
    return {name: str(getattr(value, value.WhichOneof("kind"))) for name, value in found.items() if value.WhichOneof("kind")}


def _library(module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise ClientError(f"{package} is not installed here, and reads its own files best: pip install {package}.") from None
