"""Usage over time and what it costs: cut at the borders, priced as it was then, and the same on the page, in the CSV and in the API."""

from __future__ import annotations

import csv
import datetime as dt
import io
import re
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest
from django.test import Client
from django.urls import reverse

from experiments import services
from experiments.cluster import accounting, spans
from experiments.errors import DomainError
from experiments.models import ClusterChange, Grant, Project, SlotPrice, TrainingRun, User
from experiments.selectors import usage_chart
from tests import cast
from tests.domain.conftest import NOW

pytestmark = pytest.mark.django_db
HOUR = dt.timedelta(hours=1)
BERLIN = ZoneInfo("Europe/Berlin")


def held(run: TrainingRun, since: dt.datetime, until: dt.datetime | None) -> None:
    Grant.objects.filter(run=run).update(granted_at=since, released_at=until)


def prices(dora: User, now: dt.datetime, **per_hour: str | None) -> None:
    wanted = {device: None if price is None else Decimal(price) for device, price in per_hour.items()}
    services.set_prices(by=dora, per_hour=wanted, currency="EUR", now=now)


def device(run: TrainingRun) -> str:
    return run.grants.first().slot.device  # type: ignore[union-attr]


def test_a_run_over_midnight_is_cut_there_and_one_over_the_border_at_it(run: TrainingRun) -> None:
    """Four slots, from six hours before a day in Berlin until twelve hours after its end."""
    midnight = dt.datetime(2026, 11, 10, tzinfo=BERLIN).astimezone(dt.UTC)
    held(run, midnight - 6 * HOUR, midnight + 36 * HOUR)
    span = spans.of_dates(dt.date(2026, 11, 6), dt.date(2026, 11, 10), now=NOW, zone=BERLIN)
    (usage,) = accounting.by_person(begin=span.begin, end=span.end, edges=span.edges)
    assert [seconds / 3600 for seconds in usage.bins] == [0, 0, 0, 4 * 6, 4 * 24]
    assert usage.slot_s == sum(usage.bins)


def test_a_day_of_25_hours_has_25(run: TrainingRun) -> None:
    held(run, NOW - 60 * 24 * HOUR, None)
    span = spans.of_dates(dt.date(2026, 10, 22), dt.date(2026, 10, 26), now=NOW, zone=BERLIN)
    (usage,) = accounting.by_run(begin=span.begin, end=span.end, edges=span.edges)
    assert [seconds / 3600 / 4 for seconds in usage.bins] == [24, 24, 24, 25, 24]


def test_a_price_counts_from_when_it_is_set_and_rewrites_nothing(run: TrainingRun, dora: User) -> None:
    held(run, NOW, NOW + 3 * HOUR)
    kind = device(run)
    prices(dora, NOW + HOUR, **{kind: "1.50"})
    window = {"begin": NOW, "end": NOW + 2 * HOUR}
    (before,) = accounting.by_person(**window)
    assert (before.cost, before.priced_slot_s / 3600) == (Decimal("6.0000"), 4.0), "the first hour had no price"
    prices(dora, NOW + 2 * HOUR, **{kind: "10"})
    assert accounting.by_person(**window) == [before]
    (all_,) = accounting.by_person(begin=NOW, end=NOW + 3 * HOUR)
    assert all_.cost == Decimal("46.0000")
    prices(dora, NOW + dt.timedelta(hours=2.5), **{kind: None})
    assert accounting.by_person(begin=NOW, end=NOW + 3 * HOUR)[0].cost == Decimal("26.0000")
    assert SlotPrice.objects.count() == 3
    assert "changed the price" in ClusterChange.objects.first().text  # type: ignore[union-attr]


