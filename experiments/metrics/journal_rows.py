"""What journal lines mean as rows: pure, from parsed lines to what is to be stored. Knows no database.

Every text and number is bounded here, because the process that wrote the lines also ran user code.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from training_runtime.journal import (
    Checkpoint,
    Died,
    Digest,
    Exactness,
    Failed,
    Finished,
    Generation,
    Line,
    Logged,
    Media,
    Noted,
    Progress,
    Resumed,
    Setup,
    Started,
    Suspended,
    Test,
    Train,
    Trained,
    Warned,
)

NAME_LIMIT = 200
TEXT_LIMIT = 4000
TRACEBACK_LIMIT = 64_000
METRICS_PER_LINE = 1000
MEMBERS_LIMIT = 4096
REASONS_LIMIT = 20
NOTED_NAME_LIMIT = 330  # of the name of a run within the run, and of MLflow's own limit
NOTED_LIMIT = 6000
PYTHON_LIMIT = 40
MOST_NOTED = 1000  # parameters, and tags
INT32 = 2**31 - 1
INT64 = 2**63 - 1
RATE_STEPS = 50  # the recent rate is over so many steps
YEAR_3000 = 32503680000.0


@dataclass(slots=True)
class NewPoint:
    """One value of one curve."""

    group: Literal["train", "test"]
    name: str
    step: int
    seq: int
    epoch: int
    t: float
    value: float | None
    workers: int


@dataclass
class Rows:
    """What is to be stored of some lines. `seq` is that of the last one; `refused` counts lines of another run or out of order.

    `last_word`: whether the latest of steps and suspensions among them was a step. `first_step_at`: when the first step here was done.
    `logged_step`: the highest under which the script has logged figures of its own.
    """

    seq: int
    lines: int = 0
    steps: int = 0
    refused: int = 0
    points: list[NewPoint] = field(default_factory=list)
    generations: list[dict[str, Any]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    progress: dict[str, Any] = field(default_factory=dict)
    last_word: Literal["step", "suspended"] | None = None
    suspended_reason: str = ""
    first_step_at: dt.datetime | None = None
    logged_step: int | None = None
    step_times: list[float] = field(default_factory=list)
    redone_to: int = 0
    noted: list[Noted] = field(default_factory=list)
    setups: list[Setup] = field(default_factory=list)
    seed: int | None = None  # that train() was told
    digests: dict[int, tuple[int, str]] = field(default_factory=dict)  # by epoch: after which step, and the digest; the first counts
    other_digests: list[int] = field(default_factory=list)  # epochs whose state was said twice, and was another one
    deaths: list[tuple[int, dt.datetime]] = field(default_factory=list)  # of workers: on which slot, when
    media: bool = False  # there is something new to look at
    left_out: Counter[str] = field(default_factory=Counter)


def understand(run_id: int, lines: Iterable[Line], *, after: int, step: int = 0, redone_to: int = 0) -> Rows:
    """The rows of the lines after sequence number `after`. A number that was seen already, or one of another run, is refused.

    A gap is taken as it is: the lines in it did not parse, and what they held is lost, but not what follows. `step`: the last one before
    these lines. An attempt begins with the last checkpoint: steps up to `redone_to` may come again.
    """
    rows = Rows(seq=after, redone_to=redone_to)
    for line in lines:
        if line.run != run_id or not rows.seq < line.seq <= INT64 or not 0 <= line.t < YEAR_3000:
            rows.refused += 1
            continue
        rows.seq = line.seq
        rows.lines += 1
        if isinstance(line.event, Started | Resumed | Generation):
            rows.redone_to = max(rows.redone_to, step, rows.progress.get("step", 0))
        _add_line(line, rows)
    if rows.step_times:
        recent = rows.step_times[-RATE_STEPS:]
        rows.progress["step_rate"] = len(recent) / sum(recent)
    return rows


def _add_line(line: Line, rows: Rows) -> None:
    """What is measured, and how far the run is. All else is an event of its own."""
    event = line.event
    match event:
        case Train():
            _train(line, event, rows)
        case Test():
            rows.left_out["metrics"] += max(0, len(event.metrics) - METRICS_PER_LINE)
            rows.points += _points(line, "test", event.step, event.epoch, event.metrics, workers=0)
        case Logged():
            rows.left_out["metrics"] += max(0, len(event.metrics) - METRICS_PER_LINE)
            rows.logged_step = max(rows.logged_step or 0, _whole(event.step, INT64))
            rows.points += _points(line, event.group, event.step, 0, event.metrics, workers=0)
        case Progress():
            _progress(event, rows)
        case Noted():
            rows.noted.append(cleaned(event))
        case Setup():
            rows.setups.append(event)
        case Media():
            rows.media = True
        case Digest():
            _digest(event, rows)
        case Died():
            rows.deaths.append((_whole(event.slot, INT64), dt.datetime.fromtimestamp(line.t, dt.UTC)))
        case Generation():
            rows.generations.append(_generation(line, event))
            rows.progress["workers"] = min(len(event.members), INT32)
        case _:
            _take_event(line, rows)


def _take_event(line: Line, rows: Rows) -> None:
    """What people read in the run's history."""
    event = line.event
    match event:
        case Started():
            _started(event, rows)
            rows.seed = _seed(event.seed)
            text = f"Attempt {event.attempt}: {event.epochs} epochs of {event.steps_per_epoch} steps, {event.engines} engines."
            _event(line, rows, text, engines=event.engines, seed=event.seed, state_bytes=event.state_bytes, samples=event.samples)
        case Checkpoint():
            what = f"the model files of step {event.step}" if event.role == "model" else f"the state of step {event.step}, to resume from"
            paths = [_text(path, TEXT_LIMIT) for path in event.paths[:100]]
            said = {"role": event.role, "epoch": _whole(event.epoch, INT32), "paths": paths, "size_bytes": event.size_bytes}
            _event(line, rows, f"Wrote {what}.", **said)
        case Suspended():
            rows.last_word, rows.suspended_reason = "suspended", _text(event.reason, TEXT_LIMIT)
            rows.progress["workers"] = 0
            _event(line, rows, f"Suspended after step {event.step}: {event.reason}", step=event.step)
        case Resumed():
            _event(line, rows, f"Goes on after step {event.step}: {event.reason}", step=event.step)
        case Exactness():
            reasons = [_text(reason, TEXT_LIMIT) for reason in event.reasons[:REASONS_LIMIT]]
            rows.progress |= {"exact": not reasons, "exact_checked": event.checked, "exact_reasons": reasons}
            _event(line, rows, f"Exactness is not promised, because: {'; '.join(reasons)}." if reasons else "Exact, as far as was seen.")
        case Warned():
            _event(line, rows, event.message)
        case Failed():
            rows.progress |= {"error_message": _text(event.message, TEXT_LIMIT), "error_traceback": _text(event.traceback, TRACEBACK_LIMIT)}
            _event(line, rows, event.message, where=_text(event.where, NAME_LIMIT))
        case Trained():
            rows.progress |= {"outcome": event.kind, "workers": 0}
            _event(line, rows, f"Trained to the end, step {event.step}. What follows needs no slot.", step=event.step)
        case Finished():
            rows.progress |= {"outcome": event.outcome, "workers": 0, "final_metrics": _finals(event.metrics)}
            after = f" after step {event.step}" if event.step else ""  # a script may have none
            _event(line, rows, f"{event.outcome.capitalize()}{after}.", outcome=event.outcome)


