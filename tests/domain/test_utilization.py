"""The use of a run's slots over time: what is kept of what a machine says, how much of it, and what is read from it."""

from __future__ import annotations

import datetime as dt
import itertools
from typing import Any

import pytest

from experiments.cluster import fleet, scheduling, utilization
from experiments.models import Grant, LatestUtilization, Project, Slot, TrainingRun, User, UtilizationSample
from experiments.selectors import latest_utilization
from experiments.selectors.utilization import missing, use
from tests import cast
from tests.conftest import SentMessages
from tests.domain.conftest import NOW
from training_runtime.protocol import Observation, RunObservation, SlotSeen

pytestmark = pytest.mark.django_db


def seen(run: TrainingRun, busy_s: float | None, counted_s: float, *sizes: int, attempt: int = 1) -> RunObservation:
    slots = tuple(SlotSeen(slot, 1.0, memory_bytes=size) for slot, size in enumerate(sizes, start=1))
    return RunObservation(run.pk, attempt, "running", (1, 2), busy_s=busy_s, counted_s=counted_s, slots=slots)


def counted(run: TrainingRun, *slots: SlotSeen) -> RunObservation:
    """All together are the sum of the slots."""
    busy_s, counted_s = sum(each.busy_s or 0.0 for each in slots), sum(each.counted_s for each in slots)
    return RunObservation(run.pk, 1, "running", tuple(each.slot for each in slots), busy_s=busy_s, counted_s=counted_s, slots=slots)


def at(seconds: float) -> dt.datetime:
    return NOW + dt.timedelta(seconds=seconds)


def shares(run: TrainingRun, **given: int) -> list[float | None]:
    return [each.share if each.share is None else round(each.share, 3) for each in use(run, **given)]


def test_what_a_machine_says_becomes_points(run: TrainingRun, host: cast.Host, said: SentMessages) -> None:
    for second, busy_s in ((0, 0.0), (6, 9.0), (12, 12.0)):
        observation = Observation(host.revision, cast.facts(host.node.name), (seen(run, busy_s, 2.0 * second, 100 + second, 50),))
        fleet.record(observation, now=at(second))
    assert shares(run) == [None, 0.75, 0.25]
    assert [(each.memory, each.largest) for each in use(run)] == [(150, 100), (156, 106), (162, 112)]
    last = UtilizationSample.objects.filter(run=run)[1].tick
    assert shares(run, after=last) == [0.25], "a page asks for what it has not got"


def test_figures_go_on_although_the_clock_was_put_back(run: TrainingRun, said: SentMessages) -> None:
    slots = [SlotSeen(slot, 1.0, 1.0, 2.0) for slot in cast.slots_of(run)]
    assert utilization.renew(run, counted(run, *slots), now=at(3600))
    assert not utilization.renew(run, counted(run, *slots), now=at(3601))
    assert utilization.renew(run, counted(run, *slots), now=at(0))


def test_there_is_at_most_one_point_in_five_seconds_and_its_page_is_told(run: TrainingRun, said: SentMessages) -> None:
    kept = [
        second / 10
        for second in range(400)
        if utilization.store_sample(run, seen(run, second / 10, second / 5 + 1, 7), now=at(second / 10))
    ]
    assert len(kept) == 8
    assert min(later - before for before, later in itertools.pairwise(kept)) >= UtilizationSample.EVERY_S


