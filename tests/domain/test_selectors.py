"""Reads for pages: tables, lanes, the feed, curves, accounting."""

from __future__ import annotations

import datetime as dt

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from experiments import selectors, services
from experiments.cluster import accounting, scheduling
from experiments.metrics import curve_points, ingest
from experiments.metrics.journal_rows import NewPoint, Rows
from experiments.models import Grant, MetricRollup, Node, Project, RunState, TrainingRun, User
from experiments.selectors import JobFilter, RunFilter, timeline
from tests import cast
from training_runtime.journal import Generation, Member, Test

pytestmark = pytest.mark.django_db
NOW, SECOND = dt.datetime(2026, 11, 20, 12, 0, tzinfo=dt.UTC), dt.timedelta(seconds=1)


@pytest.fixture
def node(db: None) -> Node:
    return cast.node(now=NOW)


@pytest.fixture
def run(project: Project, alice: User, node: Node) -> TrainingRun:
    made = cast.run(project, by=alice, name="digits", now=NOW)
    scheduling.tick(NOW)
    made.refresh_from_db()
    return made


def test_the_jobs_table_shows_what_each_run_holds(run: TrainingRun, project: Project, bob: User) -> None:
    waiting = cast.run(project, by=bob, name="bobs net", now=NOW + SECOND)
    rows, total = selectors.jobs(JobFilter(), now=NOW)
    held = [(r.run.pk, r.submitter, r.cpu_slots, r.gpu_slots, r.duration) for r in rows]
    assert held == [(waiting.pk, "bob", 0, 0, None), (run.pk, "alice", 4, 0, None)]
    assert total == 2


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (JobFilter(name="DIG"), ["digits"]),
        (JobFilter(name="bob"), ["bobs net"]),
        (JobFilter(name="nothing"), []),
        (JobFilter(name="%"), []),
        (JobFilter(state="queued"), ["bobs net"]),
        (JobFilter(state="live"), ["bobs net", "digits"]),
        (JobFilter(state="ended"), []),
        (JobFilter(state="nonsense"), []),
        (JobFilter(limit=1), ["bobs net"]),
        (JobFilter(limit=1, offset=1), ["digits"]),
        (JobFilter(name="9" * 18), []),
        (JobFilter(name="9" * 400), []),
        (JobFilter(name="\0"), ["bobs net", "digits"]),
    ],
)
def test_the_jobs_table_is_filtered(run: TrainingRun, project: Project, bob: User, wanted: JobFilter, names: list[str]) -> None:
    cast.run(project, by=bob, name="bobs net", now=NOW + SECOND)
    assert [row.run.name for row in selectors.jobs(wanted, now=NOW)[0]] == names
    assert [row.run.pk for row in selectors.jobs(JobFilter(name=f"#{run.pk}"), now=NOW)[0]] == [run.pk]


def test_a_page_of_jobs_takes_the_same_queries_for_one_and_for_many(
    project: Project, alice: User, node: Node, django_assert_max_num_queries: object
) -> None:
    for number in range(12):
        cast.run(project, by=alice, name=f"run {number}", now=NOW)
    scheduling.tick(NOW)
    with django_assert_max_num_queries(4):  # type: ignore[operator]
        rows, _ = selectors.jobs(JobFilter(), now=NOW)
        assert len([(r.run.experiment.project_id, r.run.version.device) for r in rows]) == 12


def test_an_experiments_tables_have_its_metrics_as_columns(run: TrainingRun) -> None:
    cast.write_journal(run, cast.started(), cast.step(1, loss=0.5), Test(step=1, epoch=1, metrics={"accuracy": 0.9}, samples=1))
    ingest.catch_up(run.pk, now=NOW)
    services.run_experiment(run.experiment, by=run.submitted_by)
    done = services.run_experiment(run.experiment, by=run.submitted_by)[0]
    services.stop_run(done, by=run.submitted_by)
    tables = selectors.experiment_tables(run.experiment)
    assert tables.columns == ["test accuracy", "train loss"]
    assert [(row.run.pk, row.slots, row.metrics) for row in tables.in_progress.rows] == [(run.pk, 4, [0.9, 0.5])]
    assert [(row.slots, row.metrics) for row in tables.queued.rows] == [(0, [None, None])]
    assert [row.run.pk for row in tables.completed.rows] == [done.pk]