def _train(line: Line, event: Train, rows: Rows) -> None:
    at = dt.datetime.fromtimestamp(line.t, dt.UTC)
    rows.steps += 1
    rows.left_out["metrics"] += max(0, len(event.metrics) - METRICS_PER_LINE)
    rows.last_word = "step"
    rows.first_step_at = rows.first_step_at or at
    rows.progress |= {
        "step": _whole(event.step, INT64),
        "epoch": _whole(event.epoch, INT32),
        "workers": _whole(event.workers, INT32),
        "last_step_at": at,
    }
    if math.isfinite(event.step_s) and event.step_s > 1e-9:
        rows.step_times.append(event.step_s)
    rows.points += _points(line, "train", event.step, event.epoch, event.metrics, workers=event.workers)


def _digest(event: Digest, rows: Rows) -> None:
    if not re.fullmatch("[0-9a-f]{16}", event.digest):
        rows.refused += 1
        return
    epoch = _whole(event.epoch, INT32)
    step, digest = rows.digests.setdefault(epoch, (_whole(event.step, INT64), event.digest))
    if (step, digest) != (_whole(event.step, INT64), event.digest):
        rows.other_digests.append(epoch)


def _progress(event: Progress, rows: Rows) -> None:
    """What its own progress bar says; a run that comes to its end keeps the last one, unless it was told that there is none any more."""
    if event.total == event.done == 0:
        rows.progress |= {"bar_done": None, "bar_total": None, "bar_left_s": None, "bar_label": "", "bar_is_whole": False}
        return
    if not (math.isfinite(event.done) and math.isfinite(event.total) and 0 <= event.done <= event.total and event.total > 0):
        rows.refused += 1
        return
    left_s = event.left_s if event.left_s is not None and math.isfinite(event.left_s) and event.left_s >= 0 else None
    rows.progress |= {
        "bar_done": event.done,
        "bar_total": event.total,
        "bar_left_s": left_s,
        "bar_label": _text(event.label, NAME_LIMIT),
        "bar_is_whole": event.is_whole,
    }


