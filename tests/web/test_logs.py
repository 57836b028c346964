"""A run's logs: their end, what a search finds, the way to the error, and that they are pushed to those who follow."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.urls import reverse

from experiments import selectors
from experiments.files import runfiles
from experiments.live import consumers
from experiments.logs import following, searching, terminal
from experiments.models import DefinitionVersion, Membership, TrainingRun
from experiments.selectors import logs
from tests import cast
from tests.conftest import SentMessages
from tests.web.conftest import As
from tests.web.seed import Seeded
from tests.web.seeded_runs import TRACEBACK
from tests.web.test_sockets import connected, heard, subscribe
from tests.web.text import one_line

Search = Callable[..., dict[str, Any]]


def log_of(run: TrainingRun, name: str = "driver") -> Path:
    path = runfiles.make(run) / "log" / name / "console.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


@pytest.fixture
def search() -> Search:
    """`search("text", pattern=...)`: as the process of its own does it, without the process."""

    def asked(text: str, *, pattern: str = "", regex: bool = False, level: str = "", most: int = 10) -> dict[str, Any]:
        return searching.search(io.BytesIO(text.encode()), pattern=pattern, regex=regex, level=level, most=most)

    return asked


def test_a_log_shows_its_end_and_is_followed_from_there(studio: Seeded, as_: As) -> None:
    client, run = as_(studio.alice), studio.running
    log_of(run).write_text("".join(f"step {step}\n" for step in range(300)))
    log_of(run, "worker-0").write_text("ready\n")
    page = client.get(reverse("run_logs", args=[run.pk])).content.decode()
    assert "step 299" in page
    assert "worker-0" in page
    end = int(page.split(f'data-topics="log-{run.pk}-driver@')[1].split('"')[0])
    with log_of(run).open("a") as log:
        log.write("one more <b>line</b>\n")
    address = reverse("run_log", args=[run.pk])
    assert client.get(address, {"name": "driver", "offset": end}).json()["text"] == "one more <b>line</b>\n"
    assert client.get(address, {"name": "../../secret", "offset": 0}).json()["text"] == ""
    assert "&lt;b&gt;line" in client.get(reverse("run_logs", args=[run.pk])).content.decode()


def test_the_logs_of_an_ended_run_are_complete_and_there_is_nothing_to_follow(studio: Seeded, as_: As) -> None:
    client, ended = as_(studio.alice), "Complete: the run has ended."
    log_of(studio.completed, "worker-0").write_text("ready\nits last words")
    for asked in ({}, {"name": "*"}, {"q": "step"}, {"name": "*", "q": "step"}):
        page = client.get(reverse("run_logs", args=[studio.completed.pk]), asked).content.decode()
        assert [mark in page for mark in (ended, 'id="log-follow"', 'data-topics="log-')] == [True, False, False], asked
    assert "worker-0 | its last words\n" in client.get(reverse("run_logs", args=[studio.completed.pk]), {"name": "*"}).content.decode()
    page = client.get(reverse("run_logs", args=[studio.running.pk])).content.decode()
    assert [mark in page for mark in (ended, 'id="log-follow"', 'data-topics="log-')] == [False, True, True]


def test_a_search_reads_all_of_the_log_and_leads_to_the_place(studio: Seeded, as_: As) -> None:
    client, address = as_(studio.alice), reverse("run_logs", args=[studio.completed.pk])
    log_of(studio.completed).write_text("".join(f"INFO step {n}\n" for n in range(40_000)) + "<script>alert(1)</script>\n")
    page = client.get(address, {"q": "STEP 12", "part": "pane"}).content.decode()
    assert "1,111 lines match" in one_line(page)
    assert "the last 500 are shown" in page
    assert client.get(address, {"q": r"step 1[0-9]$", "regex": "1", "part": "pane"}).content.decode().count("<li") == 10
    found = client.get(address, {"q": "alert", "part": "pane"}).content.decode()
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in found
    place = client.get(address, {"at": found.split("at=")[1].split("#")[0]}).content.decode()
    assert '<mark id="here">&lt;script&gt;' in place
    assert "INFO step 39999" in place
    assert "No line matches" in client.get(address, {"q": "nothing like it"}).content.decode()
    assert client.get(address, {"name": "../driver", "q": "x", "regex": "1", "level": "odd", "at": "9" * 30}).status_code == 200


def test_the_way_to_the_last_error_leads_to_the_head_of_its_traceback(studio: Seeded, as_: As) -> None:
    answer = as_(studio.alice).get(reverse("run_logs", args=[studio.failed.pk]), {"error": "1"})
    assert answer.status_code == 302
    page = as_(studio.alice).get(answer.url).content.decode()
    assert '<mark id="here">Traceback (most recent call last):' in page
    none = as_(studio.alice).get(reverse("run_logs", args=[studio.completed.pk]), {"error": "1"}, follow=True)
    assert "No line matches" in none.content.decode()


def test_levels_are_what_lines_say_and_what_belongs_to_them(search: Search) -> None:
    text = f"INFO begin\nplain words\nWARNING: slow\n  because of this\n{TRACEBACK}DEBUG end\n"
    errors = search(text, level="error")
    assert errors["total"] == TRACEBACK.count("\n")
    assert [line[3] for line in search(text, level="warning", pattern="slow")["lines"]] == ["WARNING: slow"]
    assert search(text, level="warning")["total"] == errors["total"] + 2
    assert [line[2] for line in search(text, most=99)["lines"]][:3] == ["info", "", "warning"]


def test_lines_that_match_are_shown_as_they_stand_on_a_terminal(search: Search) -> None:
    found = search("\x1b[31mloss\x1b[0m is 0.5\n 10%|#  |\r100%|###| loss\n", pattern="loss")["lines"]
    assert [line[3] for line in found] == ["loss is 0.5", "100%|###| loss"]


def test_lines_are_numbered_and_placed_whatever_their_length(search: Search) -> None:
    text = "a\n" + "é" * 40_000 + " needle\nneedle\n"
    first, second = search(text, pattern="needle")["lines"]
    assert (first[0], second[0]) == (2, 3)
    assert text.encode()[second[1] :] == b"needle\n"


@pytest.mark.parametrize("pattern", ["(a+)+$", "(" * 300, "(a*)*" * 90 + "b", "("])
def test_no_pattern_holds_the_web_server_up(pattern: str, project: Any, alice: Any, said: SentMessages) -> None:
    run = cast.run(project, by=alice)
    log_of(run).write_text(("a" * 60 + "!\n") * 50)
    began = time.monotonic()
    found = logs.search(run, "driver", pattern=pattern, regex=True)
    assert found.problem or not found.complete or not found.lines
    assert time.monotonic() - began < logs.WALL_S + 5
    assert logs.search(run, "driver", pattern="a").total == 50


def test_a_log_that_is_read_piece_by_piece_tears_no_character(project: Any, alice: Any) -> None:
    run, text = cast.run(project, by=alice), "Schön, 漢字 und 🙂\n" * 40
    log_of(run).write_text(text)
    for limit in range(4, 12):
        said, at = "", 0
        while (tail := selectors.log_tail(run, "driver", offset=at, limit_bytes=limit)).text:
            assert (tail.begin, tail.end) == (at, at + len(tail.text.encode()))
            said, at = said + tail.text, tail.end
        assert said == text
    log_of(run).write_bytes("schön 漢".encode()[:-1])
    assert selectors.log_tail(run, "driver", lines=1).text == "schön ", "the rest of it is being written"
    log_of(run).write_bytes(b"\xff\xfe")
    assert [selectors.log_tail(run, "driver", offset=at).end for at in (0, 1)] == [1, 2], "what is no text is gone past all the same"


def test_half_a_character_waits_for_its_other_half() -> None:
    whole = "schön 漢 🙂".encode()
    for length in range(len(whole) + 1):
        text = following.whole_characters(whole[:length]).decode()
        assert "schön 漢 🙂".startswith(text)
        assert len(whole[:length]) - len(text.encode()) < 4
    assert following.whole_characters(b"\xff\xfe") == b"\xff"


@pytest.fixture
def run(transactional_db: None, home: Any, said: SentMessages) -> TrainingRun:
    alice, bob, victor = (cast.person(name) for name in ("alice", "bob", "victor"))
    cast.person("charlie")
    return cast.run(cast.shared_project(alice, editor=bob, viewer=victor), by=alice)


@pytest.mark.django_db(transaction=True)
async def test_a_log_is_pushed_to_who_follows_it_and_to_nobody_else(run: TrainingRun) -> None:
    log_of(run).write_text("first\n")
    member, stranger = await connected("victor"), await connected("charlie")
    await subscribe(stranger, f"log-{run.pk}-driver@0")
    assert await heard(stranger) == {"type": "refused", "topic": f"log-{run.pk}-driver"}
    await subscribe(member, f"log-{run.pk}-driver@2")
    message = await heard(member)
    assert (message["type"], message["begin"], message["end"], message["text"]) == ("log", 2, 6, "rst\n")
    with log_of(run).open("a") as log:
        log.write("second\n")
    assert (await heard(member))["text"] == "second\n"
    await member.disconnect()
    await stranger.disconnect()


@pytest.mark.django_db(transaction=True)
async def test_a_page_follows_the_logs_of_so_many_runs_and_no_more(run: TrainingRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumers, "MOST_LOG_RUNS", 1)
    monkeypatch.setattr(consumers, "MOST_LOGS", 2)
    other = await sync_to_async(cast.run)(run.experiment.project, by=run.submitted_by, name="other")
    log_of(run).write_text("one\n")
    page = await connected("victor")
    await subscribe(page, f"log-{run.pk}-driver@0")
    assert (await heard(page))["text"] == "one\n"
    await subscribe(page, f"log-{run.pk}-worker-0@0", f"log-{other.pk}-driver@0", f"log-{run.pk}-worker-1@0")
    refused = [await heard(page), await heard(page)]
    assert [each["topic"] for each in refused] == [f"log-{other.pk}-driver", f"log-{run.pk}-worker-1"]
    await page.disconnect()


@pytest.mark.django_db(transaction=True)
async def test_who_is_removed_from_the_project_reads_no_log_any_more(run: TrainingRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumers, "RECHECK_S", 0.0)
    page = await connected("bob")
    await sync_to_async(log_of(run).write_text)("first\n")
    await Membership.objects.filter(user__username="bob").adelete()
    await subscribe(page, f"log-{run.pk}-driver@0")
    assert (await heard(page))["type"] == "refused"
    await page.disconnect()


def test_all_logs_are_one_stream_in_the_order_of_the_times_that_they_say(studio: Seeded, as_: As) -> None:
    run, client = studio.running, as_(studio.alice)
    log_of(run).write_text("2026-11-20 12:00:01 INFO begins\n  more of it\n[2026-11-20T12:00:03.5] ends\nnot fin")
    log_of(run, "worker-0").write_bytes(
        b"starts \xff\n2026-11-20 12:00:02,250 <b>first</b>\n2026-11-20 12:00:03,400 second\n2026-11-20 11:59:59 set back\n"
    )
    log_of(run, "worker-1").write_text("says no time\n")
    page = client.get(reverse("run_logs", args=[run.pk]), {"name": "*"}).content.decode()
    shown = page.split('aria-live="off"')[1].split(">", 1)[1].split("</pre>")[0].splitlines()
    assert shown == [
        "worker-1 | says no time",
        "driver   | 2026-11-20 12:00:01 INFO begins",
        "driver   |   more of it",
        "worker-0 | starts \N{REPLACEMENT CHARACTER}",
        "worker-0 | 2026-11-20 12:00:02,250 &lt;b&gt;first&lt;/b&gt;",
        "worker-0 | 2026-11-20 12:00:03,400 second",
        "worker-0 | 2026-11-20 11:59:59 set back",
        "driver   | [2026-11-20T12:00:03.5] ends",
    ]
    ends = {name: log_of(run, name).stat().st_size for name in ("driver", "worker-0", "worker-1")}
    ends["driver"] -= len("not fin")
    for name, end in ends.items():
        assert f"log-{run.pk}-{name}@{end} " in page
    found = client.get(reverse("run_logs", args=[studio.failed.pk]), {"name": "*", "error": "1"})
    assert "name=driver" in found.url


def test_all_logs_are_searched_together(studio: Seeded, as_: As, monkeypatch: pytest.MonkeyPatch) -> None:
    run, client, address = studio.running, as_(studio.alice), reverse("run_logs", args=[studio.running.pk])
    log_of(run).write_text("INFO needle of the driver\n" * 300)
    log_of(run, "worker-0").write_text("hay\n")
    log_of(run, "worker-1").write_text("hay\nERROR <b>needle</b> of the worker\n")
    page = client.get(address, {"name": "*", "q": "needle", "part": "pane"}).content.decode()
    assert "301 lines match; the last ones of each log are shown" in one_line(page)
    assert page.count("<li") == 166 + 1
    assert f'href="?name=worker-1&amp;at={len("hay") + 1}#here"' in page
    assert "&lt;b&gt;needle" in page
    assert "worker-0</a>" not in page
    for name in ("driver", "worker-0", "worker-1"):
        assert f"log-{run.pk}-{name}@{log_of(run, name).stat().st_size} " in page, "what they get changes the answer"
    errors = client.get(address, {"name": "*", "level": "error", "part": "pane"}).content.decode()
    assert errors.count("<li") == 1
    assert "No line matches" in client.get(address, {"name": "*", "q": "nothing"}).content.decode()
    assert "no regular expression" in client.get(address, {"name": "*", "q": "(", "regex": "1"}).content.decode()
    monkeypatch.setattr(logs, "TOGETHER_S", -1.0)
    assert "Only the first 0 of 3 logs could be searched" in one_line(client.get(address, {"name": "*", "q": "needle"}).content.decode())


@pytest.mark.django_db(transaction=True)
async def test_several_logs_of_a_run_are_followed_at_once(run: TrainingRun) -> None:
    log_of(run).write_text("one\n")
    log_of(run, "worker-0").write_text("two\n")
    page = await connected("victor")
    await subscribe(page, f"log-{run.pk}-driver@0", f"log-{run.pk}-worker-0@1", f"log-{run.pk}-worker-1@0")
    both = [await heard(page), await heard(page)]
    assert sorted((each["topic"], each["text"]) for each in both) == [
        (f"log-{run.pk}-driver", "one\n"),
        (f"log-{run.pk}-worker-0", "wo\n"),
    ]
    log_of(run, "worker-1").write_text("three\n")
    assert (await heard(page))["text"] == "three\n"
    await page.disconnect()


def test_a_new_workers_log_appears_among_the_names(studio: Seeded, as_: As) -> None:
    address, client = reverse("run_logs", args=[studio.completed.pk]), as_(studio.alice)
    names = client.get(address, {"part": "names", "name": "worker-0"}).content.decode()
    assert 'href="?name=worker-0" aria-current="page"' in names
    assert 'href="?name=*">All together' in names
    log_of(studio.completed, "worker-1").write_text("here\n")
    assert "?name=worker-1" in client.get(address, {"part": "names"}).content.decode()
    assert 'id="no-log"' in as_(studio.bob).get(reverse("run_logs", args=[studio.queued.pk])).content.decode()


@pytest.mark.parametrize(
    ("text", "stands", "up"),
    [
        ("one\ntwo\n", "one\ntwo\n", 0),
        ("one\r\ntwo\r\n", "one\ntwo\n", 0),
        ("\r 10%|#\r 20%|##\r 30%|###", " 30%|###", 0),
        ("\r 10%|#\r       \rdone\n", "done\n", 0),
        ("\x1b[31mred\x1b[0m and \x1b[1mbold\x1b[0m", "red and bold", 0),
        ("outer 1\n\rinner 1\x1b[A\router 2\n\rinner 2\x1b[A\r", "outer 2\ninner 2", 1),
        ("a\x1b[A\x1b[99Bb", "ab", 0),
        ("\rgone\x1b[2Kleft", "left", 0),
        ("broken \x1b", "broken", 0),
        (" [=>...] loss 2\b\b\b\b\b\b\b 1/8 \r", " [=>...] 1/8  2", 0),
        ("10%\b\b\b20%\n", "20%\n", 0),
        ("\b\bab\b\b\bc", "cb", 0),
    ],
)
def test_a_log_is_shown_as_it_stands_on_a_terminal(text: str, stands: str, up: int) -> None:
    assert terminal.render_screen(text) == terminal.Screen(stands, up)


def test_a_log_that_is_made_to_be_slow_is_shown_all_the_same() -> None:
    assert terminal.render_screen("\r" * 300_000 + "x") == terminal.Screen("x")
    assert terminal.render_screen("\x1b[1mx" * 50_000) == terminal.Screen("x" * 50_000)
    assert len(terminal.render_screen("x" * 4000 + "\bxx" * 50_000).text) > 50_000


def test_a_progress_bar_is_one_line_of_the_log_and_all_of_it_in_the_download(studio: Seeded, as_: As) -> None:
    client, run = as_(studio.alice), studio.running
    written = "begins\n" + "".join(f"\r{step}%|#| {step}/100" for step in range(1000)) + "\nends\n"
    log_of(run).write_text(written)
    page = client.get(reverse("run_logs", args=[run.pk])).content.decode()
    assert "begins\n999%|#| 999/100\nends\n" in page
    assert b"".join(client.get(reverse("run_log_file", args=[run.pk, "driver"]))).decode() == written


def test_of_a_script_that_torchrun_starts_the_log_of_a_worker_is_shown_first(studio: Seeded, as_: As) -> None:
    client, run = as_(studio.alice), studio.running
    log_of(run).write_text("2 workers: starts\n")
    log_of(run, "worker-2").write_text("epoch 1 loss 0.5\n")
    assert "2 workers: starts" in client.get(reverse("run_logs", args=[run.pk])).content.decode()
    DefinitionVersion.objects.filter(pk=run.version_id).update(distributed="torchrun")
    page = client.get(reverse("run_logs", args=[run.pk])).content.decode()
    assert "epoch 1 loss 0.5" in page and "2 workers: starts" not in page
    assert "2 workers: starts" in client.get(reverse("run_logs", args=[run.pk]), {"name": "driver"}).content.decode()