def test_a_page_of_an_experiments_runs_reads_no_more_than_it_shows(run: TrainingRun, django_assert_max_num_queries: object) -> None:
    shared = {"experiment": run.experiment, "version": run.version, "submitted_by": run.submitted_by, "submitted_at": NOW}
    span = {"started_at": NOW - 60 * SECOND, "ended_at": NOW}
    ended = [TrainingRun(name=f"old {n:02}", state=RunState.COMPLETED, step=n, command="main.py", **shared, **span) for n in range(50)]
    TrainingRun.objects.bulk_create(ended)
    wanted = RunFilter(sort="step", descending=True, offset=10, most_ended=5, most_queued=0)
    with django_assert_max_num_queries(9), CaptureQueriesContext(connection) as asked:  # type: ignore[operator]
        tables = selectors.experiment_tables(run.experiment, wanted, now=NOW)
        assert [row.run.step for row in tables.completed.rows] == [39, 38, 37, 36, 35]
        assert {row.run.submitted_by.username for row in tables.completed.rows} == {"alice"}
    assert sum('"plan_reason"' in query["sql"] for query in asked) == 1, "whole rows are read once, for those that are shown"
    assert (tables.completed.total, tables.in_progress.total, tables.found, tables.total) == (50, 1, 51, 51)
    assert tables.running_time == 50 * 60 * SECOND
    found = selectors.experiment_tables(run.experiment, RunFilter(query="OLD 1", most_ended=3), now=NOW)
    assert (len(found.completed.rows), found.completed.total, found.found, found.total) == (3, 10, 10, 51)


def test_lanes_show_who_held_which_slot(run: TrainingRun, node: Node) -> None:
    begin, end = NOW - 60 * SECOND, NOW + 10 * SECOND
    lanes = selectors.lanes(begin=begin, end=end)
    assert [lane.state for lane in lanes] == ["held"] * 4
    bar = lanes[0].bars[0]
    assert (bar.run, bar.name, bar.person, bar.begin, bar.end, bar.leaving) == (run.pk, "digits", "alice", NOW, None, False)
    Grant.objects.filter(slot=lanes[0].slot).update(released_at=NOW + 10 * SECOND)
    Grant.objects.filter(slot=lanes[1].slot).update(release_requested_at=NOW)
    after = selectors.lanes(begin=NOW + 5 * SECOND, end=NOW + 10 * SECOND)
    assert [lane.state for lane in after] == ["free", "leaving", "held", "held"]
    assert (after[0].bars[0].begin, after[0].bars[0].end) == (NOW + 5 * SECOND, NOW + 10 * SECOND)
    assert selectors.lanes(begin=NOW + 11 * SECOND, end=NOW + 12 * SECOND)[0].bars == []
    later = selectors.lanes(begin=NOW, end=NOW + 60 * SECOND)
    assert {(lane.state, lane.silent_since) for lane in later} == {("silent", NOW)}, "what a lost node holds, nobody knows"
    assert [lane.is_held() for lane in later] == [False, True, True, True]
    node.last_seen_at = NOW + 70 * SECOND
    node.save()
    assert [lane.state for lane in selectors.lanes(begin=NOW, end=NOW + 70 * SECOND)] == ["free", "stuck", "held", "held"]


