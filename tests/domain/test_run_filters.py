"""Filters of the table of runs: what can be written, what is refused and where, and that the database finds what a plain reading would."""

from __future__ import annotations

import datetime as dt
import math
import operator
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from experiments import run_values
from experiments.models import MetricSeries, Project, RunState, TrainingRun, User
from experiments.runtable import language
from experiments.runtable.asked import Asked
from experiments.runtable.catalogue import Catalogue, Known
from experiments.runtable.conditions import condition
from experiments.runtable.directions import better
from experiments.runtable.language import Refused, parse, quoted
from experiments.selectors import run_groups, run_table
from experiments.selectors.run_table import Scope
from tests import cast

NOW = dt.datetime(2026, 11, 24, 12, tzinfo=dt.UTC)
KNOWN = Catalogue(
    [Known("argument", "lr"), Known("argument", "batch_size"), Known("train", "loss"), Known("test", "loss"), Known("train", "grad norm")]
)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "lr < 0.1 and accuracy > 0.9",
            "lr<.1",
            r"LR = 1e-3 AND NOT (a = b OR c != 'it\'s')",
            '"train loss" <= -2.5E+3',
        ),
        *("best(accuracy) >= 0.9", 'min("test grad norm") < 3', "state in (running, failed)", "tag not in [a, b]", "loss is not set"),
        *("loss is nan", "duration > 2h", "age<7d", "submitted >= 2026-11-24", "user ~ ali", "arg.data/root = /data/x.bin", "é = ü"),
        *("seed = 007", "version = 1.2.3", "a = -1", "not not a = 1"),
    ],
)
def test_it_can_be_written(text: str) -> None:
    assert parse(text) is not None


@pytest.mark.parametrize("text", ["", "  ", "\n"])
def test_nothing_is_no_filter(text: str) -> None:
    assert parse(text) is None


@pytest.mark.parametrize(
    ("text", "begin", "said"),
    [
        ("lr <", 4, "A value is expected here"),
        ("lr 0.1", 3, "Behind the column lr comes one of = != <"),
        ("resnet", 6, 'write name ~ "resnet"'),
        ("< 1", 0, "A column's name is expected here"),
        ("lr < 0.1 lr > 1", 9, "Write and, or, or nothing more"),
        ("(lr < 0.1", 9, "A bracket is open"),
        ("lr < 0.1)", 8, "Close no more brackets than were opened"),
        ("a = 'b", 4, "The quote that begins here is not closed"),
        ("a = $b", 4, "“$” means nothing here"),
        ("a in 1", 5, "Values in brackets are expected here"),
        ("a in (1", 7, "A , or a ) is expected here"),
        ("a in ()", 6, "A value is expected here"),
        ("a is 1", 5, "Behind is comes set"),
        ("min(3) > 1", 4, "A metric's name is expected here"),
        ("min(a > 1", 6, "A ) is expected here"),
        ("a = 1 and", 9, "A column's name is expected here"),
        ("a = and", 4, "A value is expected here"),
        ("not " * 30 + "a = 1", 84, "at most 20 deep"),
        ("(" * 30, 21, "at most 20 deep"),
        (" or ".join(["a = 1"] * 60), 450, "more than 50 comparisons"),
        (f"a in ({','.join('1' * 300)})", 407, "more than 200 values"),
        ("a = 'x\0'", 6, "leave it out"),
        ("a" * 3000, 2000, "at most 2,000 are read"),
    ],
)
def test_a_refusal_points_at_the_place(text: str, begin: int, said: str) -> None:
    with pytest.raises(Refused) as refused:
        parse(text)
    assert refused.value.begin == begin, str(refused.value)
    assert said in refused.value.said


WORDS = [*"alrandornotin()[],=<", "and", "or", "not", "in", "is", "set", "nan", "min", ">=", "!~", "0.1", "2h", "'x'", '"', "lr"]


@given(st.one_of(st.text(max_size=60), st.lists(st.sampled_from(WORDS), max_size=25).map(" ".join)))
def test_any_text_is_a_filter_or_is_refused_within_it(text: str) -> None:
    try:
        parse(text)
    except Refused as refused:
        assert 0 <= refused.begin <= refused.end <= len(text) + 1
        assert refused.said


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=30))
def test_any_name_and_any_text_can_be_quoted(text: str) -> None:
    found = parse(f"{quoted(text)} = {quoted(text)}")
    assert isinstance(found, language.Compare)
    assert (found.name.text, found.value.text) == (text, text)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("lr", "arg.lr"), ("batch-size", "arg.batch_size"), ("arg.batch-size", "arg.batch_size"), ("loss", "test.loss"),
        ("train loss", "train.loss"), ("train.loss", "train.loss"), ("grad norm", "train.grad norm"), ("arg.never", "arg.never"),
        ("test.later/x", "test.later/x"), ("State", "state"), ("tags", "tag"), ("best(loss)", "best(test.loss)"),
        ("max(train.x y)", "max(train.x y)"),
    ],
)  # fmt: skip
def test_a_column_is_found_by_the_names_that_it_has(name: str, key: str) -> None:
    found = KNOWN.keyed(name)
    assert found is not None
    assert found.key == key
    again = KNOWN.keyed(found.key)
    assert again == found, "its key names it"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("los < 1", "Is loss or "),
        ("nothing_like_it < 1", "No run here has a column nothing_like_it. All are listed"),
        ('best("grad norm") > 1', 'write min("grad norm") or max("grad norm")'),
        ("loss = low", "compare it with one"),
        ("loss ~ 1", "not by ~"),
        ("name < 1", "is a text"),
        ("state = done", "There is no such state: there are live, ended, queued"),
        ("submitted > 7d", "see also age"),
        ("submitted > 2026-13-45", "is a time"),
        ("duration > long", "is a length of time"),
        ("duration in (1, 2)", "compare it by < and >"),
        ("lr is nan", "Only a metric can be nan"),
        ("tag < 1", "Tags are compared by"),
        ("lr < low", "compare it with one"),
    ],
)
def test_a_comparison_that_makes_no_sense_says_what_would(text: str, said: str) -> None:
    with pytest.raises(Refused) as refused:
        condition(text, KNOWN, now=NOW)
    assert said in refused.value.said


