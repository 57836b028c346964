"""The cluster page: everybody's jobs, the lanes as data and as a table, what happened, nodes."""

from __future__ import annotations

import datetime as dt
import re

import pytest
from django.urls import reverse
from django.utils import timezone

from experiments import services
from experiments.cluster import joining, utilization
from experiments.models import GenerationRecord, Grant, Node, RunTransition, Slot, TrainingRun, User
from experiments.views import cluster
from tests.web import api
from tests.web.conftest import As
from tests.web.seed import Seeded
from tests.web.text import one_line
from training_runtime import protocol
from training_runtime.gpu_memory import GpuMemoryHolder
from training_runtime.node import messages
from training_runtime.node.messages import Hello
from training_runtime.protocol import RunObservation, SlotSeen
from training_runtime.version_skew import ProtocolVersion


def test_everybodys_jobs_are_there_but_only_ones_own_are_named(studio: Seeded, as_: As) -> None:
    page = as_(studio.alice).get(reverse("cluster"), {"part": "jobs"}).content.decode()
    for name in ("Learning rates", f"run {studio.other.pk}", "a run in another project"):
        assert name in page
    assert f'href="{reverse("run", args=[studio.running.pk])}"' in page
    assert f'href="{reverse("run", args=[studio.other.pk])}"' not in page
    assert reverse("stop_run", args=[studio.running.pk]) in page
    assert reverse("stop_run", args=[studio.other.pk]) not in page


def test_of_a_run_in_another_project_one_sees_whose_it_is_and_not_its_name_nor_a_reason(studio: Seeded, as_: As) -> None:
    other, secret = studio.other, "a word that only its project reads"
    TrainingRun.objects.filter(pk=other.pk).update(name=secret, plan_reason=secret, state_reason=secret)
    Grant.objects.filter(run=other).update(reason=secret)
    RunTransition.objects.filter(run=other).update(reason=secret)
    GenerationRecord.objects.filter(run=other).update(reason=secret)
    node = Node.objects.filter(slots__grants__run=other, slots__grants__released_at=None)[0]
    pages = [(reverse("cluster"), {"part": part} if part else {}) for part in ("", "jobs", "feed", "now", "strips", "nodes")]
    pages += [(reverse("lanes"), {"window": "all"}), (reverse("node", args=[node.name]), {})]
    pages += [(reverse("usage"), {"by": kind, "format": form}) for kind in ("person", "project", "run") for form in ("", "csv")]
    pages += [(reverse("preview_run", args=[studio.running.pk]), {"stop": "yes"})]
    for path, query in pages:
        answer = as_(studio.alice).get(path, query)
        assert answer.status_code == 200, path
        said = answer.getvalue().decode() if answer.streaming else answer.content.decode()
        assert secret not in said, (path, query)
    named = [(path, query) for path, query in pages if secret in as_(studio.dora).get(path, query).content.decode()]
    assert len(named) >= 8, "administrators see all of it"
    jobs = as_(studio.alice).get(reverse("cluster"), {"part": "jobs"}).content.decode()
    assert "a run in another project" in jobs
    found = as_(studio.alice).get(reverse("cluster"), {"part": "jobs", "name": "only its project"}).content.decode()
    assert "No job matches" in found, "nor is it found by a part of its name"
    feed = as_(studio.alice).get(reverse("cluster"), {"part": "feed"}).content.decode()
    assert f"{other.submitted_by.username}&#x27;s run in another project" in feed


def test_a_viewer_sees_no_stop_and_an_administrator_sees_all(studio: Seeded, as_: As) -> None:
    assert "/stop/" not in as_(User.objects.get(username="victor")).get(reverse("cluster")).content.decode()
    assert as_(studio.dora).get(reverse("cluster")).content.decode().count('hx-post="/runs/') == 3


def test_jobs_are_filtered_by_name_submitter_id_and_state(studio: Seeded, as_: As) -> None:
    def shown(**wanted: str) -> str:
        return as_(studio.alice).get(reverse("cluster"), {"part": "jobs", **wanted}).content.decode()

    assert "Baseline" not in shown(name="learning")
    assert "Learning rates" not in shown(name="Baseline")
    assert f'id="job-{studio.failed.pk}"' in shown(state="failed")
    assert f'id="job-{studio.running.pk}"' not in shown(state="failed")
    assert "No job matches" in shown(name="<script>")
    assert "<script>" not in shown(name="<script>")