def _points(
    line: Line, group: Literal["train", "test"], step: int, epoch: int, metrics: Mapping[str, float], *, workers: int
) -> list[NewPoint]:
    step, epoch, workers = _whole(step, INT64), _whole(epoch, INT32), _whole(workers, INT32)
    names = list(metrics)[:METRICS_PER_LINE]
    return [NewPoint(group, _metric(name), step, line.seq, epoch, line.t, _number(metrics[name]), workers) for name in names]


def cleaned(event: Noted) -> Noted:
    dropped = tuple(_text(name, NOTED_NAME_LIMIT) for name in event.dropped[:MOST_NOTED])
    return Noted(_named_texts(event.parameters), _named_texts(event.tags), dropped)


def _named_texts(values: Mapping[str, str]) -> dict[str, str]:
    return {_text(name, NOTED_NAME_LIMIT): _text(values[name], NOTED_LIMIT) for name in list(values)[:MOST_NOTED]}


def together(parameters: dict[str, str], tags: dict[str, str], noted: Iterable[Noted]) -> tuple[dict[str, str], dict[str, str], int]:
    """What is known and what has been said since; and how many of each there were too many."""
    parameters, tags, too_many = dict(parameters), dict(tags), 0
    for each in noted:
        each.apply(parameters, tags)
        for values in (parameters, tags):
            for name in list(values)[MOST_NOTED:]:
                del values[name]
                too_many += 1
    return parameters, tags, too_many


def set_up(arguments: dict[str, str], packages: dict[str, str], setups: Iterable[Setup]) -> tuple[dict[str, str], dict[str, str]]:
    """What is known of the script's process, and what has been said since."""
    for each in setups:
        arguments, packages = arguments | _named_texts(each.arguments), packages | _named_texts(each.packages)
    return dict(list(arguments.items())[:MOST_NOTED]), dict(list(packages.items())[:MOST_NOTED])


def seed_of(rows: Rows, *, before: int | None) -> int | None:
    """What train() was told, as far as is known by now; what the process began with only where nothing is known."""
    if rows.seed is not None:
        return rows.seed
    return _seed(rows.setups[-1].seed) if rows.setups and before is None else before


def version_of_python(rows: Rows) -> str:
    return _text(rows.setups[-1].python, PYTHON_LIMIT) if rows.setups else ""


def _seed(seed: int) -> int | None:
    return seed if -INT64 <= seed <= INT64 else None


def _started(event: Started, rows: Rows) -> None:
    rows.progress |= {
        "engines": max(1, _whole(event.engines, INT32)),
        "batch_size": _whole(event.batch_size, INT32),
        "epochs": _whole(event.epochs, INT32),
        "steps_per_epoch": _whole(event.steps_per_epoch, INT32),
        "parameters": _whole(event.parameters, INT64),
    }


def _generation(line: Line, event: Generation) -> dict[str, Any]:
    members = sorted(event.members[:MEMBERS_LIMIT], key=lambda member: member.rank)
    return {
        "seq": line.seq,
        "generation": _whole(event.generation, INT32),
        "at": dt.datetime.fromtimestamp(line.t, dt.UTC),
        "step": _whole(event.step, INT64),
        "epoch": _whole(event.epoch, INT32),
        "workers": len(members),
        "workers_before": _whole(event.workers_before, INT32),
        "slots": [_whole(member.slot, INT64) for member in members],
        "reason": _text(event.reason, TEXT_LIMIT),
        "pause_ms": event.pause_ms if math.isfinite(event.pause_ms) else 0.0,
        "redone": _whole(event.redone, INT32),
    }


def _event(line: Line, rows: Rows, message: str, **detail: object) -> None:
    at = dt.datetime.fromtimestamp(line.t, dt.UTC)
    rows.events.append({"seq": line.seq, "at": at, "kind": line.event.kind, "message": _text(message, TEXT_LIMIT), "detail": detail})


def _finals(metrics: Mapping[str, float]) -> dict[str, float | None]:
    return {_metric(name): _number(metrics[name]) for name in list(metrics)[:METRICS_PER_LINE]}


def _text(text: str, limit: int) -> str:
    """Without what no database takes (NUL, lone surrogates), and not longer than `limit`."""
    return text[:limit].replace("\0", "").encode(errors="replace").decode()


def _metric(name: str) -> str:
    """A name that is too long is cut so that it still differs from another one that begins like it."""
    clean = _text(name, len(name))
    return clean if len(clean) <= NAME_LIMIT else f"{clean[: NAME_LIMIT - 13]}... {hashlib.sha256(clean.encode()).hexdigest()[:9]}"


def _number(value: float) -> float | None:
    """SQLite stores no NaN, and JSON knows neither NaN nor infinity: pages are given nothing instead."""
    return value if math.isfinite(value) else None


def _whole(value: int, most: int) -> int:
    return min(max(value, 0), most)
