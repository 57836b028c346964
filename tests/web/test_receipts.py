"""A run's receipt, sealed and checked; a run that repeats another one, from its journal to what its page says."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import re
import uuid
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from edt_client import receipts as client
from experiments import services
from experiments.errors import DomainError
from experiments.metrics import ingest
from experiments.models import Project, StateDigest, TrainingRun, User
from experiments.runs import seals
from experiments.selectors import receipts, reproductions
from tests import cast
from tests.conftest import SentMessages
from tests.web import api
from tests.web.conftest import As
from training_runtime import journal

NOW = dt.datetime(2026, 11, 24, 12, 0, tzinfo=dt.UTC)
A, B = "0123456789abcdef", "fedcba9876543210"
EXACT = journal.Exactness((), checked=True, build="torch")


@pytest.fixture
def run(project: Project, alice: User, said: SentMessages) -> TrainingRun:
    version = cast.definition(project, by=alice, command="main.py --lr 0.1")
    experiment = services.create_experiment(project, by=alice, name="rates", versions=[version], environment={"GREETING": "hi"})
    made = services.run_experiment(experiment, by=alice)[0]
    return services.set_slots(made, by=alice, min_slots=2, max_slots=3)


def trained(run: TrainingRun, digests: dict[int, str], *, losses: float = 1.0, ended: bool = True) -> TrainingRun:
    """Its journal is read: epochs of five steps, with these digests at their ends."""
    lines: list[journal.Event] = [cast.started(epochs=2), EXACT]
    for epoch, digest in digests.items():
        lines += [cast.step(number, epoch=epoch, loss=losses / number) for number in range(5 * epoch - 4, 5 * epoch + 1)]
        lines.append(journal.Digest(5 * epoch, epoch, digest))
    cast.write_journal(run, *lines, *([cast.finished()] if ended else []))
    ingest.catch_up(run.pk, now=NOW)
    if ended:
        TrainingRun.objects.filter(pk=run.pk).update(state="completed", ended_at=NOW)
    return TrainingRun.objects.get(pk=run.pk)


def sealed(user: User, run: TrainingRun) -> dict[str, Any]:
    answer = api.of(user, "read").get(f"/runs/{run.pk}/receipt")
    assert answer.status_code == 200, answer.content
    return dict(answer.json())


def test_a_receipt_says_what_was_computed_with_and_what_came_of_it(run: TrainingRun, alice: User, victor: User) -> None:
    trained(run, {1: A, 2: B})
    card = sealed(victor, run)["card"]
    assert card["code"]["sha256"] == run.version.bundle.sha256
    assert card["code"]["command"] == "main.py --lr 0.1"
    assert card["variables"] == {"GREETING": "hi"}
    assert card["seed"] == cast.started().seed
    assert card["shape"]["engines"] == 4
    assert card["exact"] == {"promised": True, "checked": True, "reasons": []}
    assert card["digests"] == [{"epoch": 1, "step": 5, "digest": A}, {"epoch": 2, "step": 10, "digest": B}]
    assert card["run"]["submitted_by"] == "alice" and card["run"]["state"] == "completed"


def test_secrets_are_not_in_it(run: TrainingRun, alice: User, project: Project) -> None:
    services.set_variable(project, by=alice, name="HF_TOKEN", value="hf_s3cret", secret=True, now=NOW)
    trained(run, {1: A})
    assert "hf_s3cret" not in json.dumps(sealed(alice, run))


def test_it_is_checked_without_a_studio_and_by_the_one_that_sealed_it(run: TrainingRun, alice: User, charlie: User, as_: As) -> None:
    trained(run, {1: A, 2: B})
    raw = as_(alice).get(reverse("run_receipt", args=[run.pk])).content
    assert (client.check(raw).problem, client.check(raw).signature) == ("", True)
    assert client.check(raw).key == seals.public_key()
    assert api.of(charlie, "write").post("/receipts/check", json.loads(raw)).json()["ours"] is True, "whoever is shown one may ask"


def changed(receipt: dict[str, Any]) -> list[dict[str, Any]]:
    card, seal = receipt["card"], receipt["seal"]
    better = {**card, "metrics": {"test accuracy": 1.0}}
    summed = {**seal, "sha256": hashlib.sha256(client.canonical(better)).hexdigest()}
    return [{**receipt, "card": better}, {**receipt, "card": better, "seal": summed}, {**receipt, "seal": {**seal, "signature": "AAAA"}}]


def test_a_changed_receipt_is_found_out(run: TrainingRun, alice: User) -> None:
    trained(run, {1: A})
    for each in changed(sealed(alice, run)):
        assert client.check(json.dumps(each).encode()).problem in (client.CHANGED, client.FORGED)
        assert api.of(alice).post("/receipts/check", each).json()["ours"] is False


def test_another_studios_receipt_is_not_ours(run: TrainingRun, alice: User, settings: Any) -> None:
    trained(run, {1: A})
    receipt, key = sealed(alice, run), settings.SECRET_KEY
    settings.SECRET_KEY = key + "other"
    theirs = seals.sealed(receipt["card"])
    settings.SECRET_KEY = key
    assert client.check(json.dumps(theirs).encode()).problem == "", "it is sound, of that studio"
    assert not seals.is_ours(theirs) and seals.is_ours(receipt)


@pytest.mark.parametrize("depth", [300, 5_000, 100_000])
def test_a_receipt_of_brackets_is_refused_and_breaks_nothing(alice: User, depth: int) -> None:
    card = b'{"a":' * depth + b"1" + b"}" * depth
    sent = b'{"kind": "edt-receipt-1", "card": ' + card + b', "seal": {"sha256": "", "key": "", "signature": ""}}'
    answer = api.of(alice).send("POST", "/receipts/check", sent)
    assert answer.status_code in (200, 400, 422), answer.content
    assert answer.status_code != 200 or answer.json()["ours"] is False


@pytest.mark.parametrize(
    "raw", [b"", b"[]", b"{}", b"[" * 100_000, b'{"kind": "edt-receipt-1", "card": [], "seal": {}}', b"\xff", b'{"card": {"a": NaN}}']
)
def test_nonsense_is_no_receipt(raw: bytes) -> None:
    assert client.check(raw).problem == client.NO_RECEIPT


def test_both_sides_sign_the_same_bytes() -> None:
    card = {"b": 1.5, "a": "größer \u2028", "c": {"y": None, "x": [True, 1e-300]}}
    assert client.canonical(card) == seals.canonical(card)


def test_a_run_that_lives_or_was_logged_from_outside_has_none(run: TrainingRun, alice: User, as_: As) -> None:
    assert "has not ended" in api.of(alice).get(f"/runs/{run.pk}/receipt").json()["detail"]
    assert as_(alice).get(reverse("run_receipt", args=[run.pk])).status_code == 302
    TrainingRun.objects.filter(pk=run.pk).update(outside=True, state="completed")
    assert "from outside" in api.of(alice).get(f"/runs/{run.pk}/receipt").json()["detail"]


def again(run: TrainingRun, by: User) -> TrainingRun:
    return services.reproduce(TrainingRun.objects.get(pk=run.pk), by=by)


def shown(client: Client, run: TrainingRun) -> str:
    page = client.get(reverse("run_overview", args=[run.pk])).content.decode()
    (found,) = re.findall(r'<span class="reproduction">(.*?)</span>', page, re.DOTALL)
    return re.sub(r"<[^>]*>", "", found)


def test_it_is_done_again_with_all_that_it_had(run: TrainingRun, bob: User) -> None:
    trained(run, {1: A})
    made = again(run, bob)
    same = ("command", "environment", "version_id", "experiment_id", "min_slots", "max_slots", "data_folder", "continues")
    assert {name: getattr(made, name) for name in same} == {name: getattr(run, name) for name in same}
    assert (made.reproduces, made.submitted_by, made.name) == (run.pk, bob, f"{run.name}, reproduced")
    assert made.transitions.get().reason == f"Submitted by bob, to reproduce run {run.pk}."


def test_it_says_so_far_then_identical(run: TrainingRun, alice: User, as_: As) -> None:
    trained(run, {1: A, 2: B})
    made = again(run, alice)
    assert shown(as_(alice), made).startswith("Not compared yet")
    made = trained(made, {1: A}, ended=False)
    assert shown(as_(alice), made).startswith("The same so far: the state after 1 epoch")
    cast.write_journal(made, *(cast.step(n, epoch=2, loss=1 / n) for n in range(6, 11)), journal.Digest(10, 2, B), cast.finished())
    ingest.catch_up(made.pk, now=NOW)
    TrainingRun.objects.filter(pk=made.pk).update(state="completed", ended_at=NOW)
    assert shown(as_(alice), made).startswith("Identical, bit for bit: the state after each of 2 epochs")
    told = api.of(alice).get(f"/runs/{made.pk}/reproduction").json()
    assert (told["result"], told["run"], told["epochs"], told["apart"]) == ("identical", run.pk, 2, None)
    repeated = as_(alice).get(reverse("run_overview", args=[run.pk])).content.decode()
    assert f'Repeated by <a href="{reverse("run_overview", args=[made.pk])}">' in repeated


def test_the_first_difference_is_found(run: TrainingRun, alice: User, as_: As) -> None:
    trained(run, {1: A, 2: B})
    made = trained(again(run, alice), {1: A, 2: A}, losses=2.0)
    told = api.of(alice).get(f"/runs/{made.pk}/reproduction").json()
    assert (told["result"], told["epochs"]) == ("different", 1)
    assert told["apart"] == {"curve": "train loss", "step": 1, "then": 1.0, "now": 2.0}
    assert "after epoch 2 (step 10)" in shown(as_(alice), made)


def test_a_value_that_is_missing_or_no_number_is_a_difference_too(run: TrainingRun, alice: User) -> None:
    trained(run, {1: A})
    made = trained(again(run, alice), {})
    assert reproductions.compare_curves(run, made).curves == 0
    cast.write_journal(made, cast.step(1, loss=float("nan")), cast.step(5, loss=0.2))
    ingest.catch_up(made.pk, now=NOW)
    assert reproductions.compare_curves(run, made).apart == ("train loss", 1, 1.0, None)


def test_what_they_were_not_given_alike_is_said(run: TrainingRun, alice: User, as_: As) -> None:
    trained(run, {1: A})
    made = trained(again(run, alice), {1: B})
    TrainingRun.objects.filter(pk=made.pk).update(environment={"GREETING": "hello"})
    told = api.of(alice).get(f"/runs/{made.pk}/reproduction").json()
    assert told["inputs"] == [{"name": "variables GREETING", "then": "hi", "now": "hello"}]
    assert "They were not given the same: variables GREETING." in told["sentence"]


def test_an_epoch_that_came_out_in_two_ways_takes_the_promise_back(run: TrainingRun, alice: User) -> None:
    trained(run, {1: A}, ended=False)
    cast.write_journal(run, journal.Digest(5, 1, A))
    ingest.catch_up(run.pk, now=NOW)
    assert TrainingRun.objects.get(pk=run.pk).exact is True, "said twice, and the same"
    cast.write_journal(run, journal.Digest(5, 1, B))
    ingest.catch_up(run.pk, now=NOW)
    run.refresh_from_db()
    assert run.exact is False
    assert run.exact_reasons == ["epoch 1 was computed twice, after an interruption, and its state was another one the second time"]
    assert [each.digest for each in run.digests.all()] == [A]
    cast.write_journal(run, journal.Exactness(("it draws", "it counts"), checked=True, build="torch"), EXACT)
    ingest.catch_up(run.pk, now=NOW)
    run.refresh_from_db()
    assert (run.exact, len(run.exact_reasons)) == (False, 1), "the next attempt says that it is exact, and takes nothing back"


def test_a_digest_that_is_none_is_refused(run: TrainingRun) -> None:
    cast.write_journal(run, journal.Digest(5, 1, "<script>"), journal.Digest(-5, 1 << 80, A))
    ingest.catch_up(run.pk, now=NOW)
    assert [(each.epoch, each.step) for each in run.digests.all()] == [((1 << 31) - 1, 0)]


def test_the_same_request_makes_one(run: TrainingRun, alice: User, as_: As) -> None:
    trained(run, {1: A})
    form = {"idempotency_key": str(uuid.uuid4())}
    answers = [as_(alice).post(reverse("reproduce_run", args=[run.pk]), form) for _ in range(2)]
    assert len({answer["Location"] for answer in answers}) == 1
    assert TrainingRun.objects.filter(reproduces=run.pk).count() == 1


def test_viewers_read_receipts_and_reproduce_nothing_and_strangers_see_neither(
    run: TrainingRun, alice: User, victor: User, charlie: User, as_: As
) -> None:
    trained(run, {1: A})
    made = again(run, alice)
    for address in ("run_receipt", "reproduce_run"):
        assert as_(charlie).post(reverse(address, args=[run.pk])).status_code in (404, 405)
    assert as_(charlie).get(reverse("run_receipt", args=[run.pk])).status_code == 404
    assert as_(victor).get(reverse("run_receipt", args=[run.pk])).status_code == 200
    assert as_(victor).post(reverse("reproduce_run", args=[run.pk])).status_code == 403
    assert "Reproduce" not in as_(victor).get(reverse("run_overview", args=[run.pk])).content.decode()
    assert api.of(victor).get(f"/runs/{made.pk}/reproduction").status_code == 200


def test_a_run_is_not_reproduced_while_it_lives_or_where_its_beginning_is_gone(run: TrainingRun, alice: User) -> None:
    with pytest.raises(DomainError, match="has not ended"):
        again(run, alice)
    trained(run, {1: A})
    TrainingRun.objects.filter(pk=run.pk).update(continues=999_999)
    with pytest.raises(DomainError, match="last checkpoint of run 999999"):
        again(run, alice)


def test_one_whose_original_is_gone_says_so(run: TrainingRun, alice: User, as_: As) -> None:
    trained(run, {1: A})
    made = again(run, alice)
    services.delete_run(TrainingRun.objects.get(pk=run.pk), by=alice)
    assert shown(as_(alice), made).startswith("The run that it repeats was deleted")


def test_digests_go_with_their_run_and_with_nothing_else(run: TrainingRun, alice: User) -> None:
    trained(run, {1: A})
    other = trained(again(run, alice), {1: A})
    services.delete_run(TrainingRun.objects.get(pk=run.pk), by=alice)
    cast.empty_trash()
    assert set(StateDigest.objects.values_list("run_id", flat=True)) == {other.pk}
    assert receipts.card(other)["digests"]