def test_a_deleted_run_costs_what_it_did(run: TrainingRun, dora: User, alice: User) -> None:
    prices(dora, NOW - HOUR, cpu="2", gpu="3")
    held(run, NOW, NOW + HOUR)
    window = {"begin": NOW - HOUR, "end": NOW + 2 * HOUR, "edges": (NOW - HOUR, NOW + HOUR / 2, NOW + 2 * HOUR)}
    before = accounting.by_person(**window)
    assert before[0].cost in (Decimal("8.0000"), Decimal("12.0000"))
    TrainingRun.objects.filter(pk=run.pk).update(state="completed")
    run.refresh_from_db()
    services.delete_run(run, by=alice)
    assert accounting.by_person(**window) == before


@pytest.mark.parametrize(
    ("wrong", "field"),
    [({"cpu": "-1"}, "cpu"), ({"gpu": "0.00001"}, "gpu"), ({"cpu": "NaN"}, "cpu"), ({"gpu": "2000000"}, "gpu"), ({"tpu": "1"}, "cpu")],
)
def test_a_price_that_is_none_is_refused(wrong: dict[str, str], field: str, dora: User) -> None:
    with pytest.raises(DomainError) as refused:
        services.set_prices(by=dora, per_hour={key: Decimal(value) for key, value in wrong.items()}, currency="EUR")
    assert field in refused.value.fields
    with pytest.raises(DomainError):
        services.set_prices(by=dora, per_hour={}, currency="doubloons of old")
    assert not SlotPrice.objects.exists()


def test_the_same_price_once_more_changes_nothing(dora: User) -> None:
    for hour in range(2):
        prices(dora, NOW + hour * HOUR, cpu="2", gpu=None)
    assert SlotPrice.objects.count() == 1


def test_only_administrators_set_prices_and_everybody_reads_them(run: TrainingRun, alice: User, dora: User) -> None:
    client, sent = Client(), {"cpu": "1.25", "gpu": "", "currency": "EUR"}
    client.force_login(alice)
    assert client.post(reverse("set_prices"), sent).status_code == 403
    assert "Set prices" not in client.get(reverse("usage")).content.decode()
    client.force_login(dora)
    assert client.post(reverse("set_prices"), {**sent, "cpu": "much"}, follow=True).content.decode().count("Give a number") == 1
    assert client.post(reverse("set_prices"), sent).status_code == 302
    client.force_login(alice)
    assert "1.25" in client.get(reverse("usage")).content.decode()


def figures(page: str) -> dict[str, list[str]]:
    """Of each row of the table of owners: its cells that are numbers."""
    table = page.split('<div class="table-box section">')[1].split("</table>")[0]
    rows = re.findall(r"<tr>(.*?)</tr>", table, re.S)
    found = {}
    for row in rows[1:]:
        name = re.sub(r"<[^>]*>", "", re.findall(r'<th scope="row">(.*?)</th>', row, re.S)[0]).strip()
        cells = dict(re.findall(r'data-label="([^"]*)"\s+class="number">([^<]*)', row))
        found[name] = [cells["Runs"], cells["CPU slot-hours"], cells["GPU slot-hours"], cells["Cost"].strip()]
    return found


