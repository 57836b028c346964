"""A script that logs with MLflow's own client, unmodified, has it in the journal: figures, parameters, tags; artifacts are results."""

from __future__ import annotations

import json
import os
import signal

import pytest

from tests.engine.harness import until_gone
from tests.engine.scripts import SMALL

LOGS = """
import os, time
import mlflow
result = os.environ["RESULT_DIR"]
mlflow.set_experiment("digits")
with mlflow.start_run(run_name="first") as run:
    mlflow.log_params({"lr": 0.1, "optimizer": "adam"})
    mlflow.set_tag("team", "vision")
    mlflow.set_tag("gone", "soon")
    mlflow.delete_tag("gone")
    for step in range(1, 4):
        mlflow.log_metrics({"loss": 1.0 / step, "val_loss": float("nan")}, step=step)
    for _ in range(3):
        mlflow.log_metric("uncounted", 7)
    while os.path.exists(result + "/stay"):
        time.sleep(0.005)
    mlflow.log_text("hello", "notes/hello.txt")
    mlflow.log_dict({"a": 1}, "report.json")
    with mlflow.start_run(run_name="fold 1", nested=True) as child:
        mlflow.log_metric("loss", 0.5, step=9)
        mlflow.log_param("fold", 1)
client = mlflow.MlflowClient()
seen = client.get_run(run.info.run_id)
assert run.info.run_id == os.environ["TRAINING_ID"], run.info
assert seen.data.params == {"lr": "0.1", "optimizer": "adam"}, seen.data
assert seen.data.tags["team"] == "vision" and "gone" not in seen.data.tags
assert (seen.data.metrics["loss"], seen.info.status) == (1 / 3, "FINISHED")
assert [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, "uncounted")] == [(0, 7), (1, 7), (2, 7)]
assert [one.info.run_id for one in client.search_runs(["0"], "metrics.loss > 0.4 AND params.fold = '1'")] == [child.info.run_id]
assert {file.path for file in client.list_artifacts(run.info.run_id)} >= {"notes", "report.json"}
try:
    client.log_metric(run.info.run_id, "x" * 300, 1.0)
except mlflow.MlflowException as refused:
    assert refused.error_code == "INVALID_PARAMETER_VALUE", refused
else:
    raise AssertionError("a name of 300 characters was taken")
"""
STUDIO = {"TRAINING_ID": "7", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_ENABLE_ASYNC_TRACE_LOGGING": "false"}


def logged(run) -> list[tuple]:
    return [(e.group, e.step, *e.metrics) for e in run.events("logged")]


def noted(run) -> tuple[dict, dict]:
    parameters: dict[str, str] = {}
    tags: dict[str, str] = {}
    for event in run.events("noted"):
        event.apply(parameters, tags)
    return parameters, tags


def test_what_the_client_logs_is_in_the_journal_and_a_second_attempt_goes_on(start, tmp_path):
    (tmp_path / "0/result").mkdir(parents=True)
    (tmp_path / "0/result/stay").touch()
    run = start(LOGS, env=STUDIO)
    run.until(lambda: len(run.events("logged")) == 9, what="the figures while the script runs")
    assert run.events("finished") == []
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    until_gone(run.pid)
    before = len(run.events("noted"))
    (run.result_dir / "stay").unlink()
    run.again()
    assert run.wait() == 0, run.tail()
    assert not any(event.parameters.get("lr") for event in run.events("noted")[before:]), "what is known is not told again"
    steps = [(group, step, name) for step in (1, 2, 3) for group, name in (("train", "loss"), ("test", "val_loss"))]
    counted = [("train", step, "uncounted") for step in range(3)]
    assert logged(run) == [*steps, *counted, *steps, *counted, ("train", 9, "fold 1/loss")]
    parameters, tags = noted(run)
    assert parameters == {"lr": "0.1", "optimizer": "adam", "fold 1/fold": "1"}
    assert tags["team"] == "vision" and "gone" not in tags
    assert (run.result_dir / "artifacts/notes/hello.txt").read_text() == "hello"
    assert json.loads((run.result_dir / "artifacts/report.json").read_text()) == {"a": 1}
    assert run.events("finished")[-1].metrics["train loss"] == pytest.approx(1 / 3)


STRANGERS = """
import json, os, urllib.error, urllib.request
def refused(path, token, body=None):
    request = urllib.request.Request(os.environ["MLFLOW_TRACKING_URI"] + path, data=body, headers={"Authorization": "Bearer " + token})
    try:
        urllib.request.urlopen(request)
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())["error_code"]
own = os.environ["MLFLOW_TRACKING_TOKEN"]
open(os.environ["RESULT_DIR"] + "/token", "w").write(own)
assert refused("/api/2.0/mlflow/runs/get?run_id=7", "another") == (401, "UNAUTHENTICATED")
assert refused("/api/2.0/mlflow/runs/get?run_id=8", own) == (404, "RESOURCE_DOES_NOT_EXIST")
assert refused("/api/2.0/mlflow/runs/unheard-of", own, b"{}") == (404, "ENDPOINT_NOT_FOUND")
assert refused("/elsewhere", own) == (404, "ENDPOINT_NOT_FOUND")
assert refused("/api/2.0/mlflow/runs/log-metric", own, b"[") == (400, "INVALID_PARAMETER_VALUE")
bad = b'{"run_id": "7", "key": "loss", "value": "high", "timestamp": 0}'
assert refused("/api/2.0/mlflow/runs/log-metric", own, bad) == (400, "INVALID_PARAMETER_VALUE")
assert os.fork() or os._exit(0) is None
assert refused("/api/2.0/mlflow/runs/get?run_id=7", own) is None
"""


def test_only_the_run_gets_in_and_bad_requests_are_told_why(start):
    run = start(STRANGERS)
    assert run.wait() == 0, run.tail()
    secret = (run.result_dir / "token").read_text()
    assert secret not in run.log.read_text() and secret not in (run.result_dir / "journal.jsonl").read_text()


def test_a_run_with_a_server_of_its_own_keeps_it(start):
    run = start('import os; assert os.environ["MLFLOW_TRACKING_URI"] == "http://mine" and "MLFLOW_TRACKING_TOKEN" not in os.environ',
                env={"MLFLOW_TRACKING_URI": "http://mine"})  # fmt: skip
    assert run.wait() == 0, run.tail()


TRAINS = "import mlflow; mlflow.log_param('before', 1)\n" + SMALL + "\nmlflow.log_metric('after', 1.0, step=1)\n"


def test_a_script_that_trains_forks_its_workers_as_ever(start):
    run = start(TRAINS, "--epochs", "1", env=STUDIO)
    run.members(0)
    assert run.wait() == 0, run.tail()
    assert noted(run)[0] == {"before": "1"}
    assert ("train", 1, "after") in logged(run)
    assert run.events("exactness")[-1].checked
    assert not run.events("warning"), run.events("warning")


def test_workers_of_torch_distributed_log_too(start):
    run = start("import os, mlflow\nif os.environ['RANK'] == '0': mlflow.log_metric('loss', 0.5, step=3)", torchrun="elastic", env=STUDIO)
    run.members(0, 1)
    assert run.wait() == 0, run.tail()
    assert logged(run) == [("train", 3, "loss")]
