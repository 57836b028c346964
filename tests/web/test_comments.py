"""Comments on a run: who may write, change and delete them, who is told, and that what somebody writes is text."""

from __future__ import annotations

import datetime as dt
import uuid
from typing import Any

import pytest
from django.urls import reverse
from django.utils import timezone

from experiments.errors import DomainError
from experiments.files import pruning
from experiments.models import Notification, Project, RunComment, TrainingRun, User
from experiments.services import comments
from tests import cast
from tests.conftest import SentMessages
from tests.web.conftest import As


@pytest.fixture
def run(project: Project, alice: User) -> TrainingRun:
    return cast.run(project, by=alice)


def shown(client: object, run: TrainingRun) -> str:
    return str(client.get(reverse("run", args=[run.pk]), {"part": "comments"}).content.decode())  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("@bob and @victor, see (@bob)", ["bob", "victor"]),
        ("ask @bob.", ["bob"]),
        ("mail bob@example.org", []),
        ("`@dataclass` and ```\n@bob\n``` not", []),
        ("@", []),
    ],
)
def test_people_are_named_after_an_at_outside_of_code(text: str, names: list[str]) -> None:
    assert comments.mentioned(text) == names


def test_pages_are_told(run: TrainingRun, bob: User, said: SentMessages, django_capture_on_commit_callbacks: Any) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        comments.add_comment(run, by=bob, text="The warm-up helps.")
    assert any("comments" in message["what"] for message in said.about(f"run-{run.pk}", "changed"))


def test_an_editor_comments_and_a_viewer_reads(run: TrainingRun, bob: User, victor: User, charlie: User, as_: As) -> None:
    address = reverse("add_comment", args=[run.pk])
    sent = {"text": "The **warm-up** helps.", "idempotency_key": str(uuid.uuid4())}
    assert as_(bob).post(address, sent).status_code == 302
    assert as_(bob).post(address, sent).status_code == 302, "sent twice, it is one"
    assert RunComment.objects.count() == 1
    assert "The <strong>warm-up</strong> helps." in shown(as_(victor), run)
    assert as_(victor).post(address, {**sent, "idempotency_key": str(uuid.uuid4())}).status_code == 403
    assert as_(charlie).post(address, sent).status_code == 404
    assert "Editors of this project may comment" in as_(victor).get(reverse("run", args=[run.pk])).content.decode()
    as_(bob).post(address, {"text": " ", "idempotency_key": str(uuid.uuid4())})
    as_(bob).post(address, {"text": "x" * 4001, "idempotency_key": str(uuid.uuid4())})
    assert RunComment.objects.count() == 1


def test_what_is_html_in_it_is_text(run: TrainingRun, bob: User, as_: As) -> None:
    comments.add_comment(run, by=bob, text="<script>alert(1)</script> [x](javascript:alert(1)) ![p](https://example.org/p.png)")
    page = shown(as_(bob), run)
    assert "<script>" not in page and 'href="javascript' not in page and "<img" not in page
    assert "&lt;script&gt;" in page


def test_its_author_changes_it_and_an_admin_deletes_any(run: TrainingRun, alice: User, bob: User, victor: User, as_: As) -> None:
    made = comments.add_comment(run, by=bob, text="The warm-up helps.")
    change, delete = reverse("change_comment", args=[made.pk]), reverse("delete_comment", args=[made.pk])
    assert as_(alice).post(change, {"text": "no"}).status_code == 403
    assert as_(victor).post(delete).status_code == 403
    assert (change in shown(as_(bob), run), change in shown(as_(alice), run), delete in shown(as_(alice), run)) == (True, False, True)
    as_(bob).post(change, {"text": "It does not."})
    assert "It does not." in shown(as_(victor), run) and "edited" in shown(as_(victor), run)
    mine = comments.add_comment(run, by=alice, text="Mine.")
    assert as_(bob).post(reverse("delete_comment", args=[mine.pk])).status_code == 403
    assert as_(alice).post(delete).status_code == 302
    assert as_(alice).post(delete).status_code == 404
    assert "It does not." not in shown(as_(victor), run) and "Mine." in shown(as_(victor), run)


def test_what_is_deleted_is_kept_for_a_while_and_nothing_else_goes(run: TrainingRun, bob: User) -> None:
    gone, stays = (comments.add_comment(run, by=bob, text=text) for text in ("gone", "stays"))
    now = timezone.now()
    comments.delete_comment(gone, by=bob, now=now)
    pruning.prune(now + dt.timedelta(days=6))
    assert RunComment.objects.count() == 2
    pruning.prune(now + dt.timedelta(days=8))
    assert list(RunComment.objects.all()) == [stays]


def test_who_is_named_and_may_see_the_run_is_told_once(run: TrainingRun, alice: User, bob: User, victor: User, charlie: User) -> None:
    made = comments.add_comment(run, by=alice, text="@bob @charlie @alice @nobody look")
    assert [(each.person, each.kind) for each in Notification.objects.filter(run=run)] == [(bob, "run.mentioned")]
    assert "alice named you in a comment on" in Notification.objects.get(run=run).text
    comments.change_comment(made, by=alice, text="@bob @victor look again")
    assert [each.person for each in Notification.objects.filter(run=run).order_by("pk")] == [bob, victor]


def test_words_outlive_the_account(run: TrainingRun, alice: User, project: Project, as_: As) -> None:
    erin = cast.person("erin")
    RunComment.objects.create(run=run, author=erin, text="I was here.", at=timezone.now())
    erin.delete()
    assert "deleted user" in shown(as_(alice), run) and "I was here." in shown(as_(alice), run)


def test_the_api_does_the_same(run: TrainingRun, bob: User, alice: User, victor: User, as_: As) -> None:
    address = f"/api/v1/runs/{run.pk}/comments"
    made = as_(bob).post(address, {"text": "hello"}, content_type="application/json")
    assert (made.status_code, made.json()["author"]) == (201, "bob")
    assert as_(victor).post(address, {"text": "hello"}, content_type="application/json").status_code == 403
    assert [each["text"] for each in as_(victor).get(address).json()["items"]] == ["hello"]
    one = f"/api/v1/comments/{made.json()['id']}"
    assert as_(alice).patch(one, {"text": "no"}, content_type="application/json").status_code == 403
    assert as_(bob).patch(one, {"text": "bye"}, content_type="application/json").json()["text"] == "bye"
    assert as_(bob).patch(one, {"text": ""}, content_type="application/json").status_code == 400
    assert as_(alice).delete(one).status_code == 204
    assert as_(alice).get(address).json()["items"] == []


def test_too_long_a_text_is_refused(run: TrainingRun, bob: User) -> None:
    with pytest.raises(DomainError):
        comments.add_comment(run, by=bob, text="x" * 4001)