def test_the_page_agrees_with_the_csv_over_all_owners(run: TrainingRun, project: Project, bob: User, dora: User, alice: User) -> None:
    lately = dt.datetime.now(dt.UTC)
    prices(dora, lately - 100 * HOUR, cpu="0.3333", gpu="1.7")
    other = cast.run(project, by=bob, name="faces", max_slots=1, now=NOW)
    held(run, lately - 30 * HOUR, lately - 7 * HOUR / 3)
    Grant.objects.filter(pk=run.grants.first().pk).update(run=other)  # type: ignore[union-attr]
    client = Client()
    client.force_login(alice)
    today = lately.date()
    asked = {"by": "person", "first": str(today - dt.timedelta(days=2)), "last": str(today), "zone": "Europe/Berlin"}
    shown = figures(client.get(reverse("usage"), asked).content.decode())
    rows = list(csv.DictReader(io.StringIO(client.get(reverse("usage"), {**asked, "format": "csv"}).content.decode())))
    assert {row["name"] for row in rows} == {"alice", "bob"}
    for row in rows:
        cpu, gpu = (f"{float(row[f'{kind}_slot_seconds']) / 3600:.2f}" for kind in ("cpu", "gpu"))
        assert shown[row["name"]] == [row["runs"], cpu, gpu, f"{Decimal(row['cost']):.2f}"]
    assert shown["Total"][3] == f"{sum(Decimal(row['cost']) for row in rows):.2f}"
    over = list(csv.DictReader(io.StringIO(client.get(reverse("usage"), {**asked, "format": "csv", "over": "time"}).content.decode())))
    for row in rows:
        parts = sum(float(each["slot_seconds"]) for each in over if each["id"] == row["id"])
        assert parts == pytest.approx(float(row["slot_hours"]) * 3600, abs=0.5)
    assert {dt.datetime.fromisoformat(each["begin"]).utcoffset() for each in over} <= {HOUR, 2 * HOUR}, "the times of the zone"


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"first": "2026-11-20", "last": "2026-11-01"}, "after the last"),
        ({"first": "yesterday", "last": "2026-11-01"}, "Enter a valid date"),
        ({"first": "2026-11-01"}, "This field is required"),
        ({"first": "2020-01-01", "last": "2026-11-01"}, "at most 366"),
    ],
)
def test_wrong_dates_are_said_beside_their_field(asked: dict[str, str], said: str, run: TrainingRun, alice: User) -> None:
    client = Client()
    client.force_login(alice)
    page = client.get(reverse("usage"), asked)
    assert page.status_code == 200
    assert said in page.content.decode()
    assert client.get(reverse("usage"), {**asked, "format": "csv"})["Content-Type"].startswith("text/html"), "no file of other days"


def test_many_people_are_a_page_at_a_time_and_the_totals_are_of_all(run: TrainingRun, project: Project, alice: User) -> None:
    lately = dt.datetime.now(dt.UTC)
    slot = run.grants.first().slot  # type: ignore[union-attr]
    Grant.objects.filter(run=run).delete()
    for number in range(60):
        person = User.objects.create(username=f"person{number:02}")
        one = cast.run(project, by=person, name=f"r{number}", max_slots=1, now=NOW)
        began = lately - (2 + number) * HOUR
        Grant.objects.create(run=one, slot=slot, granted_at=began, released_at=began + HOUR / 2, reason="")
    client = Client()
    client.force_login(alice)
    first, second = (client.get(reverse("usage"), {"offset": offset}).content.decode() for offset in (0, 50))
    assert (first.count('data-label="Share"'), second.count('data-label="Share"')) == (51, 11)
    assert "1–50 of 60" in " ".join(first.split())
    assert "51–60 of 60" in " ".join(second.split())
    for page in (first, second):
        assert page.split("<tfoot>")[1].count("30.00") == 1
    assert first.count('<path class="usage-bars') == usage_chart.MOST_SERIES + 1
    assert "Others" in first


def test_bars_stand_on_each_other_and_reach_their_sum(run: TrainingRun) -> None:
    span = spans.cut(NOW, NOW + 4 * HOUR, zone=spans.UTC)

    def row(key: str, *bins: float) -> accounting.Usage:
        return accounting.Usage(key, key, sum(bins), 0.0, 1, 0.0, 0.0, bins, Decimal(0), 0.0)

    drawn = usage_chart.chart([row("a", 3600, 0, 7200, 0), row("b", 3600, 3600, 0, 0)], span)
    assert drawn is not None
    assert drawn.top == 2
    a, b = drawn.series
    assert a.path == "M0.0 200.00h212.5v-100.00h-212.5zM500.0 200.00h212.5v-200.00h-212.5z"
    assert b.path == "M0.0 100.00h212.5v-100.00h-212.5zM250.0 200.00h212.5v-100.00h-212.5z"
    assert [each.total for each in drawn.bins] == [2, 1, 2, 0]
    assert usage_chart.chart([], span) is None
    assert [usage_chart.nice(value) for value in (0.3, 1, 1.1, 7, 99, 1200)] == [0.5, 1, 2, 10, 100, 2000]