def test_two_that_write_at_once_leave_one_point(run: TrainingRun) -> None:
    row = {"run": run, "tick": int(NOW.timestamp()) // 5, "t": NOW.timestamp() - 60, "counted_s": 1.0}
    UtilizationSample.objects.create(**row)  # the other one's, which was not there yet when this one looked
    utilization.store_sample(run, seen(run, 1.0, 2.0), now=NOW)
    assert UtilizationSample.objects.filter(run=run).count() == 1


def test_a_run_of_a_month_has_some_thousand_points_and_its_chart_a_few_hundred(run: TrainingRun) -> None:
    t, month_s, rows = 0.0, 30 * 86400.0, []
    while t < month_s:
        at_s = NOW.timestamp() + t
        slots = [[slot, 1.0, t * part, t, len(rows)] for slot, part in ((1, 0.25), (2, 0.75))]
        sums = {"busy_s": t, "counted_s": 2 * t, "memory_bytes": len(rows), "largest_bytes": 1}
        rows.append(UtilizationSample(run=run, tick=int(at_s // 5), t=at_s, least_share=0.25, greatest_share=0.75, slots=slots, **sums))
        t += utilization.interval_s(0.0, t)
    assert len(rows) < 5000
    UtilizationSample.objects.bulk_create(rows)
    late = at(month_s)
    assert not utilization.store_sample(run, seen(run, t, 2 * t, 1), now=late), "the points of a long run are further apart"
    found = use(run)
    assert 500 < len(found) <= 600
    assert set(shares(run)[1:]) == {0.5}, "several points together still have their exact share"
    assert found[-1].memory == len(rows) - 1
    assert len(use(run, most=20)) <= 20
    assert {(each.least_share, each.greatest_share) for each in found} == {(0.25, 0.75)}
    lines = [each.lines for each in use(run, slots=[2, 1, 77])]
    assert {tuple(line.share and round(line.share, 3) for line in each) for each in lines[1:]} == {(0.75, 0.25, None)}


def test_nothing_is_kept_of_a_machine_that_cannot_tell_nor_while_nothing_is_held(run: TrainingRun) -> None:
    assert not utilization.store_sample(run, seen(run, None, 0.0), now=at(0))
    assert utilization.store_sample(run, seen(run, 1.0, 2.0, 7), now=at(10))
    assert utilization.store_sample(run, seen(run, 3.0, 4.0), now=at(20)), "that it holds nothing any more"
    assert not utilization.store_sample(run, seen(run, 3.0, 4.0), now=at(30))
    assert utilization.store_sample(run, seen(run, 4.0, 6.0, 9), now=at(3600))
    assert shares(run) == [0.5, 1.0, None, 0.5], "the line breaks off where it held nothing"


def test_a_share_is_of_one_attempt_and_unknown_stays_unknown(run: TrainingRun) -> None:
    assert utilization.store_sample(run, seen(run, 8.0, 10.0, 7), now=at(0))
    assert utilization.store_sample(run, seen(run, 1.0, 4.0, 7, attempt=2), now=at(10))
    assert utilization.store_sample(run, seen(run, None, 8.0, 7, attempt=2), now=at(20))
    assert shares(run) == [0.8, 0.25, None]


def test_each_slot_has_its_line_and_the_extremes_are_kept_for_all(run: TrainingRun) -> None:
    for second, parts in ((0, (0.0, 0.0)), (10, (9.0, 2.0)), (20, (12.0, 11.0))):
        slots = [SlotSeen(slot, 1.0, busy, float(second), 100 * slot) for slot, busy in enumerate(parts, start=1)]
        assert utilization.store_sample(run, counted(run, *slots), now=at(second))
    points = use(run, slots=[1, 2])
    assert [(each.least_share, each.greatest_share) for each in points] == [(None, None), (0.2, 0.9), (0.3, 0.9)]
    assert [each.share for each in points] == [None, 0.55, 0.6]
    assert [tuple(line.share for line in each.lines) for each in points] == [(None, None), (0.9, 0.2), (0.3, 0.9)]
    assert {(each.memory, each.least, each.largest) for each in points} == {(300, 100, 200)}
    assert {tuple(line.memory for line in each.lines) for each in points} == {(100, 200)}
    (merged,) = use(run, most=1, slots=[2])
    assert (merged.least_share, merged.greatest_share, merged.lines[0].share) == (0.2, 0.9, 0.55)


def test_the_memory_of_a_gpu_that_slots_share_counts_once(project: Project, alice: User, db: None) -> None:
    node = cast.node("shared", slots=4, gpus=2, now=NOW)
    run = cast.run(project, by=alice, name="on GPUs", now=NOW)
    scheduling.tick(NOW)
    held = list(Slot.objects.filter(node=node).order_by("index"))
    assert cast.slots_of(run) == {slot.pk for slot in held}
    slots = [SlotSeen(slot.pk, 1.0, 1.0, 2.0, (10, 30)[slot.device_index], 100, slot.device_index) for slot in held]
    assert utilization.store_sample(run, counted(run, *slots), now=at(0))
    assert utilization.renew(run, counted(run, *slots), now=at(0))
    assert [(each.memory, each.least, each.largest) for each in use(run)] == [(40, 10, 30)]
    assert latest_utilization.of_run(run, now=at(0)).memory == 40


def test_a_worker_that_follows_another_on_a_slot_is_counted_from_its_own_beginning(run: TrainingRun) -> None:
    assert utilization.store_sample(run, counted(run, SlotSeen(1, 10.0, 8.0, 10.0, 5)), now=at(0))
    assert utilization.store_sample(run, counted(run, SlotSeen(1, 17.0, 6.0, 12.0, 5)), now=at(20)), "another one, which has more already"
    assert utilization.store_sample(run, counted(run, SlotSeen(1, 17.0, 7.0, 22.0, 5)), now=at(30))
    assert [each.lines[0].share for each in use(run, slots=[1])] == [0.8, 0.5, 0.1]
    assert [each.greatest_share for each in use(run)] == [0.8, 0.5, 0.1]


def test_where_a_slot_was_not_held_its_line_has_nothing(run: TrainingRun) -> None:
    both = [SlotSeen(slot, 1.0, 5.0, 10.0, 7) for slot in (1, 2)]
    utilization.store_sample(run, counted(run, *both), now=at(0))
    utilization.store_sample(run, counted(run, SlotSeen(1, 1.0, 10.0, 20.0, 7)), now=at(10))
    utilization.store_sample(run, counted(run, SlotSeen(1, 1.0, 15.0, 30.0, 7), SlotSeen(2, 9.0, 1.0, 4.0, 7)), now=at(20))
    assert [each.lines[0].share for each in use(run, slots=[2])] == [0.5, None, 0.25]
    assert [each.lines[0].memory for each in use(run, slots=[2])] == [7, None, 7]


def now_of(run: TrainingRun, second: float) -> list[tuple[float | None, int | None, str]]:
    """(share, memory, why it is not known) of its slots at a moment."""
    found = latest_utilization.of_run(run, now=at(second))
    return [(each.use.share and round(each.use.share, 3), each.use.memory, each.use.why) for each in found.slots]


def test_the_present_is_of_the_last_seconds_whatever_the_points_of_the_charts_are(run: TrainingRun, said: SentMessages) -> None:
    held = list(Grant.objects.filter(run=run).order_by("slot__index").values_list("slot_id", flat=True))
    for second, busy_s in ((0, 0.0), (1, 1.0), (5, 4.0), (6, 4.5), (10, 5.0)):
        slots = [SlotSeen(slot, 1.0, busy_s, float(second), 10**9, 4 * 10**9) for slot in held[:3]]
        utilization.renew(run, counted(run, *slots), now=at(second))
    assert now_of(run, 10) == [(0.2, 10**9, "")] * 3 + [(None, None, latest_utilization.NOT_YET)]
    found = latest_utilization.of_run(run, now=at(10))
    assert (round(found.share or 0, 3), found.memory, found.unknown, found.at) == (0.2, 3 * 10**9, 1, at(10))
    assert found.slots[0].use.device == 4 * 10**9
    assert LatestUtilization.objects.count() == 1
    assert now_of(run, 10 + scheduling.NODE_SILENT_S + 1) == [(None, None, latest_utilization.NO_NEWS)] * 4
    assert latest_utilization.of_run(run, now=at(60)).share is None, "what is long ago is not said to be now"


def test_a_machine_that_cannot_tell_is_said_to(run: TrainingRun) -> None:
    slots = Grant.objects.filter(run=run).values_list("slot_id", flat=True)
    utilization.renew(
        run, RunObservation(run.pk, 1, "running", tuple(slots), slots=tuple(SlotSeen(slot, 1.0) for slot in slots)), now=at(0)
    )
    assert now_of(run, 1) == [(None, None, latest_utilization.CANNOT)] * 4


def test_a_run_that_has_lost_its_slots_and_got_others_waits_for_their_figures(run: TrainingRun) -> None:
    held = Grant.objects.filter(run=run).values_list("slot_id", flat=True)
    utilization.renew(run, counted(run, *(SlotSeen(slot, 1.0, 1.0, 2.0) for slot in held)), now=at(0))
    assert utilization.renew(run, RunObservation(run.pk, 1, "running", (), slots=()), now=at(10))
    assert not utilization.renew(run, RunObservation(run.pk, 1, "running", (), slots=()), now=at(20)), (
        "nothing is written of a run that holds nothing"
    )
    assert now_of(run, 300) == [(None, None, latest_utilization.NOT_YET)] * 4


def test_what_leaves_the_slots_out_changes_nothing(run: TrainingRun) -> None:
    held = Grant.objects.filter(run=run).values_list("slot_id", flat=True)
    utilization.renew(run, counted(run, *(SlotSeen(slot, 1.0, 1.0, 2.0, 7) for slot in held)), now=at(0))
    short = RunObservation(run.pk, 1, "running", tuple(held), busy_s=9.0, counted_s=20.0)
    assert not utilization.renew(run, short, now=at(10))
    assert not utilization.store_sample(run, short, now=at(10))
    assert now_of(run, 10) == [(0.5, 7, "")] * 4


def test_the_run_and_its_node_are_told_of_new_figures_once(
    run: TrainingRun, host: cast.Host, said: SentMessages, django_capture_on_commit_callbacks: Any
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        for second in (0, 1, 2, 4):
            slots = (SlotSeen(1, 1.0, float(second), float(second), 7),)
            fleet.record(Observation(host.revision, cast.facts(host.node.name), (counted(run, *slots),)), now=at(second))
    heard = [said.about(topic, "changed") for topic in (f"run-{run.pk}", f"node-{host.node.pk}")]
    assert [[each["what"] for each in some if each["what"] in (["now"], ["use"])] for some in heard] == [
        [["use"], ["now"], ["now"]],
        [["use"], ["use"]],
    ]


@pytest.mark.parametrize(
    ("lasted_s", "what_is_known", "said"),
    [
        (1, (False, False), "No utilization or memory data: it is measured every 5 seconds"),
        (1, (True, False), "No memory data: it is measured every 5 seconds"),
        (600, (False, True), "No utilization data: its machine reported none."),
        (600, (True, True), ""),
        (None, (False, False), ""),
    ],
)  # fmt: skip
def test_what_is_not_known_of_an_ended_runs_slots_is_said(
    run: TrainingRun, lasted_s: int | None, what_is_known: tuple[bool, bool], said: str
) -> None:
    run.started_at, run.ended_at = NOW, None if lasted_s is None else at(lasted_s)
    found = missing(run, known=what_is_known)
    assert found.startswith(said)
    assert bool(found) == bool(said)