@pytest.mark.parametrize(
    ("name", "direction"),
    [
        ("loss", "less"), ("val/Loss", "less"), ("eval_perplexity", "less"), ("top1_error", "less"), ("accuracy", "more"),
        ("valAUC", "more"),
        ("eval/f1", "more"), ("accuracy_loss", "less"), ("lr", None), ("grad norm", None), ("", None), ("RMSE", "less"), ("mAP", "more"),
    ],
)  # fmt: skip
def test_which_is_better_is_known_by_the_name(name: str, direction: str | None) -> None:
    assert better(name) == direction


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
    plan = run_table.plan(scope, Asked(filter=text), now=NOW)
    assert plan.refused is None, (text, plan.refused)
    assert set(plan.runs().values_list("pk", flat=True)) == {run.number for run in there if holds(run)}, text


def test_the_database_finds_what_a_plain_reading_would(project: Project, alice: User, bob: User) -> None:
    _agree(made(project, alice, bob, random.Random(1)), Scope(project))


@pytest.mark.parametrize(
    ("group", "value"),
    [
        ("state", lambda run: RunState(run.state).label), ("user", lambda run: run.user), ("machine", lambda _: None),
        ("arg.opt", lambda run: run.arguments.get("opt")),
    ],
)  # fmt: skip
def test_groups_are_those_of_a_plain_reading(
    group: str, value: Callable[[Facts], str | None], project: Project, alice: User, bob: User
) -> None:
    def key(run: Facts) -> str | None:
        text = value(run)
        number = None if text is None else run_values.number_of(text)
        return text if number is None else f"{number:g}"

    there = made(project, alice, bob, random.Random(3))
    wanted: dict[str | None, list[float | None]] = {}
    for run in there:
        wanted.setdefault(key(run), []).append(run.metrics.get(("train", "loss"), (None,))[0])
    plan = run_table.plan(Scope(project), Asked(group=group, columns=("train.loss",)), now=NOW)
    found = {each.value: each for each in run_groups.every_group(plan)}
    assert {name: each.runs for name, each in found.items()} == {name: len(values) for name, values in wanted.items()}
    for name, values in wanted.items():
        finite = [value for value in values if value is not None]
        mean = sum(finite) / len(finite) if finite else None
        figures = found[name].figures[0]
        assert (figures.least, figures.greatest) == (min(finite, default=None), max(finite, default=None))
        assert figures.mean == (None if mean is None else pytest.approx(mean))
        again = run_table.plan(Scope(project), Asked(filter=found[name].filter), now=NOW)
        assert set(again.runs().values_list("pk", flat=True)) == {run.number for run in there if key(run) == name}, found[name].filter


@pytest.fixture
def ordered(project: Project, alice: User, bob: User) -> Iterator[Callable[[str, bool], list[Facts]]]:
    there = {run.number: run for run in made(project, alice, bob, random.Random(2))}

    def runs(key: str, down: bool) -> list[Facts]:
        plan = run_table.plan(Scope(project), Asked(sort=key, descending=down), now=NOW)
        assert plan.sort is not None
        return [there[number] for number in run_table.numbers(plan)]

    yield runs


@pytest.mark.parametrize("down", [False, True])
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("train.loss", lambda run: run.metrics.get(("train", "loss"), (None,))[0]),
        ("max(test.accuracy)", lambda run: run.metrics.get(("test", "accuracy"), (None, None, None))[2]),
        ("arg.lr", lambda run: run_values.number_of(run.arguments.get("lr", ""))),
        ("duration", lambda run: (run.ended or NOW) - run.began if run.began else None),
        ("step", lambda run: run.step),
    ],
)
def test_what_has_no_value_comes_last_whichever_way(key: str, value: Any, down: bool, ordered: Callable[[str, bool], list[Facts]]) -> None:
    found = [value(run) for run in ordered(key, down)]
    there = [each for each in found if each is not None]
    assert len(found) == 40
    assert found == [*sorted(there, reverse=down), *[None] * (40 - len(there))]
    assert not any(isinstance(each, float) and math.isnan(each) for each in there)
