"""MLflow's own client, unmodified, on somebody's machine logs a run of its own: it is a run like every other, and no plan knows it."""

from __future__ import annotations

import datetime as dt
import io
import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import mlflow
import pytest
from django.test import Client
from django.urls import reverse
from mlflow import MlflowClient, MlflowException

from experiments import services
from experiments.cluster import scheduling
from experiments.errors import DomainError
from experiments.files import runfiles
from experiments.metrics import ingest
from experiments.models import ClusterRules, Metric, Node, Project, RunState, TrainingRun, User
from experiments.services import outside
from tests import cast
from tests.web import wmla
from tests.web.browsing import Site, Visit, agree, go
from training_runtime import journal

NOW = dt.datetime(2026, 11, 22, 12, 0, tzinfo=dt.UTC)


@pytest.fixture
def person(site: Site, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], MlflowClient]]:
    """person("bob") -> his client, which `mlflow.` uses as well."""

    def client(name: str) -> MlflowClient:
        monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", name)
        monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", cast.PASSWORD)
        monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
        monkeypatch.setenv("MLFLOW_TRACKING_URI", site.pages["url"])
        mlflow.set_tracking_uri(site.pages["url"])
        return MlflowClient(site.pages["url"])

    yield client
    if mlflow.active_run() is not None:
        mlflow.end_run()


def digits(client: MlflowClient) -> str:
    return str(client.get_experiment_by_name("Digits").experiment_id)


def test_a_run_is_begun_logged_and_ended_from_a_laptop(site: Site, person: Callable[[str], MlflowClient], tmp_path: Path) -> None:
    bob = person("bob")
    mlflow.set_experiment("Digits")
    (tmp_path / "notes.txt").write_text("as good as it gets")
    with mlflow.start_run(run_name="on my laptop", tags={"team": "vision"}) as begun:
        mlflow.log_params({"lr": 0.1, "depth": 4})
        for step in range(1, 11):
            mlflow.log_metrics({"loss": 1 / step, "val_loss": 2 / step}, step=step)
        for _ in range(3):
            mlflow.log_metric("uncounted", 7)
        mlflow.log_metric("broken", float("nan"), step=1)
        mlflow.set_tag("stage", "first")
        mlflow.log_artifact(str(tmp_path / "notes.txt"), "texts")
        mlflow.log_text("<script>alert(1)</script>", "page.html")
        mlflow.log_dict({"a": 1}, "report.json")
        run_id = begun.info.run_id
        during = bob.get_run(run_id)
        assert (during.info.status, during.data.params) == ("RUNNING", {"lr": "0.1", "depth": "4"})
    ended = bob.get_run(run_id)
    assert (ended.info.status, ended.info.run_name, ended.data.tags["edt.state"]) == ("FINISHED", "on my laptop", "completed")
    assert (ended.data.metrics["loss"], ended.data.metrics["uncounted"]) == (0.1, 7)
    assert (ended.data.tags["team"], ended.data.tags["stage"]) == ("vision", "first")
    assert [(one.step, one.value) for one in bob.get_metric_history(run_id, "loss")] == [(step, 1 / step) for step in range(1, 11)]
    assert [one.step for one in bob.get_metric_history(run_id, "uncounted")] == [0, 1, 2]
    assert sorted(file.path for file in bob.list_artifacts(run_id)) == ["page.html", "report.json", "texts"]
    assert Path(bob.download_artifacts(run_id, "texts/notes.txt", str(tmp_path))).read_text() == "as good as it gets"
    assert run_id in [one.info.run_id for one in bob.search_runs([ended.info.experiment_id], "params.depth = '4'")]


@pytest.mark.parametrize(("status", "state"), [("FAILED", "failed"), ("KILLED", "stopped")])
def test_how_it_ended_is_what_its_logger_says(person: Callable[[str], MlflowClient], status: str, state: str) -> None:
    alice = person("alice")
    run = alice.create_run(digits(alice), run_name="ends")
    alice.set_terminated(run.info.run_id, status)
    found = alice.get_run(run.info.run_id)
    assert (found.info.status, found.data.tags["edt.state"]) == (status, state)


def test_a_run_of_an_experiment_that_nobody_has_is_in_a_project_of_ones_own(person: Callable[[str], MlflowClient]) -> None:
    charlie = person("charlie")
    mlflow.set_experiment("charlie's trials")
    with mlflow.start_run() as begun:
        mlflow.log_metric("loss", 0.5)
    assert charlie.get_run(begun.info.run_id).info.status == "FINISHED"
    with pytest.raises(MlflowException) as refused:
        person("alice").get_run(begun.info.run_id)
    assert refused.value.error_code == "RESOURCE_DOES_NOT_EXIST"