def test_the_lanes_say_who_held_what_and_the_table_says_the_same(studio: Seeded, as_: As) -> None:
    answer = as_(studio.alice).get(reverse("lanes"), {"window": "10m"}).json()
    assert [lane["label"] for lane in answer["lanes"]] == ["GPU 0", "GPU 1", "GPU 2", "GPU 3"]
    third = [(bar["run"], bar["end"] is None) for bar in answer["lanes"][2]["bars"]]
    assert third == [(studio.running.pk, False), (studio.other.pk, True)]
    assert studio.running.pk in answer["readable"]
    assert studio.other.pk not in answer["readable"]
    assert answer["curves"] == [studio.running.pk]
    linked = as_(studio.alice).get(reverse("cluster"), {"part": "now"}).content.decode()
    assert [reverse("run", args=[run.pk]) in linked for run in (studio.running, studio.other)] == [True, False]
    for window in ({"window": "1m"}, {}, {"window": "1h"}, {"window": "all"}, {"window": "1m", "back": "300"}):
        asked = {**window, "until": str(int(timezone.now().timestamp()) - 300)} if "back" in window else window
        table = as_(studio.alice).get(reverse("cluster"), {"part": "now", **asked}).content.decode()
        bars = [bar for lane in as_(studio.alice).get(reverse("lanes"), window).json()["lanes"] for bar in lane["bars"]]
        assert table.count("<bdi>") + table.count("a run in another project") == len(bars), window
        assert ("nobody in this window" in table) == (len({bar["run"] for bar in bars}) == 0), window
    for odd in ({"window": "x"}, {"until": "-5"}, {"until": "9" * 40}, {"until": "1"}):
        assert as_(studio.alice).get(reverse("cluster"), {"part": "now", **odd}).status_code == 200


def test_the_table_of_a_long_window_says_the_newest_of_each_slot(studio: Seeded, as_: As) -> None:
    now, slot = timezone.now(), Slot.objects.get(index=3)
    times = [now - dt.timedelta(minutes=2, seconds=each) for each in range(100)]
    past = [Grant(run=studio.completed, slot=slot, granted_at=at, released_at=at, reason=f"grant {n:03}") for n, at in enumerate(times)]
    Grant.objects.bulk_create(past)
    table = as_(studio.alice).get(reverse("cluster"), {"part": "now"}).content.decode()
    assert "The newest 60 of each slot are shown" in table
    assert "grant 059" in table
    assert "grant 060" not in table


def test_a_large_cluster_is_said_in_part(studio: Seeded, as_: As, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "MOST_TABLE_LANES", 3)
    monkeypatch.setattr(cluster, "MOST_STRIPS", 1)
    now = as_(studio.alice).get(reverse("cluster"), {"part": "now"}).content.decode()
    assert "1 more slot: on the pages of their nodes." in one_line(now)
    strips = as_(studio.alice).get(reverse("cluster"), {"part": "strips"}).content.decode()
    assert "And 1 more: see the jobs." in strips


def test_each_job_has_the_actions_that_the_reader_may_do(studio: Seeded, as_: As) -> None:
    def row(user: User, run: TrainingRun) -> str:
        page = as_(user).get(reverse("cluster"), {"part": "jobs"}).content.decode()
        return page.split(f'id="job-{run.pk}"')[1].split("</tr>")[0]

    change, log = reverse("change_run", args=[studio.running.pk]), reverse("run_logs", args=[studio.running.pk])
    assert change in row(studio.alice, studio.running)
    assert log in row(studio.alice, studio.running)
    victor = User.objects.get(username="victor")
    assert change not in row(victor, studio.running)
    assert log in row(victor, studio.running)
    assert "logs" not in row(studio.alice, studio.other)
    assert reverse("change_run", args=[studio.completed.pk]) not in row(studio.alice, studio.completed)
    page = as_(studio.alice).get(reverse("cluster")).content.decode()
    assert reverse("new_experiment", args=[studio.digits.pk]) in page
    assert reverse("new_experiment", args=[studio.digits.pk]) not in as_(victor).get(reverse("cluster")).content.decode()