def test_a_slot_that_is_held_is_shown_as_held_whatever_else_happened(run: TrainingRun, node: Node) -> None:
    """More grants have ended in the window than are drawn, and all of them are younger than the one that is open."""
    other = Grant.objects.filter(run=run).order_by("slot").last()
    assert other is not None
    Grant.objects.filter(pk=other.pk).update(released_at=NOW + SECOND)
    times = [NOW + (2 + number / 1000) * SECOND for number in range(timeline.MOST_BARS + 1)]
    Grant.objects.bulk_create(Grant(run=run, slot=other.slot, granted_at=at, released_at=at, reason="a moment") for at in times)
    found = selectors.lanes(begin=NOW - SECOND, end=NOW + 10 * SECOND)
    assert [lane.state for lane in found] == ["held"] * 3 + ["free"]
    assert [len(lane.bars) for lane in found] == [1, 1, 1, timeline.MOST_BARS]
    assert all(lane.is_held() for lane in found[:3])
    assert found[3].bars[-1].begin == times[-1], "the newest are drawn"


def test_the_feed_tells_what_happened_in_words(run: TrainingRun, project: Project, alice: User) -> None:
    members = tuple(Member(rank, rank + 1, 9) for rank in range(2))
    cast.write_journal(run, cast.step(1), Generation(2, 812, 1, members, 4, "bob's run started.", 23.4, 0), t=NOW.timestamp() + 60)
    ingest.catch_up(run.pk, now=NOW + 65 * SECOND)
    services.set_priority(run, by=alice, priority=4000, now=NOW + 70 * SECOND)
    texts = [item.text for item in selectors.feed()]
    assert texts[0] == "alice's run digits: alice changed the priority from 5000 to 4000."
    assert "alice's run digits: 4 → 2 workers at step 812: bob's run started; 23 ms pause, 0 steps redone." in texts
    assert "alice's run digits starts: Granted 4 slots." in texts
    assert texts[-1] == "alice submitted digits."
    assert [item.text for item in selectors.feed(run=run)] == texts
    assert [item.text for item in selectors.feed(project=project, limit=2)] == texts[:2]
    elsewhere = services.create_project(by=alice, name="other")
    assert selectors.feed(project=elsewhere) == []


def many_points(run: TrainingRun, count: int) -> None:
    """A curve with a spike down at step 500 and one up at 1500, stored as ingest does it, some at a time."""
    value = {500: -10.0, 1500: 10.0}
    for begin in range(1, count + 1, 777):
        steps = range(begin, min(begin + 777, count + 1))
        new = [NewPoint("train", "loss", step, step, 1, 1e9 + step / 10, value.get(step, 1.0), 4) for step in steps]
        curve_points.store_points(run, Rows(seq=0, points=new))
    run.cursor.seq = count
    run.cursor.save()


@pytest.mark.parametrize("x", ["step", "time"])
@pytest.mark.parametrize("count", [3000, 20_000])
def test_a_long_curve_is_down_sampled_and_keeps_its_spikes_and_ends(run: TrainingRun, x: str, count: int) -> None:
    many_points(run, count)
    seq, (curve,) = selectors.series(run, max_points=200, x=x)  # type: ignore[arg-type]
    assert (seq, curve.total, curve.sampled) == (count, count, True)
    assert 100 <= len(curve.steps) <= 206
    assert len(curve.steps) == len(curve.times) == len(curve.values)
    assert curve.steps == sorted(set(curve.steps))
    assert (curve.steps[0], curve.steps[-1]) == (1, count)
    values = dict(zip(curve.steps, curve.values, strict=True))
    assert (values[500], values[1500]) == (-10.0, 10.0)


def test_a_long_curve_ends_at_the_journal_line_it_says(run: TrainingRun) -> None:
    many_points(run, 20_000)
    run.cursor.seq = 19_990  # ten lines more are stored between the two reads
    run.cursor.save()
    seq, (curve,) = selectors.series(run, max_points=200)
    assert (seq, curve.steps[-1]) == (19_990, 19_990)


