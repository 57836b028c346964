"""The table of runs: the database finds, sorts and groups as a plain reading would."""

from __future__ import annotations

import datetime as dt
import operator
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from experiments.models import MetricSeries, Project, RunState, TrainingRun, User
from experiments.runs import run_values
from experiments.runtable.language import quoted
from experiments.runtable.table_query import TableQuery
from experiments.selectors import run_groups, run_table
from experiments.selectors.run_table import Scope
from tests import cast

NOW = dt.datetime(2026, 11, 24, 12, tzinfo=dt.UTC)


@dataclass
class Facts:
    """A run as the plain reading knows it. A metric that is None is no finite number; one that is not there has no name."""

    number: int
    state: str
    user: str
    note: str
    step: int
    began: dt.datetime | None
    ended: dt.datetime | None
    arguments: dict[str, str] = field(default_factory=dict)
    tags: list[str] = field(default_factory=list)
    metrics: dict[tuple[str, str], tuple[float | None, float | None, float | None]] = field(default_factory=dict)


TEXTS = ["0.1", "0.10", "1e-1", "3", "-2", "sgd", "adam", "Adam", "nan", "", "x%y_z", "it's"]
METRICS = [("train", "loss"), ("test", "accuracy"), ("train", "odd name/x")]


def made(project: Project, alice: User, bob: User, draw: random.Random) -> list[Facts]:
    """40 runs of two people with all kinds of values, and some that have none."""
    experiment = cast.experiment(project, by=alice)
    version, found = experiment.versions.get(), []
    for number in range(40):
        began = draw.choice([None, NOW - dt.timedelta(hours=draw.randrange(1, 50))])
        ended = began + dt.timedelta(minutes=draw.randrange(1, 60)) if began and draw.random() < 0.7 else None
        facts = Facts(0, draw.choice(RunState.values), draw.choice(["alice", "bob"]), draw.choice(TEXTS), draw.randrange(5), began, ended)
        facts.arguments = {name: draw.choice(TEXTS) for name in ("lr", "opt", "batch_size") if draw.random() < 0.8}
        facts.tags = draw.sample(["fast", "good", "x%y"], draw.randrange(3))
        for key in METRICS:
            if draw.random() < 0.8:
                last, least, most = (None if draw.random() < 0.2 else draw.choice([0.1, 0.5, -1.0, 3.0]) for _ in range(3))
                facts.metrics[key] = (last, least, most)
        run = TrainingRun.objects.create(
            experiment=experiment, version=version, name=f"r{number}", submitted_by=alice if facts.user == "alice" else bob,
            submitted_at=NOW - dt.timedelta(days=number % 9, seconds=number), state=facts.state, note=facts.note, step=facts.step,
            tags=facts.tags,
            started_at=began, ended_at=ended, command=" ".join(["main.py", *(f'"--{n}={t}"' for n, t in facts.arguments.items())]),
        )  # fmt: skip
        facts.number = run.pk
        run_values.begin([run])
        MetricSeries.objects.bulk_create(
            MetricSeries(run=run, group=group, name=name, points=1, last_value=a, least=b, greatest=c)
            for (group, name), (a, b, c) in facts.metrics.items()
        )
        run_values.keep_curves(run, facts.metrics)
        found.append(facts)
    return found


OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    **{"=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
}
Written = tuple[str, Callable[[Facts], bool]]  # a filter, and whether a run is found by it
ORDERS = st.sampled_from(list(OPERATORS))
NUMBERS = st.sampled_from([0.1, 0.5, 3.0, -1.0, -2.0, 1e300, 2.5])
SOME_TEXTS = st.sampled_from(TEXTS)


def _of_metric(key: tuple[str, str], use: int, how: str, number: float) -> Written:
    name = quoted(f"{key[0]} {key[1]}")
    return (
        f"{('last', 'min', 'max')[use]}({name}) {how} {number!r}",
        lambda run: key in run.metrics and (value := run.metrics[key][use]) is not None and OPERATORS[how](value, number),
    )


def _of_argument(name: str, how: str, number: float) -> Written:
    def found(run: Facts) -> bool:
        text = run.arguments.get(name)
        value = None if text is None else run_values.number_of(text)
        return text is not None and (how == "!=" if value is None else OPERATORS[how](value, number))

    return f"{name.replace('_', '-')} {how} {number!r}", found


def _of_text(name: str, text: str, turned: bool) -> Written:
    how = "!=" if turned else "="
    return f"arg.{name} {how} {quoted(text)}", lambda run: name in run.arguments and (run.arguments[name] == text) != turned


def _contains(text: str, turned: bool) -> Written:
    how, words = "!~" if turned else "~", text.lower()
    return f"note {how} {quoted(text)}", lambda run: (run.note != "" or not turned) and (words in run.note.lower()) != turned


def _tagged(tag: str, turned: bool) -> Written:
    return f"tag {'!=' if turned else '='} {quoted(tag)}", lambda run: (tag in run.tags) != turned


def _lasted(how: str, minutes: int) -> Written:
    def found(run: Facts) -> bool:
        return run.began is not None and OPERATORS[how]((run.ended or NOW) - run.began, dt.timedelta(minutes=minutes))

    return f"duration {how} {minutes}m", found


def _step(how: str, number: float) -> Written:
    return f"step {how} {number!r}", lambda run: OPERATORS[how](run.step, number)