def test_priority_and_slots_have_a_page_for_who_may_change_them(studio: Seeded, as_: As) -> None:
    address = reverse("change_run", args=[studio.running.pk])
    for user in (studio.alice, studio.dora):
        page = as_(user).get(address).content.decode()
        assert f'action="{reverse("set_priority", args=[studio.running.pk])}"' in page
    assert "<html" not in as_(studio.alice).get(address, {"part": "forms"}).content.decode()
    assert as_(User.objects.get(username="victor")).get(address).status_code == 403
    assert as_(User.objects.get(username="charlie")).get(address).status_code == 404


def test_states_that_nobody_likes_are_said(studio: Seeded, as_: As) -> None:
    long_ago = timezone.now() - dt.timedelta(minutes=5)
    Grant.objects.filter(run=studio.running, released_at=None, slot__index=0).update(release_requested_at=long_ago)
    client = as_(studio.alice)
    assert [lane["state"] for lane in client.get(reverse("lanes")).json()["lanes"]] == ["stuck", "held", "held", "held"]
    assert "1 asked to leave, still there" in client.get(reverse("cluster"), {"part": "tiles"}).content.decode()
    assert "GPU 0, GPU 1 · 1 stuck" in one_line(client.get(reverse("cluster"), {"part": "strips"}).content.decode())
    assert "asked to leave, its process is still there" in client.get(reverse("node", args=["local"])).content.decode()
    Node.objects.update(last_seen_at=long_ago)
    answer = client.get(reverse("lanes")).json()["lanes"]
    assert {(lane["state"], lane["silent_since"]) for lane in answer} == {("silent", long_ago.timestamp())}
    assert all(lane["bars"] for lane in answer), "what was granted stays to be seen"
    assert "its runs may go on" in client.get(reverse("cluster"), {"part": "nodes"}).content.decode()
    assert "4 held on a lost node" in client.get(reverse("cluster"), {"part": "tiles"}).content.decode()
    assert client.get(reverse("cluster"), {"part": "strips"}).content.decode().count("2 offline") == 2


def test_a_machine_whose_disk_is_full_says_so_and_has_no_free_slot(studio: Seeded, as_: As) -> None:
    Grant.objects.all().delete()
    Node.objects.update(storage_problem="The disk of node local is full: less than 16 MiB free.")
    client = as_(studio.alice)
    for page in (client.get(reverse("node", args=["local"])), client.get(reverse("cluster"), {"part": "nodes"})):
        assert "Cannot write" in page.content.decode()
        assert "less than 16 MiB free" in page.content.decode()
    assert {lane["state"] for lane in client.get(reverse("lanes")).json()["lanes"]} == {"draining"}


def test_a_drained_node_is_put_back_into_service_and_its_slots_need_no_draining(studio: Seeded, as_: As) -> None:
    client, address = as_(studio.dora), reverse("node", args=["local"])
    assert "Drain node" in client.get(address).content.decode()
    Grant.objects.all().delete()
    drained = Slot.objects.order_by("index")[0]
    Slot.objects.filter(pk=drained.pk).update(draining=True)
    Node.objects.update(draining=True)
    page = client.get(address).content.decode()
    assert "Resume node" in page
    assert page.count("with its node") == 4
    assert re.findall(r'action="[^"]*/slots/(\d+)/[^"]*"', page) == [str(drained.pk)]


def test_the_window_can_end_in_the_past(studio: Seeded, as_: As) -> None:
    answer = as_(studio.alice).get(reverse("lanes"), {"window": "1m", "back": "300"}).json()
    assert 299 < answer["now"] - answer["end"] < 301
    assert {bar["run"] for lane in answer["lanes"] for bar in lane["bars"]} == {studio.running.pk}
    assert "silent" not in {lane["state"] for lane in answer["lanes"]}, "their machines were heard of since"
    for odd in ({"window": "x"}, {"back": "-5"}, {"back": "9" * 40}, {"window": "all"}):
        assert as_(studio.alice).get(reverse("lanes"), odd).status_code == 200