def test_stretches_hold_the_least_and_the_greatest_also_across_batches(run: TrainingRun) -> None:
    for begin, values in ((1, [3.0, None, 1.0]), (4, [2.0, 9.0]), (6, [None])):
        new = [NewPoint("train", "loss", begin + n, begin + n, 1, 1e9, value, 4) for n, value in enumerate(values)]
        curve_points.store_points(run, Rows(seq=0, points=new))
    (one,) = MetricRollup.objects.values_list("index", "least", "least_step", "greatest", "greatest_step")
    assert one == (0, 1.0, 3, 9.0, 5)
    curve_points.store_points(
        run, Rows(seq=0, points=[NewPoint("train", "loss", 64, 64, 1, 1e9, None, 4), NewPoint("train", "loss", 65, 65, 1, 1e9, 4.0, 4)])
    )
    assert MetricRollup.objects.get(index=1).greatest == 4.0


@pytest.mark.parametrize("most", [20, 4000])
def test_a_stretch_of_a_long_curve_is_drawn_from_its_own_points(run: TrainingRun, most: int) -> None:
    count = 20 * 64 * 4
    events = (cast.step(step, loss=9.0 if step == 3000 else step / count) for step in range(1, count + 1))
    cast.write_journal(run, cast.started(), *events)
    ingest.catch_up(run.pk, now=NOW)
    curve = selectors.series(run, max_points=most, steps=(2990, 3020))[1][0]
    assert (curve.steps[0], curve.steps[-1], max(v for v in curve.values if v is not None)) == (2990, 3020, 9.0)
    assert curve.sampled is (most == 20)
    assert len(curve.steps) == 31 or curve.sampled
    assert curve.total == count
    wide = selectors.series(run, max_points=most, steps=(130, count - 130))[1][0].steps
    assert 130 <= wide[0] <= wide[-1] <= count - 130
    assert wide == sorted(set(wide))
    beyond = selectors.series(run, max_points=most, steps=(count + 10, count + 20))[1][0]
    assert beyond.steps == []


def test_a_short_curve_is_whole_and_holes_stay_holes(run: TrainingRun) -> None:
    cast.write_journal(run, *[cast.step(n, loss=float("nan") if n == 3 else float(n)) for n in range(1, 6)])
    ingest.catch_up(run.pk, now=NOW)
    _, (curve,) = selectors.series(run)
    assert (curve.steps, curve.values, curve.sampled) == ([1, 2, 3, 4, 5], [1.0, 2.0, None, 4.0, 5.0], False)


def test_a_run_without_points_has_no_curves(run: TrainingRun) -> None:
    assert selectors.series(run) == (0, [])
    assert selectors.points_after(run, seq=0).points == []


def test_slot_seconds_are_those_of_the_grants(run: TrainingRun, project: Project) -> None:
    Grant.objects.filter(slot__index__lt=2).update(released_at=NOW + 10 * SECOND)
    assert accounting.slot_seconds(run, now=NOW + 30 * SECOND) == 2 * 10 + 2 * 30
    window = {"begin": NOW + 5 * SECOND, "end": NOW + 15 * SECOND}
    (mine,) = accounting.by_person(**window)
    assert (mine.key, mine.cpu_slot_s, mine.gpu_slot_s, mine.slot_s, mine.runs) == ("alice", 30.0, 0.0, 30.0, 1)
    assert [u.key for u in accounting.by_project(**window)] == [str(project.pk)]
    assert [u.name for u in accounting.by_run(**window)] == ["digits"]
    assert accounting.by_run(begin=NOW - 9 * SECOND, end=NOW) == []


def test_slots_and_generations_of_a_run(run: TrainingRun, node: Node) -> None:
    assert [slot.pk for slot in selectors.run_slots(run)] == cast.slot_ids(node)
    members = tuple(Member(rank, rank + 1, 9) for rank in range(2))
    cast.write_journal(run, Generation(1, 0, 1, members, 0, "start", 0.0, 0), Generation(2, 5, 1, members[:1], 2, "shrink", 9.0, 0))
    ingest.catch_up(run.pk, now=NOW)
    assert [g.generation for g in selectors.generations(run)] == [2, 1]
    assert run.state == RunState.STARTING
