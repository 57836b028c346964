"""A run's metrics: which there are, and their points as JSON, CSV or Arrow."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Literal

from django.db.models import QuerySet
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils import timezone
from ninja import Field, Query, Router, Schema
from ninja.responses import Status

from experiments import access, selectors
from experiments.api.auth import person
from experiments.api.paging import Page, whole
from experiments.api.problems import Refused
from experiments.api.schemas import Body
from experiments.metrics import ingest
from experiments.models import Metric, MetricSeries, TrainingRun
from experiments.selectors.curves import Curve as Row
from experiments.services import outside
from experiments.views.curves import finite
from experiments.views.downloads import streamed
from training_runtime.noted import Noted
from training_runtime.tracking.answers import LONGEST_NAME, LONGEST_VALUE, MOST_NAMES, Group, group_of

router = Router(tags=["metrics"])
ARROW, CSV = "application/vnd.apache.arrow.stream", "text/csv"
COLUMNS = ("group", "name", "step", "epoch", "time", "value", "workers")
MOST_STEPS = 2**62
MOST_SHOWN = 100_000
ROWS = 10_000  # of a piece
MOST_POINTS = 5000  # that are sent at a time
MOST_SENT_STEPS = 2**53  # that pages can count to
Point = tuple[int, int, float, float | None, int]  # step, epoch, time, value, workers


class Series(Schema):
    """`points`: how many there are; `last`: null where it was no finite number, from the step `not_finite_from` on."""

    group: str
    name: str
    points: int
    last_step: int
    last: float | None
    not_finite_from: int | None


class Curve(Schema):
    """Parallel lists: steps, Unix seconds, values (null: no finite number). `sampled`: these are fewer points than the `total`."""

    group: str
    name: str
    steps: list[int]
    times: list[float]
    values: list[float | None]
    total: int
    sampled: bool


class Curves(Schema):
    """`seq`: what they are complete up to; `points` of the live stream go on from there."""

    seq: int
    curves: list[Curve]


class PointsQuery(Schema):
    """`format`: json, csv or arrow; by Accept where it is left out. `max_points` of a curve, for JSON: the least and the greatest of each
    stretch; CSV and Arrow have all."""

    group: Literal["", "train", "test"] = ""
    name: str = Field("", max_length=200)
    from_step: int = Field(0, ge=0, le=MOST_STEPS)
    to_step: int = Field(MOST_STEPS, ge=0, le=MOST_STEPS)
    max_points: int = Field(1000, ge=20, le=MOST_SHOWN)
    format: Literal["", "json", "csv", "arrow"] = ""


PrintableName = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME, pattern=r"^[^\x00-\x1f\x7f]*$")]


class LoggedPoint(Body):
    """`time`: Unix seconds; left out, now. `group`: left out, "test" where the name has a word such as val or test."""

    name: PrintableName
    step: int = Field(ge=0, le=MOST_SENT_STEPS)
    value: float | Literal["NaN", "Infinity", "-Infinity"]
    time: float | None = None
    group: Literal["", "train", "test"] = ""


Named = dict[PrintableName, Annotated[str, Field(max_length=LONGEST_VALUE)]]


class Logged(Body):
    """Points of a curve in the order of their steps; parameters and tags, the last value of which counts."""

    points: list[LoggedPoint] = Field([], max_length=MOST_POINTS)
    parameters: Named = Field({}, max_length=MOST_NAMES)
    tags: Named = Field({}, max_length=MOST_NAMES)


FORMATS = {
    "responses": {
        200: {
            "description": "The points.",
            "content": {
                CSV: {"schema": {"type": "string"}},
                ARROW: {"schema": {"type": "string", "format": "binary"}},
            },
        }
    }
}


@router.get("/runs/{int:run}/metrics", response=Page[Series])
def metrics(request: HttpRequest, run: int) -> Page[Series]:
    """Which metrics it has, and their last values."""
    rows = access.run(person(request), run).series.order_by("group", "name")
    return whole([_series(row) for row in rows])


def _series(row: MetricSeries) -> Series:
    same = ("group", "name", "points", "last_step", "not_finite_from")
    return Series(last=finite(row.last_value), **{name: getattr(row, name) for name in same})


@router.post("/runs/{int:run}/metrics", response={204: None})
def log_metrics(request: HttpRequest, run: int, body: Logged) -> Status[None]:
    """Of a run that the studio did not start. A curve goes on: a step that it has passed is left out. Tags may be set on any run of the
    project, and parameters too."""
    found = access.run(person(request), run, need="write")
    if body.points:
        outside.check_written(found)
        now = timezone.now()
        figures = _by_step(body.points, now=now.timestamp())
        outside.log(found, list(outside.lines(figures, now=now.timestamp())), now=now)
    noted = Noted(body.parameters, body.tags)
    if (body.parameters or body.tags) and not ingest.note(found, noted):
        raise Refused(400, f"A run has at most {MOST_NAMES} parameters, and as many tags.")
    return Status(204, None)


def _by_step(points: Iterable[LoggedPoint], *, now: float) -> dict[tuple[Group, int, float], dict[str, float]]:
    figures: dict[tuple[Group, int, float], dict[str, float]] = {}
    for point in points:
        key = (point.group or group_of(point.name), point.step, now if point.time is None else point.time)
        figures.setdefault(key, {})[point.name] = float(point.value)
    return figures


@router.get("/runs/{int:run}/metrics/points", response=Curves, openapi_extra=FORMATS)
def points(request: HttpRequest, run: int, wanted: Annotated[PointsQuery, Query()]) -> Curves | HttpResponseBase:
    """The points of its metrics. As a table (CSV, Arrow): group, name, step, epoch, time (Unix seconds), value, workers."""
    found = access.run(person(request), run)
    series, steps = _chosen(found, wanted), (wanted.from_step, wanted.to_step)
    if (table := as_table(request, wanted.format, series, name=f"run-{found.pk}-metrics", steps=steps)) is not None:
        return table
    chosen = frozenset(series.values_list("group", "name"))
    seq, curves = selectors.series(found, max_points=wanted.max_points, steps=steps, only=chosen)
    return Curves(seq=seq, curves=[drawn(curve) for curve in curves])


def drawn(curve: Row) -> Curve:
    return Curve(
        group=curve.group,
        name=curve.name,
        steps=curve.steps,
        times=curve.times,
        values=[finite(value) for value in curve.values],
        total=curve.total,
        sampled=curve.sampled,
    )


def as_table(
    request: HttpRequest,
    kind: str,
    found: Iterable[MetricSeries],
    *,
    name: str,
    steps: tuple[int, int] = (0, MOST_STEPS),
    runs: bool = False,
) -> HttpResponseBase | None:
    """All points, where a table is asked for, by `kind` or else by Accept. `runs`: with the number of each curve's run before it."""
    kind = kind or _accepted(request)
    if kind == "csv":
        return streamed(_as_csv(found, steps, runs), name=f"{name}.csv", kind=f"{CSV}; charset=utf-8", reads_database=True)
    if kind == "arrow":
        return streamed(_as_arrow(found, steps, runs), name=f"{name}.arrows", kind=ARROW, reads_database=True)
    return None


