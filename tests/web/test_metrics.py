"""What Prometheus reads: with a token alone, in its own format, and what is true of the cluster; as the documents say."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.test import Client
from django.utils import timezone
from prometheus_client.parser import text_string_to_metric_families

from experiments.models import Delivery, Grant, Lease, Node, Project, RunState, Slot, TrainingRun, User
from tests.web.seed import Seeded

DOCUMENT = (
    (Path(__file__).resolve().parents[2] / "docs/operations.md").read_text().partition("**Prometheus** reads")[2].partition("\n## ")[0]
)
CONFIG = yaml.safe_load(DOCUMENT.split("```yaml")[1].split("```")[0])["scrape_configs"][0]
TOKEN = "of the monitoring"
Samples = Mapping[tuple[str, ...], float]


@pytest.fixture
def token(settings: Any) -> str:
    settings.EDT_METRICS_TOKEN = TOKEN
    return TOKEN


def read(token: str = TOKEN) -> Any:
    """As Prometheus does by the configuration of the documents."""
    assert set(CONFIG) == {"job_name", "scheme", "authorization", "static_configs"}, "all else is as usual: GET /metrics"
    return Client().get("/metrics", headers={"Authorization": f"Bearer {token}"})


def samples() -> Samples:
    """By name and values of the labels, in the order of the alphabet: device, node, state."""
    answer = read()
    assert (answer.status_code, answer["Content-Type"].partition(";")[0]) == (200, "text/plain")
    families = text_string_to_metric_families(answer.content.decode())
    return {(each.name, *(value for _, value in sorted(each.labels.items()))): each.value for family in families for each in family.samples}


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer ö"])
def test_nobody_reads_it_without_the_token(header: str | None, db: None, token: str) -> None:
    answer = Client().get("/metrics", headers={} if header is None else {"Authorization": header})
    assert (answer.status_code, answer["WWW-Authenticate"]) == (401, "Bearer")
    assert b"edt_" not in answer.content.replace(b"EDT_", b"")


def test_without_the_setting_there_is_no_such_page(db: None) -> None:
    assert read().status_code == read("").status_code == 404


def test_it_says_how_the_cluster_stands(studio: Seeded, token: str) -> None:
    now, node = timezone.now(), studio.node.name
    found = samples()
    held, slots = Grant.objects.filter(released_at=None).count(), Slot.objects.filter(retired=False).count()
    assert sum(value for key, value in found.items() if key[0] == "edt_slots") == slots
    assert sum(value for key, value in found.items() if key[0] == "edt_slots" and key[3] == "held") == held > 0
    assert {key[1]: value for key, value in found.items() if key[0] == "edt_runs"} == {
        state: TrainingRun.objects.filter(state=state).count() for state in RunState.values
    }
    assert found["edt_node_up", node] == 1
    assert found["edt_clock_up",] == 0
    assert 0 < found["edt_home_free_bytes",] <= found["edt_home_size_bytes",]

    Grant.objects.filter(released_at=None).update(released_at=now)
    Slot.objects.filter(node=studio.node, index=0).update(draining=True)
    Slot.objects.filter(node=studio.node, index=1).update(out_reason="Workers keep dying on it.", draining=True)
    Lease.objects.create(name="beat", holder="control", until=now + dt.timedelta(seconds=5))
    Node.objects.filter(pk=studio.node.pk).update(last_seen_at=now - dt.timedelta(hours=1), storage_problem="The disk is full.")
    TrainingRun.objects.filter(state="queued").update(submitted_at=now - dt.timedelta(hours=2))
    Delivery.objects.create(person=studio.alice, body={}, created_at=now, next_at=now - dt.timedelta(minutes=3))
    Delivery.objects.create(person=studio.alice, body={}, created_at=now, next_at=now + dt.timedelta(minutes=3))
    found = samples()
    here = {key[3]: value for key, value in found.items() if (key[0], key[2:3]) == ("edt_slots", (node,))}
    assert (here["draining"], here["out_of_service"], "held" in here) == (1, 1, False)
    assert (found["edt_node_up", node], found["edt_node_disk_full", node], found["edt_clock_up",]) == (0, 1, 1)
    assert 7200 <= found["edt_oldest_queued_run_seconds",] < 7260
    assert (found["edt_deliveries_due",], 180 <= found["edt_oldest_delivery_due_seconds",] < 240) == (1, True)
    TrainingRun.objects.filter(state="queued").update(paused=True)
    assert samples()["edt_oldest_queued_run_seconds",] == 0


def test_it_names_nobody_and_costs_few_questions(studio: Seeded, token: str, django_assert_max_num_queries: Any) -> None:
    with django_assert_max_num_queries(9):
        said = read().content.decode()
    names = [*User.objects.values_list("username", flat=True), *Project.objects.values_list("name", flat=True)]
    assert not [name for name in names if name in said]


def test_the_documents_name_all_of_them_and_no_other(studio: Seeded, token: str) -> None:
    Grant.objects.filter(released_at=None).exclude(run=studio.running).update(released_at=timezone.now())
    table = {name for line in DOCUMENT.splitlines() if line.startswith("| `edt_") for name in re.findall(r"edt_\w+", line)}
    said = {each.name for each in text_string_to_metric_families(read().content.decode())}
    assert said == table
    assert set(re.findall(r"edt_\w+", DOCUMENT)) == table