def test_who_may_not_write_is_told_so(person: Callable[[str], MlflowClient]) -> None:
    alice = person("alice")
    project = digits(alice)
    run = alice.create_run(project, run_name="alice's").info.run_id
    victor = person("victor")
    assert victor.get_run(run).info.run_name == "alice's"
    assert person("charlie").get_experiment_by_name("Digits") is None
    for name, code in (("victor", "PERMISSION_DENIED"), ("charlie", "RESOURCE_DOES_NOT_EXIST")):
        client = person(name)
        for do in (
            lambda client: client.create_run(project),
            lambda client: client.log_metric(run, "loss", 0.5),
            lambda client: client.log_param(run, "lr", 1),
            lambda client: client.set_terminated(run),
        ):
            with pytest.raises(MlflowException) as refused:
                do(client)
            assert refused.value.error_code == code
            assert str(refused.value).endswith(".")
    alice = person("alice")
    with pytest.raises(MlflowException) as refused:
        alice.create_run("0")
    assert "mlflow.set_experiment" in str(refused.value)
    assert alice.get_run(run).info.status == "RUNNING"


def put(site: Site, path: str, body: bytes, name: str = "alice") -> tuple[int, str]:
    address = f"{site.pages['url']}/api/2.0/mlflow-artifacts/artifacts/{path}"
    request = urllib.request.Request(address, data=body, method="PUT", headers=wmla.basic(name))
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, ""
    except urllib.error.HTTPError as error:
        return error.code, str(json.loads(error.read())["error_code"])


def test_files_are_kept_inside_the_run_and_nowhere_else(site: Site, person: Callable[[str], MlflowClient]) -> None:
    alice = person("alice")
    run = alice.create_run(digits(alice)).info.run_id
    assert put(site, f"runs/{run}/large.bin", bytes(5 << 20)) == (200, "")
    assert put(site, f"runs/{run}/a/b.txt", b"one") == put(site, f"runs/{run}/a/b.txt", b"two") == (200, "")
    for path in (
        f"runs/{run}/..%2Fjournal.jsonl",
        f"runs/{run}/a",
        f"runs/{run}/a/b.txt/c",
        f"runs/{run}/",
        f"runs/{run}/%07",
        f"runs/{run}/a//b",
    ):
        assert put(site, path, b"x") == (400, "INVALID_PARAMETER_VALUE"), path
    assert put(site, f"runs/{run}/x", b"x", name="victor") == (403, "PERMISSION_DENIED")
    assert put(site, f"runs/{run}/x", b"x", name="charlie") == (404, "RESOURCE_DOES_NOT_EXIST")
    assert put(site, "runs/0/x", b"x") == (404, "RESOURCE_DOES_NOT_EXIST")
    assert {file.path: file.file_size for file in alice.list_artifacts(run)} == {"a": 0, "large.bin": 5 << 20}
    alice.set_terminated(run)


def test_its_page_has_curves_and_no_slots_and_can_stop_it(site: Site, person: Callable[[str], MlflowClient], visit: Visit) -> None:
    alice = person("alice")
    run = alice.create_run(digits(alice), run_name="watched").info.run_id
    alice.log_metric(run, "loss", 0.5, step=1)
    page = visit()
    page.goto(f"{site.pages['url']}/runs/{run}/")
    page.locator(".uplot").first.wait_for()
    assert page.get_by_text("Logged from outside").first.is_visible()
    assert page.get_by_role("button", name="Pause").count() == 0 and page.get_by_text("Slots allocated").count() == 0
    for tab in ("overview/", "logs/", "media/", "results/"):
        answer = page.goto(f"{site.pages['url']}/runs/{run}/{tab}")
        assert answer is not None and answer.status == 200
    go(page, site, "cluster")
    page.goto(f"{site.pages['url']}/runs/{run}/")
    page.get_by_role("button", name="Stop").first.click()
    agree(page)
    page.locator(".run-state", has_text="Stopped by alice").wait_for()
    with pytest.raises(MlflowException) as refused:
        alice.log_metric(run, "loss", 0.4, step=2)
    assert "stopped on its page" in str(refused.value)


