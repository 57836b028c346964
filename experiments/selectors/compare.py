"""Runs side by side, of one experiment or of any that a person may see: what differs between them and how they ended up."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from django.db.models import Q

from experiments import access
from experiments.cluster import accounting
from experiments.models import Experiment, LoggedFacts, MetricSeries, TrainingRun, User
from experiments.selectors.effective import effective, facts_of

MOST_RUNS = 100
MOST_OFFERED = 200
MOST_FOUND = 50
DEFAULT_RUNS = 6
MOST_METRICS = 6  # charts at once: more would say nothing
MOST_AXES = 12
MOST_ARGUMENTS = 60
SHORT_HASH = 12
MOST_NAMES = 200
FIRST = ("test accuracy", "test loss", "train loss", "train accuracy")
SHOWN = 200  # characters of a parameter that is logged
STEPS = "Steps"  # how far a run is, not what it was told


@dataclass(frozen=True)
class Row:
    """One fact of each run, in the order of the columns (None: not there). `differs`: not the same for all. `deltas`: percent of what the
    baseline has, None where it is the same or cannot be said; empty without."""

    name: str
    kind: str  # how its values are written: "text", "argument", "metric", "duration", "number"
    values: list[object]
    differs: bool
    deltas: list[float | None] = field(default_factory=list)


@dataclass(frozen=True)
class Axis:
    """An axis of the parallel coordinates: what each run has there (None: nothing), in the order of the runs.

    `kind`: "number", whose values are numbers, or "text", whose values are names.
    """

    name: str
    kind: str
    values: list[float | str | None]


def candidates(experiment: Experiment) -> list[TrainingRun]:
    """The experiment's runs, newest first."""
    found = experiment.runs.select_related(
        "experiment__project", "submitted_by", "version__definition", "version__bundle", "version__named"
    )
    return list(found.order_by("-submitted_at", "-id")[:MOST_OFFERED])


def chosen(found: list[TrainingRun]) -> list[TrainingRun]:
    """What is compared where no run is named: the newest that have begun."""
    return [run for run in found if run.started_at][:DEFAULT_RUNS]


def numbers(wanted: Iterable[str]) -> list[int]:
    """Of runs, as they stand in an address: "7", or several with commas between them."""
    said = (part.strip().removeprefix("#") for text in wanted for part in text.split(","))
    return list(dict.fromkeys(int(part) for part in said if part.isascii() and part.isdigit() and len(part) < 18))


def findable(user: User, words: str, *, but: Iterable[TrainingRun] = ()) -> list[TrainingRun]:
    """The newest runs of all that the person may see, other than those, whose number, name, command, tags, note, experiment or project
    has these words in it."""
    visible = TrainingRun.objects.filter(experiment__project__in=access.projects_for(user).values("pk")).exclude(
        pk__in=[run.pk for run in but]
    )
    if said := words.strip().replace("\0", ""):
        named = Q(name__icontains=said) | Q(command__icontains=said) | Q(tags__icontains=said) | Q(note__icontains=said)
        named |= Q(experiment__name__icontains=said) | Q(experiment__project__name__icontains=said)
        visible = visible.filter(named | Q(pk__in=numbers([said])))
    return list(visible.select_related("experiment__project", "submitted_by").order_by("-submitted_at", "-id")[:MOST_FOUND])


def metric_names(runs: Iterable[TrainingRun]) -> list[str]:
    """ "train loss" and others that any of the runs has, those first that most look at."""
    found = MetricSeries.objects.filter(run__in=runs).order_by("group", "name").values_list("group", "name").distinct()[:MOST_NAMES]
    names = [f"{group} {name}" for group, name in found]
    return [*(name for name in FIRST if name in names), *(name for name in names if name not in FIRST)]


def table(runs: list[TrainingRun], *, now: dt.datetime) -> list[Row]:
    """Metrics first, then what was asked for, what it computed with and what it took."""
    facts = facts_of(runs)
    return [*_metrics(runs), *_argument_rows(runs, facts), *_logged(runs, facts), *_setup(runs, facts), *_facts(runs, now)]


def against(rows: list[Row], baseline: int) -> list[Row]:
    """The rows with what each run has more or less than the run at this place, where they hold numbers."""
    return [replace(row, deltas=_deltas(row.values, baseline)) if row.kind in ("metric", "duration", "number") else row for row in rows]


def _deltas(values: list[object], baseline: int) -> list[float | None]:
    numbers = [value.total_seconds() if isinstance(value, dt.timedelta) else _number(value) for value in values]
    base = numbers[baseline]
    if not base:  # unknown, or zero, of which nothing is a part
        return [None] * len(values)
    return [None if number is None or number == base else 100 * (number - base) / abs(base) for number in numbers]


