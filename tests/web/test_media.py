"""A run's Media: what its script wrote for TensorBoard is looked at, by those who may, as text and pictures and never as a page."""

from __future__ import annotations

import datetime as dt
import re
from html import unescape
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from experiments import services
from experiments.files import runfiles
from experiments.metrics import ingest
from experiments.models import Project, TrainingRun, User
from experiments.selectors import media as selected
from tests import cast
from tests.conftest import SentMessages
from tests.web import written
from tests.web.conftest import As
from training_runtime import journal, media
from training_runtime.media import Entry, Histogram, Tag

NOW = dt.datetime(2026, 11, 22, 12, 0, tzinfo=dt.UTC)


@pytest.fixture
def run(alice: User, project: Project) -> TrainingRun:
    made = cast.run(project, by=alice)
    put(made, written.looks())
    return made


def put(run: TrainingRun, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        path = runfiles.make(run) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def listed(run: TrainingRun, *tags: Tag) -> None:
    put(run, {media.FILE_NAME: media.dump(tags)})


def shown(client: Client, run: TrainingRun, query: str = "") -> str:
    answer = client.get(reverse("run_media", args=[run.pk]) + query)
    assert answer.status_code == 200
    return str(answer.content.decode())


def sources(page: str) -> list[str]:
    return [unescape(each) for each in re.findall('<img [^>]*src="(/runs/[^"]*)"', page)]


def test_all_that_was_written_is_shown_at_its_newest_step(run: TrainingRun, alice: User, as_: As) -> None:
    client = as_(alice)
    page = shown(client, run)
    assert [title for title in ("Pictures", "Texts", "Histograms") if f">{title}</h2>" in page] == ["Pictures", "Texts", "Histograms"]
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page and "<script>alert" not in page and "samples <b>" not in page
    assert "the whole text is in the event file" in page
    assert page.count('class="ridge ridge-newest"') == 3
    first, *others = sources(page)
    assert len(others) == 2, "a batch of two pictures"
    answer = client.get(first)
    assert (answer.content, answer["Content-Type"]) == (written.squares(10), "image/png")
    assert (answer["X-Content-Type-Options"], answer["Content-Security-Policy"]) == ("nosniff", "default-src 'none'; sandbox")


def test_a_step_is_chosen_with_and_without_script(run: TrainingRun, alice: User, as_: As) -> None:
    client = as_(alice)
    newest = sources(shown(client, run))
    earlier = sources(shown(client, run, "?at=image:1:predictions/confusion"))
    assert earlier[0] != newest[0] and earlier[1:] == newest[1:]
    part = shown(client, run, "?part=tag&at=image:1:predictions/confusion")
    assert sources(part) == earlier[:1] and "<html" not in part and part.count("<figure") == 1
    assert 'name="at" value="image:1:predictions/confusion"' in part, "so that it stays when the page hears of more"
    assert client.get(reverse("run_media", args=[run.pk]) + "?part=tag&at=image:1:unheard-of").status_code == 404
    assert client.get(reverse("run_media", args=[run.pk]) + "?part=tag").status_code == 404


def test_many_tags_are_shown_when_asked_for(run: TrainingRun, alice: User, as_: As) -> None:
    listed(run, *(Tag("text", f"{number:03}", (Entry(1, 0.0, written.EVENTS, ((0, 5),)),)) for number in range(200)))
    client = as_(alice)
    few, all_of_them = shown(client, run), shown(client, run, "?all=text")
    assert (few.count("<figure"), all_of_them.count("<figure")) == (selected.FEW, media.MOST_TAGS)
    assert f"Show {media.MOST_TAGS - selected.FEW} more" in few


def test_only_pictures_inside_the_runs_own_files_are_sent(run: TrainingRun, alice: User, charlie: User, as_: As) -> None:
    address, client = reverse("run_media_picture", args=[run.pk]), as_(alice)
    (first, *_) = sources(shown(client, run))
    assert as_(charlie).get(first).status_code == 404
    assert as_(charlie).get(reverse("run_media", args=[run.pk])).status_code == 404
    put(run, {"page.html": b"<script>alert(1)</script>", "picture.svg": b"<svg onload='alert(1)'/>"})
    (runfiles.folder(run) / "link").symlink_to("/etc/passwd")
    file, at, size = written.EVENTS, 8, len(written.squares(10))
    wrong = [(file, at + 1, size), (file, at, 0), (file, -1, 5), (file, 1 << 61, 9), ("page.html", 0, 25), ("picture.svg", 0, 24)]
    for name, begin, long in (*wrong, ("link", 0, 9), ("../x", 0, 9), ("", 0, 9), ("a\0b", 0, 9), ("checkpoint/.secret", 0, 9)):
        assert client.get(address, {"file": name, "at": begin, "size": long}).status_code == 404, name
    assert client.get(address, {"file": file, "at": at, "size": size}).status_code == 200


NOTHING = Histogram(0.0, 1.0, ())
INFINITE = Histogram(float("-inf"), float("nan"), (1.0,))


@pytest.mark.parametrize(
    "tags",
    [
        (Tag("histogram", "h", (Entry(1, 0.0, "x", (), NOTHING), Entry(2, 0.0, "x", (), INFINITE), Entry(3, 0.0, "x"))),),
        (Tag("histogram", "h", (Entry(1, 0.0, "x", (), Histogram(1e308, -1e308, (1e308, 1e308))),)),),
        (Tag("text", "t", (Entry(-(1 << 80), 1e300, "../../etc/passwd", ((0, 99),)),)), Tag("text", "none", ())),
        (Tag("image", "i", (Entry(1 << 80, float("nan"), "tb", ((-1, 5), (0, 1 << 70))),)),),
        (Tag("text", "\ud800\0<i>", (Entry(1, 0.0, "\ud800\0", ((0, 5),)),)),),
    ],
)
def test_whatever_a_script_puts_into_the_list_the_page_is_shown(run: TrainingRun, alice: User, as_: As, tags: tuple[Tag, ...]) -> None:
    listed(run, *tags)
    assert "root:" not in shown(as_(alice), run)


@pytest.mark.parametrize(
    "raw", [b"", b"[", b"[" * 100_000, b'{"tags": 7}', b'{"tags": [{"kind": "page", "name": "x", "entries": []}]}', b"\xff"]
)
def test_a_list_that_is_none_shows_nothing(run: TrainingRun, alice: User, as_: As, raw: bytes) -> None:
    put(run, {media.FILE_NAME: raw})
    assert "Nothing to look at" in shown(as_(alice), run)


def test_pages_are_told_that_there_is_more(run: TrainingRun, said: SentMessages, django_capture_on_commit_callbacks: Any) -> None:
    cast.write_journal(run, journal.Media(3))
    with django_capture_on_commit_callbacks(execute=True):
        ingest.catch_up(run.pk, now=NOW)
    assert any("media" in message["what"] for message in said.about(f"run-{run.pk}", "changed"))


def test_it_goes_with_its_run_and_with_nothing_else(run: TrainingRun, alice: User, project: Project) -> None:
    other = cast.run(project, by=alice)
    put(other, written.looks())
    services.delete_run(services.stop_run(run, by=alice), by=alice)
    cast.empty_trash()
    assert not runfiles.folder(run).exists()
    assert len(selected.tags(other)) == len(media.parse(written.looks()[media.FILE_NAME]))
