"""A run's pages, its curves, and what people do to it."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from django.urls import reverse
from django.utils import timezone

from experiments.definitions.arguments import arguments
from experiments.metrics import ingest
from experiments.models import Grant, Slot, TrainingRun, User
from experiments.selectors import run_pages
from experiments.templatetags.studio import spell
from tests import cast
from tests.conftest import SentMessages
from tests.web.conftest import As
from tests.web.seed import Seeded


def test_the_head_says_state_reason_slots_and_progress(studio: Seeded, as_: As) -> None:
    page = as_(studio.alice).get(reverse("run", args=[studio.running.pk])).content.decode()
    for wanted in ("Running", "fair share while two people have work", "GPU 0, GPU 1", "Steps/s", "4 → 2", "23 ms"):
        assert wanted in page, wanted


def test_an_ended_run_says_what_it_took_and_nothing_of_a_future(studio: Seeded, as_: As) -> None:
    def tiles(run: TrainingRun) -> str:
        return as_(studio.alice).get(reverse("run", args=[run.pk]), {"part": "tiles"}).content.decode()

    ended, live = ("Slot-hours", "Steps/s on average"), ("Time left, at this rate", 'data-f="rate"', 'data-f="left"')
    assert [word in tiles(studio.completed) for word in ended + live] == [True] * 2 + [False] * 3
    assert [word in tiles(studio.running) for word in ended + live] == [False] * 2 + [True] * 3
    page = as_(studio.alice).get(reverse("run", args=[studio.completed.pk])).content.decode()
    assert "its machine reported none" in page
    assert "reported none" not in as_(studio.alice).get(reverse("run", args=[studio.running.pk])).content.decode()


def test_a_run_that_is_paused_before_it_has_begun_is_not_called_queued(studio: Seeded, as_: As) -> None:
    TrainingRun.objects.filter(pk=studio.queued.pk).update(paused=True)
    for page in (reverse("run", args=[studio.queued.pk]), reverse("project", args=[studio.digits.pk])):
        shown = as_(studio.bob).get(page).content.decode()
        assert "</svg>Paused</span>" in shown
        assert "</svg>Queued</span>" not in shown


@pytest.mark.parametrize(
    ("seconds", "said"), [(None, "–"), (0, "0 s"), (0.04, "< 0.1 s"), (0.39, "0.3 s"), (0.999, "0.9 s"), (1.9, "1 s"), (61, "1 min 1 s")]
)
def test_a_length_of_time_is_spelled_as_people_say_it(seconds: float | None, said: str) -> None:
    assert spell(seconds) == said


def test_a_failed_run_shows_its_message_and_traceback_before_anything_else(studio: Seeded, as_: As) -> None:
    for name in ("run", "run_overview", "run_logs", "run_results"):
        page = as_(studio.alice).get(reverse(name, args=[studio.failed.pk])).content.decode()
        content = page.split('<div class="content">')[1]
        assert "Traceback (most recent call last)" in content.split("<h2")[0], name


def test_a_waiting_run_says_why_and_where_in_the_queue(studio: Seeded, as_: As) -> None:
    page = as_(studio.bob).get(reverse("run", args=[studio.queued.pk])).content.decode()
    assert "needs 1 slot" in page
    assert "Position 1 in the queue" in page


def test_curves_come_down_sampled_with_the_journal_line_they_reach(studio: Seeded, as_: As) -> None:
    answer = as_(studio.alice).get(reverse("run_series", args=[studio.running.pk]), {"max": 20}).json()
    loss = next(c for c in answer["curves"] if (c["group"], c["name"]) == ("train", "loss"))
    assert len(loss["steps"]) <= 45
    assert len(loss["steps"]) == len(loss["values"]) == len(loss["times"])
    assert loss["total"] == 60
    assert answer["seq"] == studio.running.cursor.seq
    assert [(m["before"], m["workers"]) for m in answer["marks"]] == [(0, 4), (4, 2)]
    huge = as_(studio.alice).get(reverse("run_series", args=[studio.running.pk]), {"max": "9" * 30})
    assert huge.status_code == 200


def test_curves_come_with_what_their_axes_need(studio: Seeded, as_: As) -> None:
    answer = as_(studio.alice).get(reverse("run_series", args=[studio.running.pk])).json()
    assert answer["shape"] == {"batch": 1024, "steps_per_epoch": 4, "samples": 5120}
    page = as_(studio.alice).get(reverse("run", args=[studio.running.pk])).content.decode()
    assert [part.split('"')[0] for part in page.split('data-chart="')[1:]] == ["loss", "accuracy", ":workers", ":rates", ":busy", ":memory"]
    assert "ends at about" in page


TRAIN, TEST, BOTH = {"train"}, {"test"}, {"train", "test"}


@pytest.mark.parametrize(
    ("groups", "first"),
    [
        ({}, []),
        ({"lr": TRAIN, "glossy": TRAIN}, []),
        ({"lr": TRAIN, "frac_reward_zero_std": TRAIN, "reward": TRAIN, "loss": TRAIN, "train_loss": TRAIN}, ["loss", "reward"]),
        ({"rollout/ep_rew_mean": TRAIN, "train/value_loss": TRAIN}, ["rollout/ep_rew_mean", "train/value_loss"]),
        ({"eval_samples_loss": TEST, "eval_loss": TEST, "loss": TRAIN}, ["loss", "eval_loss"]),
        ({"lr": TRAIN, "loss": BOTH}, ["loss"]),
        ({"accuracy": BOTH, "loss": BOTH, "val_loss": TEST}, ["loss", "accuracy"]),
        ({"loss": TRAIN, "eval_loss": TEST, "train_loss": TRAIN, "entropy": TRAIN}, ["loss", "eval_loss"]),
        ({"train/loss": TRAIN, "val/loss": TEST, "val/acc": TEST}, ["train/loss", "val/loss"]),
        (
            {"val/box_loss": TEST, "val/cls_loss": TEST, "train/box_loss": TRAIN, "train/cls_loss": TRAIN},
            ["train/box_loss", "val/box_loss"],
        ),
        ({"train_acc": TRAIN, "valid_acc": TEST, "glossy": TRAIN}, ["train_acc", "valid_acc"]),
    ],
)
def test_the_charts_that_come_first_are_of_what_people_look_at_first(groups: dict[str, set[str]], first: list[str]) -> None:
    assert run_pages.first_charts(groups) == first


def test_the_use_of_slots_is_on_the_page_where_it_is_known_and_nowhere_else(studio: Seeded, as_: As) -> None:
    client = as_(studio.alice)
    page = client.get(reverse("run", args=[studio.running.pk])).content.decode()
    assert "80.0 %" not in page, "the table is fetched when it is opened"
    whole = client.get(reverse("run", args=[studio.running.pk]), {"table": "use"}).content.decode()
    table = whole.split('id="use-table" open')[1].split("</table>")[0]
    fetched = client.get(reverse("run", args=[studio.running.pk]), {"part": "use"}).content.decode()
    for words in ("80 %", "70 % to 90 %", "900 MB", "400 MB to 500 MB", "90 %, 400 MB"):
        assert words in table, words
        assert table.count(words) == fetched.count(words)
    assert 10 <= table.count("<tr>") <= 25, "however many points there are"
    answer = client.get(reverse("run_use", args=[studio.running.pk])).json()
    points = answer["points"]
    assert [each[1:] for each in points] == [[0.8, 900_000_000, 500_000_000, 0.7, 0.9, 400_000_000]] * len(points)
    last = int(points[-3][0] // 5)
    assert client.get(reverse("run_use", args=[studio.running.pk]), {"after": last}).json()["points"] == points[-2:]
    other = client.get(reverse("run", args=[studio.completed.pk])).content.decode()
    assert ":rates" in other
    assert not {":busy", ":memory"} & set(re.findall(r'data-chart="([^"]+)"', other))
    assert 'id="use-table" hidden' in other
    assert 'id="use-table">' in page
    TrainingRun.objects.get(pk=studio.running.pk).utilization_samples.update(memory_bytes=None, largest_bytes=None)
    page = client.get(reverse("run", args=[studio.running.pk])).content.decode()
    assert (":busy" in page, ":memory" in page) == (True, False)


def test_single_slots_come_with_the_points_where_they_are_few_or_asked_for(studio: Seeded, as_: As) -> None:
    client, address = as_(studio.alice), reverse("run_use", args=[studio.running.pk])
    answer = client.get(address).json()
    slots = {label: str(slot) for slot, label in answer["slots"]}
    assert list(slots) == ["GPU 0", "GPU 1", "GPU 2", "GPU 3"]
    assert set(answer["lines"]) == set(slots.values())
    held, given_back = answer["lines"][slots["GPU 0"]], answer["lines"][slots["GPU 3"]]
    assert held == [[0.9, 400_000_000]] * len(answer["points"])
    assert given_back == [[None, None]] * len(answer["points"])
    for asked, found in ((slots["GPU 1"], {slots["GPU 1"]}), ("", set()), ("x,-1,999999", set())):
        assert set(client.get(address, {"slots": asked}).json()["lines"]) == found
    for index in range(4, 14):
        slot = Slot.objects.create(node=studio.node, index=index, device="gpu")
        Grant.objects.create(run=studio.running, slot=slot, granted_at=timezone.now(), reason="free")
    answer = client.get(address).json()
    assert (len(answer["slots"]), answer["lines"]) == (14, {})
    everything = ",".join(str(slot) for slot, _ in answer["slots"])
    assert len(client.get(address, {"slots": everything}).json()["lines"]) == 6
    table = client.get(reverse("run", args=[studio.running.pk]), {"table": "use", "slots": slots["GPU 1"]}).content.decode()
    assert "70 %, 500 MB" in table
    assert "90 %, 400 MB" not in table


def test_the_overview_says_what_its_slots_do_now(studio: Seeded, as_: As, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("experiments.selectors.latest_utilization.NODE_SILENT_S", 3600)  # a busy machine is slow
    client, address = as_(studio.alice), reverse("run_overview", args=[studio.running.pk])
    for page in (client.get(address).content.decode(), client.get(address, {"part": "now"}).content.decode()):
        now = re.sub(r"(<[^>]+>|\s+)+", " ", page.split('id="now-title"')[1].split("</table>")[0])
        for words in ("2 slots", "80 % at work", "900 MB memory", "GPU 0 on local", "90 %", "70 %", "400 MB", "500 MB"):
            assert words in now, (words, now)
    TrainingRun.objects.get(pk=studio.running.pk).latest_utilization.delete()
    page = client.get(address).content.decode()
    assert page.count("not measured yet") == 4
    assert "how far at work: unknown" in page
    assert "0 %" not in page.split('id="now"')[1].split("</section>")[0]
    assert "It holds none: it has ended." in client.get(reverse("run_overview", args=[studio.completed.pk])).content.decode()


def test_the_overview_takes_the_command_apart_and_draws_the_slots(studio: Seeded, as_: As) -> None:
    page = as_(studio.alice).get(reverse("run_overview", args=[studio.running.pk])).content.decode()
    assert '<code><span class="word">--epochs</span></code></dt><dd><bdi>20</bdi>' in page
    widths = [float(part.split('"')[0]) for part in page.split('class="bar-fill"')[1:] for part in [part.split('width="')[1]]]
    assert widths[0] == widths[1] == 1000 > 520 > widths[2] == widths[3] > 400, "half of the time, as far as it was seeded quickly"


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("python main.py --lr 0.1 --momentum=-0.9 -n -3 --fast data", {"lr": "0.1", "momentum": "-0.9", "n": "-3", "fast": "data"}),
        ("main.py a --fast --lr .5", {"argument 1": "a", "fast": "given", "lr": ".5"}),
        ("main.py --name 'two words' --empty=", {"name": "two words", "empty": ""}),
        ("main.py", {}),
        ("main.py 'open", {}),
        ("--x", {"x": "given"}),
    ],
)
def test_a_command_is_taken_apart(command: str, found: dict[str, str]) -> None:
    assert arguments(command) == found


def test_points_after_a_line_are_exactly_what_the_page_misses(studio: Seeded, as_: As) -> None:
    client, address = as_(studio.alice), reverse("run_points", args=[studio.running.pk])
    last = studio.running.cursor.seq
    missed = client.get(address, {"after": last - 3}).json()
    assert (missed["after"], missed["seq"]) == (last - 3, last)
    assert {point[2] for point in missed["points"] if point[0] == "train"} <= set(range(50, 61))
    assert client.get(address, {"after": last}).json()["points"] == []
    assert client.get(address, {"after": "x"}).status_code == 200


def test_values_that_are_no_numbers_are_gaps_in_json_and_words_on_the_page(project: Any, alice: User, said: SentMessages, as_: As) -> None:
    run = cast.run(project, by=alice)
    losses = (1.0, float("nan"), float("inf"))
    cast.write_journal(run, cast.started(), *(cast.step(n, loss=loss) for n, loss in enumerate(losses, start=1)))
    ingest.catch_up(run.pk, now=timezone.now())
    raw = as_(alice).get(reverse("run_series", args=[run.pk])).content.decode()
    curve = json.loads(raw, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))["curves"][0]
    assert curve["values"][0] == 1.0
    assert set(curve["values"][1:]) == {None}
    assert "not finite" in as_(alice).get(reverse("run", args=[run.pk])).content.decode()
    points = as_(alice).get(reverse("run_points", args=[run.pk]), {"after": 0}).content.decode()
    json.loads(points, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def test_verbs_reach_the_run_and_say_what_they_did(studio: Seeded, as_: As) -> None:
    client, run = as_(studio.alice), studio.running
    page = reverse("run", args=[run.pk])
    assert client.post(reverse("set_priority", args=[run.pk]), {"priority": "7000"}).url == page
    said = "The priority of Learning rates is now 7000. It counts as 5000 until an administrator of the cluster agrees."
    assert said in client.get(page).content.decode()
    assert "counts as 5000 until an administrator agrees" in client.get(reverse("run_overview", args=[run.pk])).content.decode()
    change = reverse("change_run", args=[run.pk])
    assert "Agree to 7000" not in client.get(change).content.decode()
    assert "Agree to 7000" in as_(studio.dora).get(change).content.decode()
    client.post(reverse("set_slots", args=[run.pk]), {"min_slots": "1", "max_slots": "3"})
    client.post(reverse("pause_run", args=[run.pk]))
    run.refresh_from_db()
    assert (run.priority, run.max_slots, run.paused) == (7000, 3, True)
    client.post(reverse("resume_run", args=[run.pk]))
    client.post(reverse("stop_run", args=[run.pk]))
    run.refresh_from_db()
    assert not run.paused
    assert run.state == "stopping"


def test_the_page_of_priority_and_slots_leads_back_to_where_one_may_go(studio: Seeded, as_: As) -> None:
    run = studio.running
    of_member = as_(studio.alice).get(reverse("change_run", args=[run.pk])).content.decode()
    crumb = f'<a href="{reverse("run", args=[run.pk])}" title'
    assert crumb in of_member
    of_admin = as_(studio.dora).get(reverse("change_run", args=[run.pk])).content.decode()
    assert crumb not in of_admin, "she may not open it"
    assert f'<a href="{reverse("cluster")}" title="Cluster">' in of_admin


def test_other_kinds_of_machines_are_allowed_where_there_are_any(studio: Seeded, as_: As) -> None:
    client, run = as_(studio.alice), studio.running
    change, asked = reverse("change_run", args=[run.pk]), "It may go on on other kinds of machines"
    assert asked not in client.get(change).content.decode(), "all machines are alike"
    cast.node("old", processor="Opteron")
    assert asked in client.get(change).content.decode()
    client.post(reverse("set_any_kind", args=[run.pk]), {"any_kind": "on"})
    run.refresh_from_db()
    assert run.any_kind
    assert 'name="any_kind" checked' in client.get(change).content.decode()
    client.post(reverse("set_any_kind", args=[run.pk]))
    run.refresh_from_db()
    assert not run.any_kind


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("set_priority", {"priority": "0"}), ("set_priority", {"priority": "10001"}), ("set_priority", {}),
        ("set_slots", {"min_slots": "0", "max_slots": "2"}), ("set_slots", {"min_slots": "3", "max_slots": "2"}),
    ],
)  # fmt: skip
def test_bad_numbers_change_nothing_and_are_said(
    name: str, sent: dict[str, str], project: Any, alice: User, said: SentMessages, as_: As
) -> None:
    run = cast.run(project, by=alice)
    client = as_(alice)
    client.post(reverse(name, args=[run.pk]), sent)
    assert "note-error" in client.get(reverse("run", args=[run.pk])).content.decode()
    assert TrainingRun.objects.values_list("priority", "min_slots", "max_slots").get() == (5000, 1, 4)


def test_with_htmx_a_verb_answers_a_word_and_no_page(project: Any, alice: User, said: SentMessages, as_: As) -> None:
    run = cast.run(project, by=alice)
    answer = as_(alice).post(reverse("stop_run", args=[run.pk]), headers={"HX-Request": "true"})
    assert answer.status_code == 204
    assert json.loads(answer["HX-Trigger"])["toast"]["kind"] == "success"
    again = as_(alice).post(reverse("set_priority", args=[run.pk]), {"priority": "x"}, headers={"HX-Request": "true"})
    assert json.loads(again["HX-Trigger"])["toast"]["kind"] == "error"


def test_an_administrator_stops_a_run_of_a_project_they_cannot_read(studio: Seeded, as_: As) -> None:
    client = as_(studio.dora)
    assert client.get(reverse("run", args=[studio.running.pk])).status_code == 404
    assert client.post(reverse("stop_run", args=[studio.running.pk]), {"next": reverse("cluster")}).url == reverse("cluster")
    away = client.post(reverse("stop_run", args=[studio.other.pk]), {"next": "//elsewhere.example/"})
    assert away.url == reverse("run", args=[studio.other.pk])


def test_a_preview_says_what_a_change_would_do_and_changes_nothing(studio: Seeded, as_: As) -> None:
    client, address = as_(studio.alice), reverse("preview_run", args=[studio.running.pk])
    assert "2 → 1" in client.get(address, {"min_slots": "1", "max_slots": "1"}).content.decode()
    assert "minimum is greater" in client.get(address, {"min_slots": "4", "max_slots": "2"}).content.decode()
    studio.running.refresh_from_db()
    assert studio.running.max_slots == 4


def test_a_run_is_deleted_when_it_has_ended(studio: Seeded, as_: As) -> None:
    client = as_(studio.alice)
    client.post(reverse("delete_run", args=[studio.running.pk]))
    assert TrainingRun.objects.filter(pk=studio.running.pk).exists()
    assert client.post(reverse("delete_run", args=[studio.completed.pk])).url == reverse("experiment", args=[studio.experiment.pk])
    assert not TrainingRun.objects.filter(pk=studio.completed.pk).exists()