PLAIN: list[Written] = [
    ("state in (running, failed)", lambda run: run.state in ("running", "failed")),
    ("state = live", lambda run: run.state not in ("completed", "failed", "stopped")),
    ("user != alice", lambda run: run.user != "alice"),
    (
        "arg.opt in (sgd, 3, 0.1)",
        lambda run: (t := run.arguments.get("opt")) == "sgd" or (t is not None and run_values.number_of(t) in (3, 0.1)),
    ),
    ("lr is not set", lambda run: "lr" not in run.arguments),
    ("tag is set", lambda run: bool(run.tags)),
    ("ended is not set", lambda run: run.ended is None),
    ('"odd name/x" is nan', lambda run: run.metrics.get(METRICS[2], (1.0,))[0] is None),
    ("accuracy is set", lambda run: run.metrics.get(METRICS[1], (None,))[0] is not None),
    ("machine = local", lambda _: False),
]
LEAVES: st.SearchStrategy[Written] = st.one_of(
    st.builds(_of_metric, st.sampled_from(METRICS), st.sampled_from([0, 1, 2]), ORDERS, NUMBERS),
    st.builds(_of_argument, st.sampled_from(["lr", "opt", "batch_size"]), ORDERS, NUMBERS),
    st.builds(_of_text, st.sampled_from(["lr", "opt"]), SOME_TEXTS, st.booleans()),
    st.builds(_contains, SOME_TEXTS.filter(bool), st.booleans()),
    st.builds(_tagged, st.sampled_from(["fast", "x%y", "none"]), st.booleans()),
    st.builds(_lasted, ORDERS, st.sampled_from([5, 30, 120])),
    st.builds(_step, ORDERS, NUMBERS),
    st.sampled_from(PLAIN),
)


def _joined(word: str, parts: list[Written]) -> Written:
    every = all if word == "and" else any
    return f"({f' {word} '.join(text for text, _ in parts)})", lambda run: every(holds(run) for _, holds in parts)


def _turned(inner: Written) -> Written:
    return f"not {inner[0]}" if inner[0].startswith("(") else f"not ({inner[0]})", lambda run: not inner[1](run)


FILTERS: st.SearchStrategy[Written] = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(_joined, st.sampled_from(["and", "or"]), st.lists(inner, min_size=2, max_size=3)), st.builds(_turned, inner)
    ),
    max_leaves=6,
)


@settings(max_examples=150, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def _agree(there: list[Facts], scope: Scope, data: st.DataObject) -> None:
    text, holds = data.draw(FILTERS)
    plan = run_table.plan(scope, TableQuery(filter=text), now=NOW)
    assert plan.refused is None, (text, plan.refused)
    assert set(plan.runs().values_list("pk", flat=True)) == {run.number for run in there if holds(run)}, text


def test_the_database_finds_what_a_plain_reading_would(project: Project, alice: User, bob: User) -> None:
    _agree(made(project, alice, bob, random.Random(1)), Scope(project))


GROUPS: dict[str, Callable[[Facts], str | None]] = {
    "state": lambda run: str(RunState(run.state).label),
    "user": lambda run: run.user,
    "machine": lambda _: None,
    "arg.opt": lambda run: run.arguments.get("opt"),
}


def test_groups_are_those_of_a_plain_reading(project: Project, alice: User, bob: User) -> None:
    there = made(project, alice, bob, random.Random(3))
    for group, value in GROUPS.items():
        _same_groups(there, Scope(project), group, value)


def _same_groups(there: list[Facts], scope: Scope, group: str, value: Callable[[Facts], str | None]) -> None:
    def key(run: Facts) -> str | None:
        text = value(run)
        number = None if text is None else run_values.number_of(text)
        return text if number is None else f"{number:g}"

    wanted: dict[str | None, list[float | None]] = {}
    for run in there:
        wanted.setdefault(key(run), []).append(run.metrics.get(("train", "loss"), (None,))[0])
    plan = run_table.plan(scope, TableQuery(group=group, columns=("train.loss",)), now=NOW)
    found = {each.value: each for each in run_groups.every_group(plan)}
    assert {name: each.runs for name, each in found.items()} == {name: len(values) for name, values in wanted.items()}
    for name, values in wanted.items():
        finite = [value for value in values if value is not None]
        mean = sum(finite) / len(finite) if finite else None
        summary = found[name].summaries[0]
        assert (summary.least, summary.greatest) == (min(finite, default=None), max(finite, default=None))
        assert summary.mean == (None if mean is None else pytest.approx(mean))
        again = run_table.plan(scope, TableQuery(filter=found[name].filter), now=NOW)
        assert set(again.runs().values_list("pk", flat=True)) == {run.number for run in there if key(run) == name}, found[name].filter


SORTS: dict[str, Callable[[Facts], Any]] = {
    "train.loss": lambda run: run.metrics.get(("train", "loss"), (None,))[0],
    "max(test.accuracy)": lambda run: run.metrics.get(("test", "accuracy"), (None, None, None))[2],
    "arg.lr": lambda run: run_values.number_of(run.arguments.get("lr", "")),
    "duration": lambda run: (run.ended or NOW) - run.began if run.began else None,
    "step": lambda run: run.step,
}


def test_what_has_no_value_comes_last_whichever_way(project: Project, alice: User, bob: User) -> None:
    there = {run.number: run for run in made(project, alice, bob, random.Random(2))}
    for key, value in SORTS.items():
        for down in (False, True):
            plan = run_table.plan(Scope(project), TableQuery(sort=key, descending=down), now=NOW)
            found = [value(there[number]) for number in run_table.numbers(plan)]
            known = [each for each in found if each is not None]
            assert found == [*sorted(known, reverse=down), *[None] * (len(there) - len(known))], (key, down)