@pytest.fixture
def run(project: Project, alice: User) -> TrainingRun:
    return outside.begin_run(project, by=alice, name="laptop", began_at=NOW, now=NOW)


def test_no_plan_knows_it(run: TrainingRun, project: Project, alice: User) -> None:
    node = cast.node(now=NOW)
    scheduled = cast.run(project, by=alice, now=NOW)
    scheduling.tick(NOW)
    run.refresh_from_db()
    scheduled.refresh_from_db()
    assert (run.state, run.head_node, run.grants.count()) == (RunState.RUNNING, None, 0)
    assert (scheduled.head_node, scheduled.grants.count()) == (node, 4)
    for do in (
        lambda: services.pause_run(run, by=alice),
        lambda: services.set_priority(run, by=alice, priority=1),
        lambda: services.set_slots(run, by=alice, min_slots=1, max_slots=2),
        lambda: services.run_experiment(run.experiment, by=alice),
        lambda: services.delete_definition(run.version.definition, by=alice),
    ):
        with pytest.raises(DomainError):
            do()
    assert Node.objects.count() == 1 and ClusterRules.objects.count() == 1


def test_several_runs_share_an_experiment_and_a_definition(run: TrainingRun, project: Project, alice: User, bob: User) -> None:
    second = outside.begin_run(project, by=bob, name="another", began_at=NOW - dt.timedelta(hours=1), now=NOW)
    assert (second.experiment, second.version, second.started_at) == (run.experiment, run.version, NOW - dt.timedelta(hours=1))


def test_what_was_written_before_a_crash_is_taken_in_with_what_follows(run: TrainingRun) -> None:
    cast.write_journal(run, journal.Logged("train", 1, {"loss": 1.0}))  # and the studio ended before it was in the database
    outside.log(run, [(journal.Logged("train", 2, {"loss": 0.5}), NOW.timestamp())], now=NOW)
    assert list(Metric.objects.filter(series__run=run).values_list("step", "value")) == [(1, 1.0), (2, 0.5)]
    assert ingest.catch_up(run.pk, now=NOW) == 0


def test_it_is_deleted_as_every_run_and_nothing_else_is(run: TrainingRun, project: Project, alice: User) -> None:
    other = outside.begin_run(project, by=alice, name="stays", began_at=NOW, now=NOW)
    for each in (run, other):
        outside.receive_file(each, "artifacts/a.txt", io.BytesIO(b"kept"))
    with pytest.raises(DomainError):
        services.delete_run(run, by=alice)
    outside.end_run(run, "completed", by=alice, at=NOW, now=NOW)
    services.delete_run(run, by=alice)
    cast.empty_trash()
    assert not runfiles.folder(run).exists()
    assert runfiles.read(other, "artifacts/a.txt", begin=0, limit_bytes=9)[0] == b"kept"


def test_a_file_that_is_too_large_leaves_nothing(run: TrainingRun, settings: object) -> None:
    settings.EDT_MAX_UPLOAD_BYTES = 10  # type: ignore[attr-defined]
    with pytest.raises(DomainError):
        outside.receive_file(run, "artifacts/a.txt", io.BytesIO(bytes(11)))
    assert list((runfiles.folder(run) / "artifacts").iterdir()) == []


def test_no_link_leads_out(run: TrainingRun, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (runfiles.make(run) / "artifacts").symlink_to(elsewhere)
    with pytest.raises(FileNotFoundError):
        outside.receive_file(run, "artifacts/a.txt", io.BytesIO(b"x"))
    assert list(elsewhere.iterdir()) == []


def test_pages_answer(run: TrainingRun, alice: User) -> None:
    client = Client()
    client.force_login(alice)
    for name in ("run", "run_overview", "run_logs", "run_results", "run_media", "change_run", "preview_run"):
        assert client.get(reverse(name, args=[run.pk])).status_code == 200, name
    for name in ("experiment", "experiment_overview", "compare"):
        assert client.get(reverse(name, args=[run.experiment_id])).status_code == 200, name
    assert client.get(reverse("new_experiment", args=[run.experiment.project_id]), {"like": run.experiment_id}).status_code == 200
    assert client.get(reverse("definition", args=[run.version.definition_id])).status_code == 200
    assert client.get(reverse("code", args=[run.version_id])).status_code == 200
    for name in ("jobs", "assets", "project"):
        assert client.get(reverse(name, args=[run.experiment.project_id])).status_code == 200, name
    for name in ("cluster", "usage"):
        assert client.get(reverse(name)).status_code == 200, name
