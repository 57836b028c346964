"""MLflow's own client, unmodified, on somebody's machine: finds projects and runs, reads curves and files, notes; and is told why not."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path

import mlflow
import pytest
from mlflow import MlflowClient, MlflowException

from tests import cast
from tests.web import wmla
from tests.web.browsing import Site


@pytest.fixture
def person(site: Site, monkeypatch: pytest.MonkeyPatch):
    """person("bob") -> his client."""

    def client(name: str) -> MlflowClient:
        monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", name)
        monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", cast.PASSWORD)
        monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
        monkeypatch.setenv("MLFLOW_TRACKING_URI", site.pages["url"])  # mlflow sets it too, and would leave it to other tests
        mlflow.set_tracking_uri(site.pages["url"])
        return MlflowClient(site.pages["url"])

    return client


def number(site: Site, page: str) -> str:
    return site.pages[page].strip("/").split("/")[1]


def test_a_member_finds_runs_reads_them_and_notes(site: Site, person, tmp_path) -> None:
    alice, done = person("alice"), number(site, "completed run")
    run = alice.get_run(done)
    project = alice.get_experiment(run.info.experiment_id)
    assert alice.get_experiment_by_name(project.name).experiment_id == project.experiment_id
    assert project.experiment_id in [one.experiment_id for one in alice.search_experiments()]
    assert (run.info.status, run.data.tags["edt.state"]) == ("FINISHED", "completed")
    history = alice.get_metric_history(done, "loss")
    assert [point.step for point in history] == sorted({point.step for point in history})
    assert history[-1].value == run.data.metrics["loss"] and "test_loss" in run.data.metrics
    mlflow.set_experiment(project.name)
    with mlflow.start_run(run_id=done):
        mlflow.log_params({"reviewed by": "alice", "depth": 4})
        mlflow.set_tag("verdict", "keep")
        mlflow.set_tag("wrong", "tag")
        mlflow.delete_tag("wrong")
    found = alice.search_runs([project.experiment_id], "tags.verdict = 'keep' AND metrics.loss < 1000", order_by=["metrics.loss ASC"])
    assert [(one.info.run_id, one.data.params["depth"], "wrong" in one.data.tags) for one in found] == [(done, "4", False)]
    every = [one.info.run_id for one in alice.search_runs([project.experiment_id], max_results=1000)]
    page = alice.search_runs([project.experiment_id], max_results=1)
    rest = alice.search_runs([project.experiment_id], max_results=1, page_token=page.token)
    assert [one.info.run_id for one in (*page, *rest)] == every[:2]
    site.tell("artifact notes/one.txt kept with it")
    assert [file.path for file in alice.list_artifacts(done)] == ["notes"]
    assert [file.path for file in alice.list_artifacts(done, "notes")] == ["notes/one.txt"]
    assert Path(alice.download_artifacts(done, "notes/one.txt", str(tmp_path))).read_text() == "kept with it"


@pytest.mark.parametrize(
    ("name", "do", "code"),
    [
        ("charlie", lambda client, run: client.get_run(run), "RESOURCE_DOES_NOT_EXIST"),
        ("charlie", lambda client, run: client.set_tag(run, "mine", "now"), "RESOURCE_DOES_NOT_EXIST"),
        ("charlie", lambda client, run: client.get_metric_history(run, "loss"), "RESOURCE_DOES_NOT_EXIST"),
        ("alice", lambda client, run: client.get_run("no-number"), "RESOURCE_DOES_NOT_EXIST"),
        ("alice", lambda client, run: client.log_metric(run, "loss", 0.1), "NOT_IMPLEMENTED"),
        ("alice", lambda client, run: client.search_runs(["1"], "loss is small"), "INVALID_PARAMETER_VALUE"),
        ("nobody", lambda client, run: client.get_run(run), "UNAUTHENTICATED"),
    ],
)
def test_who_may_not_is_told_so(site: Site, person, name: str, do, code: str) -> None:
    client = person(name)
    with pytest.raises(MlflowException) as refused:
        do(client, number(site, "completed run"))
    assert refused.value.error_code == code
    assert str(refused.value).endswith(".")


def asked(site: Site, path: str, *, method: str = "GET", name: str = "alice", body: bytes | None = None) -> tuple[int, str]:
    request = urllib.request.Request(site.pages["url"] + path, data=body, method=method, headers=wmla.basic(name))
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, ""
    except urllib.error.HTTPError as error:
        return error.code, str(json.loads(error.read())["error_code"])


def test_no_way_leads_out_of_a_runs_artifacts(site: Site) -> None:
    done, store = number(site, "completed run"), "/api/2.0/mlflow-artifacts/artifacts"
    for path in (f"runs/{done}/..%2Fjournal.jsonl", f"runs/{done}/%2e%2e/journal.jsonl", "runs/0/a", "etc/passwd", f"runs/{done}/", "%00"):
        assert asked(site, f"{store}/{path}") == (404, "RESOURCE_DOES_NOT_EXIST"), path
    assert asked(site, f"{store}/runs/{done}/x", method="PUT", body=b"x") == (400, "NOT_IMPLEMENTED")
    assert asked(site, f"{store}?path=runs/{done}", name="charlie") == (404, "RESOURCE_DOES_NOT_EXIST")


@pytest.mark.parametrize("body", [b"[", b"[]", b'{"run_id": {}}', b'{"tags": 7}', b'{"experiment_ids": 7}', b'{"max_results": "x"}'])
def test_bad_requests_are_told_why(site: Site, body: bytes) -> None:
    for what in ("runs/log-batch", "runs/search", "runs/set-tag", "runs/unheard-of"):
        status, code = asked(site, f"/api/2.0/mlflow/{what}", method="POST", body=body)
        assert status in (400, 404) and code.isupper(), (what, status, code)


def test_models_are_registered_pointed_to_and_fetched_by_name_and_alias(site: Site, person, tmp_path) -> None:
    alice, run = person("alice"), number(site, "completed run")
    for path, words in (("net/MLmodel", "flavors"), ("net/data/weights.bin", "1234")):
        site.tell(f"artifact {path} {words}")
    first = mlflow.register_model(f"runs:/{run}/net", "net", tags={"a": "1"})
    second = mlflow.register_model(f"runs:/{run}/net", "net")
    assert [(each.version, each.run_id, each.status) for each in (first, second)] == [("1", run, "READY"), ("2", run, "READY")]
    alice.set_registered_model_alias("net", "champion", 1)
    alice.set_model_version_tag("net", "2", "reviewed", "no")
    assert (alice.get_model_version_by_alias("net", "champion").version, alice.get_model_version("net", "1").tags) == ("1", {"a": "1"})
    assert alice.get_model_version("net", "2").tags == {"reviewed": "no"}
    assert alice.get_registered_model("net").aliases == {"champion": "1"}
    assert {each.version for each in alice.search_model_versions("name = 'net'")} == {"1", "2"}
    assert [each.name for each in alice.search_registered_models("name = 'net'")] == ["net"]
    for address in ("models:/net@champion", "models:/net/2"):
        at = Path(mlflow.artifacts.download_artifacts(artifact_uri=address, dst_path=str(tmp_path / address[-1])))
        assert (at / "MLmodel").read_text() == "flavors"
        assert (at / "data" / "weights.bin").read_text() == "1234"
    alice.delete_registered_model_alias("net", "champion")
    with pytest.raises(MlflowException, match="no alias of that name"):
        alice.get_model_version_by_alias("net", "champion")
    with pytest.raises(MlflowException) as refused:
        person("charlie").get_registered_model("net")
    assert refused.value.error_code == "RESOURCE_DOES_NOT_EXIST"
    victor = person("victor")
    assert victor.get_model_version("net", "1").version == "1"
    with pytest.raises(MlflowException) as refused:
        victor.set_registered_model_alias("net", "mine", 1)
    assert refused.value.error_code == "PERMISSION_DENIED"


@pytest.mark.parametrize("what", ["registered-models/create", "registered-models/get-latest-versions", "model-versions/set-tag"])
def test_half_a_character_in_a_models_name_is_refused(site: Site, what: str) -> None:
    said = rb'{"name": "net \ud800", "version": "1", "key": "k", "value": "v"}'
    assert asked(site, f"/api/2.0/mlflow/{what}", method="POST", body=said) == (400, "INVALID_PARAMETER_VALUE")