def parallel(rows: list[Row]) -> list[Axis]:
    """What the runs were told that differs between them, then what came of it: their metrics. From the rows of `table`, as far as one of
    the runs has something to stand there."""
    told = [_axis(row) for row in rows if row.kind in ("argument", "number") and row.differs and row.name != STEPS]
    came = [_axis(row) for row in rows if row.kind == "metric"]
    came.sort(key=lambda axis: not axis.name.startswith("test "))
    axes = [*told[: MOST_AXES // 2], *came[: MOST_AXES - min(len(told), MOST_AXES // 2)]]
    return [axis for axis in axes if any(value is not None for value in axis.values)]


def _axis(row: Row) -> Axis:
    numbers = [_number(value) for value in row.values]
    if all(number is not None or value is None for number, value in zip(numbers, row.values, strict=True)):
        return Axis(row.name, "number", list(numbers))
    return Axis(row.name, "text", [None if value is None else str(value)[:60] for value in row.values])


def _number(value: object) -> float | None:
    """A finite number, also one that is written as text."""
    try:
        found = float(str(value))
    except ValueError:
        return None
    return found if math.isfinite(found) else None


def _argument_rows(runs: list[TrainingRun], facts: Mapping[int, LoggedFacts]) -> list[Row]:
    """A row for each argument that any of them has, given or by default."""
    given = [{each.name: each.value for each in effective(run, facts.get(run.pk))} for run in runs]
    names = dict.fromkeys(name for each in given for name in each)
    return [_row(name, "argument", [each.get(name) for each in given]) for name in list(names)[:MOST_ARGUMENTS]]


def _logged(runs: list[TrainingRun], facts: Mapping[int, LoggedFacts]) -> list[Row]:
    """A row for each parameter that any of their scripts has logged."""
    given = {run: each.parameters for run, each in facts.items()}
    names = dict.fromkeys(name for each in given.values() for name in each)
    values = {name: [given.get(run.pk, {}).get(name, "")[:SHOWN] or None for run in runs] for name in list(names)[:MOST_ARGUMENTS]}
    return [_row(name, "argument", each) for name, each in values.items()]


def _setup(runs: list[TrainingRun], facts: Mapping[int, LoggedFacts]) -> list[Row]:
    """Seed and code of each, and the packages in which they differ."""
    known = [facts.get(run.pk) for run in runs]
    packages = [each.packages if each is not None else {} for each in known]
    names = sorted({name for each in packages for name in each})
    rows = [_row(name, "text", [each.get(name) for each in packages]) for name in names]
    return [
        _row("Seed", "text", [None if each is None or each.seed is None else str(each.seed) for each in known]),
        _row("Code", "text", [None if run.outside else run.version.bundle.sha256[:SHORT_HASH] for run in runs]),
        _row("Git commit", "text", [run.version.git_commit[:SHORT_HASH] or None for run in runs]),
        _row("Packages", "text", [None if run.outside else run.version.packages_words for run in runs]),
        _row("Requirements", "text", [run.version.requirements_key[:SHORT_HASH] or None for run in runs]),
        _row("Python", "text", [each.python or None if each is not None else None for each in known]),
        *[row for row in rows if row.differs][:MOST_ARGUMENTS],
    ]


def _metrics(runs: list[TrainingRun]) -> list[Row]:
    last: dict[str, dict[int, float | None]] = {}
    for series in MetricSeries.objects.filter(run__in=runs).order_by("group", "name")[:2000]:
        last.setdefault(f"{series.group} {series.name}", {})[series.run_id] = series.last_value
    return [_row(name, "metric", [values.get(run.pk) for run in runs]) for name, values in last.items()]


def _facts(runs: list[TrainingRun], now: dt.datetime) -> list[Row]:
    held_s = accounting.slot_seconds_of(runs, now=now)
    facts: list[tuple[str, str, Callable[[TrainingRun], object]]] = [
        ("Project", "text", lambda run: run.experiment.project.name),
        ("Experiment", "text", lambda run: run.experiment.name),
        ("Training definition", "text", lambda run: str(run.version)),
        ("Execution command", "text", lambda run: run.command),
        ("Source files folder", "text", lambda run: run.data_folder),
        ("Submitter", "text", lambda run: run.submitted_by.username),
        (STEPS, "number", lambda run: run.step),
        ("Epochs", "number", lambda run: run.epochs),
        ("Global batch", "number", lambda run: run.global_batch()),
        ("Engines", "number", lambda run: run.engines),
        ("Maximum slots", "number", lambda run: run.max_slots),
        ("Priority", "number", lambda run: run.priority),
        ("Duration", "duration", lambda run: run.duration(now)),
        ("Slot-hours", "duration", lambda run: dt.timedelta(seconds=held_s[run.pk])),
    ]
    return [_row(name, kind, [fact(run) for run in runs]) for name, kind, fact in facts]


def _row(name: str, kind: str, values: list[object]) -> Row:
    return Row(name, kind, values, differs=len({str(value) for value in values}) > 1)