def test_what_happened_is_said_in_words(studio: Seeded, as_: As) -> None:
    page = as_(studio.alice).get(reverse("cluster"), {"part": "feed"}).content.decode()
    assert "4 → 2 workers" in page
    assert "23 ms pause" in page


def test_a_node_says_who_holds_each_slot_and_what_it_does_now(studio: Seeded, as_: As) -> None:
    address = reverse("node", args=[studio.node.name])
    slot, run = Slot.objects.get(node=studio.node, index=0), studio.running
    now = timezone.now()
    holders = (
        GpuMemoryHolder(20 * 10**9, run=run.pk),
        GpuMemoryHolder(9 * 10**9, run=9999),
        GpuMemoryHolder(2 * 10**9, 0, 4711, "python3"),
    )
    seen = SlotSeen(slot.pk, 9.0, 1.2, 4.0, 32 * 10**9, 143 * 10**9, 0, holders)
    observation = RunObservation(run.pk, 1, "running", (slot.pk,), busy_s=1.2, counted_s=4.0, slots=(seen,))
    utilization.renew(run, observation, now=now)
    page = as_(studio.alice).get(address).content.decode()
    row, next_row = (re.sub(r"<[^>]+>", " ", part) for part in page.split(f'<tr id="slot-{slot.pk}"')[1].split("<tr id=")[:2])
    for words in (
        "GPU 0",
        "Learning rates",
        "30 %",
        "32.0 GB",
        "of 143 GB",
        "run 9999 9.0 GB",
        "python3 (process 4711, no run’s) 2.0 GB",
    ):
        assert words in one_line(row), (words, row)
    assert "not measured yet" in next_row, "its worker is not among those that the machine has seen"
    assert reverse("run", args=[run.pk]) in page
    assert reverse("run", args=[studio.other.pk]) not in page, "she may not open it"
    assert f'data-live="cluster node-{studio.node.pk}"' in page
    free = Slot.objects.create(node=studio.node, index=9, device="gpu")
    assert page_row(as_(studio.alice).get(address).content.decode(), free).count("–") == 4


def page_row(page: str, slot: Slot) -> str:
    return page.split(f'<tr id="slot-{slot.pk}"')[1].split("</tr>")[0]


def test_a_node_and_a_slot_are_drained_and_used_again(studio: Seeded, as_: As) -> None:
    client, slot = as_(studio.dora), Slot.objects.get(index=3)
    page = reverse("node", args=["local"])
    assert "<b>user+landlock</b>" in client.get(page).content.decode()
    for wanted in ("yes", "no"):
        client.post(reverse("slot_drain", args=["local", slot.pk]), {"draining": wanted})
        client.post(reverse("node_drain", args=["local"]), {"draining": wanted})
        slot.refresh_from_db()
        assert slot.draining is (wanted == "yes")
        assert Node.objects.get().draining is (wanted == "yes")
    client.post(reverse("slot_drain", args=["local", 999]), {"draining": "yes"})
    assert "no such slot" in client.get(page).content.decode()
    assert "/drain/" not in as_(studio.alice).get(page).content.decode()


def test_a_name_written_from_right_to_left_leaves_the_words_beside_it_in_place(studio: Seeded, as_: As) -> None:
    TrainingRun.objects.filter(pk=studio.queued.pk).update(plan_reason="bob's run تجربة شلום <b>: 3 of 4 slots")
    for name, pk in (("run", [studio.queued.pk]), ("cluster", [])):
        page = as_(studio.alice).get(reverse(name, args=pk)).content.decode()
        assert "bob&#x27;s run <bdi>تجربة شلום</bdi> &lt;b&gt;: 3 of 4 slots" in page


def test_a_run_whose_machine_is_lost_has_no_pace_and_no_end(studio: Seeded, as_: As) -> None:
    client, run = as_(studio.alice), studio.running
    pages = [(reverse("run", args=[run.pk]), {"part": "tiles"}), (reverse("experiment", args=[studio.experiment.pk]), {"part": "runs"})]
    lefts = [re.search('data-f="left">([^<]*)<', client.get(*page).content.decode()) for page in pages]
    assert all(left and left[1] != "–" for left in lefts)
    Node.objects.update(last_seen_at=timezone.now() - dt.timedelta(minutes=1))
    lost = [client.get(*page).content.decode() for page in pages]
    assert [page.count('data-f="left">–<') for page in lost] == [1, 1]
    assert 'data-f="rate">–<' in lost[0]
    assert 'data-state="unheard"' in lost[0], "the script writes a pace into what runs alone"
    assert "ends at about" not in lost[0]