def _accepted(request: HttpRequest) -> str:
    best = request.get_preferred_type(["application/json", CSV, ARROW])
    return {CSV: "csv", ARROW: "arrow"}.get(best or "", "json")


def _chosen(run: TrainingRun, wanted: PointsQuery) -> QuerySet[MetricSeries]:
    found = run.series.order_by("group", "name")
    found = found.filter(group=wanted.group) if wanted.group else found
    return found.filter(name=wanted.name.replace("\0", "")) if wanted.name else found


def _stretches(chosen: Iterable[MetricSeries], steps: tuple[int, int]) -> Iterator[tuple[MetricSeries, Sequence[Point]]]:
    """All points in their order, ROWS of one metric at a time."""
    for series in chosen:
        first = steps[0]
        while True:
            found = Metric.objects.filter(series=series, step__gte=first, step__lte=steps[1]).order_by("step")
            rows = list(found.values_list("step", "epoch", "t", "value", "workers")[:ROWS])
            if rows:
                yield series, rows
            if len(rows) < ROWS:
                break
            first = rows[-1][0] + 1


def _as_csv(chosen: Iterable[MetricSeries], steps: tuple[int, int], runs: bool) -> Iterator[bytes]:
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(("run", *COLUMNS) if runs else COLUMNS)
    for series, rows in _stretches(chosen, steps):
        of = (series.run_id,) if runs else ()
        writer.writerows((*of, series.group, _as_text(series.name), *row) for row in rows)
        yield out.getvalue().encode()
        out.seek(0)
        out.truncate()
    yield out.getvalue().encode()


def _as_text(name: str) -> str:
    """A spreadsheet would take some texts for formulas."""
    return f"'{name}" if name[:1] in tuple("=+-@\t\r") else name


class _Pieces:
    """A file that is written to, whose content is taken away piece by piece."""

    def __init__(self) -> None:
        self.waiting: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> int:
        self.waiting.append(bytes(data))
        return len(data)

    def drain(self) -> bytes:
        taken, self.waiting = b"".join(self.waiting), []
        return taken


def _as_arrow(chosen: Iterable[MetricSeries], steps: tuple[int, int], runs: bool) -> Iterator[bytes]:
    import pyarrow as pa  # large: who never asks for it does not load it

    kinds = (pa.string(), pa.string(), pa.int64(), pa.int64(), pa.float64(), pa.float64(), pa.int64())
    fields = [*([("run", pa.int64())] if runs else []), *zip(COLUMNS, kinds, strict=True)]
    schema = pa.schema(fields)
    sink = _Pieces()
    with pa.ipc.new_stream(pa.PythonFile(sink, mode="w"), schema) as writer:
        for series, rows in _stretches(chosen, steps):
            same = (*((series.run_id,) if runs else ()), series.group, series.name)
            columns: Iterable[object] = (*([value] * len(rows) for value in same), *zip(*rows, strict=True))
            arrays = [pa.array(list(column), type=kind) for column, (_, kind) in zip(columns, fields, strict=True)]  # type: ignore[call-overload]
            writer.write_batch(pa.record_batch(arrays, schema=schema))
            yield sink.drain()
    yield sink.drain()