def test_a_machine_that_is_gone_can_be_declared_lost_by_administrators_who_type_its_name(studio: Seeded, as_: As) -> None:
    node = Node.objects.get()
    page, lost = reverse("node", args=[node.name]), reverse("node_lost", args=[node.name])
    assert "gone for good" not in as_(studio.dora).get(page).content.decode(), "it is heard of"
    Node.objects.update(last_seen_at=timezone.now() - dt.timedelta(hours=1))
    assert "gone for good" not in as_(studio.alice).get(page).content.decode()
    shown = as_(studio.dora).get(page).content.decode()
    assert lost in shown
    assert "2 runs have to do with this machine" in shown
    refused = as_(studio.dora).post(lost, {"confirm_name": "another"}, follow=True).content.decode()
    assert "type the node&#x27;s name to confirm" in refused
    assert Grant.objects.filter(released_at=None).exists()
    done = as_(studio.dora).post(lost, {"confirm_name": node.name, "reason": "burnt"}, follow=True).content.decode()
    assert f"{node.name} is declared lost" in done
    assert not Grant.objects.filter(released_at=None).exists()
    remove = reverse("node_remove", args=[node.name])
    assert remove in done
    listed = as_(studio.dora).post(remove, follow=True).content.decode()
    assert f"{node.name} is removed" in listed
    assert f'id="node-{node.pk}"' not in listed


def test_a_second_machine_of_that_name_is_reported_on_its_page(studio: Seeded, as_: As) -> None:
    node = Node.objects.get()
    page = reverse("node", args=[node.name])
    assert "and is refused" not in as_(studio.alice).get(page).content.decode()
    Node.objects.update(refused_at=timezone.now())
    assert "and is refused" in as_(studio.alice).get(page).content.decode()


@pytest.mark.parametrize(
    ("name", "spoken", "state", "words"),
    [
        ("local", (protocol.VERSION - 1, protocol.VERSION - 2), "behind", "manage.py stop --host-only"),
        ("local", (protocol.VERSION + 1, protocol.VERSION), "ahead", "Upgrade the studio next"),
        ("beta", (protocol.VERSION - 1, protocol.VERSION - 2), "behind", "edt-node join --replace"),
        ("beta", (protocol.VERSION + 1, protocol.VERSION), "ahead", "Upgrade the studio next"),
        ("beta", (protocol.VERSION + 9, protocol.VERSION + 8), "refused", "upgrade the studio first"),
    ],
)
def test_a_machine_of_another_version_is_shown_with_what_to_do(
    studio: Seeded, as_: As, monkeypatch: pytest.MonkeyPatch, name: str, spoken: tuple[int, int], state: str, words: str
) -> None:
    monkeypatch.setattr(protocol, "SPOKEN", ProtocolVersion(protocol.VERSION, protocol.VERSION - 1))
    monkeypatch.setattr(messages, "SPOKEN", protocol.SPOKEN)
    Node.objects.update(name=name, protocol_version=spoken[0], protocol_oldest=spoken[1])
    node, alice = Node.objects.get(), as_(studio.alice)
    assert words in alice.get(reverse("cluster"), {"part": "nodes"}).content.decode()
    assert words in alice.get(reverse("node", args=[node.name])).content.decode()
    (shown,) = api.of(studio.alice).get("/nodes").json()["items"]
    assert (shown["version_state"], words in shown["version"]) == (state, True)


def test_a_machine_that_is_refused_for_its_version_is_told_of_where_it_is_added(studio: Seeded, as_: As) -> None:
    token, _ = services.add_node(by=studio.dora, name="beta")
    joining.begin(token.pk, Hello("id-1", version=99, oldest=98), address="10.0.0.7", now=timezone.now())
    page = as_(studio.dora).get(f"{reverse('new_node')}?arriving=beta").content.decode()
    assert "upgrade the studio first" in page
