"""Ray as an engine that lends machines: what its Jobs API is asked for, what is made of its answers, and what nobody can ask for or
read."""

from __future__ import annotations

import io
import json
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from experiments.cluster import ray, ray_options
from experiments.cluster.providers import EngineProblem, Order
from tests.domain.ray_dashboard import WAITS, Dashboard, answer, dashboard_of

ORDER = Order("edt-1-gpu-1-1", "gpu-1", "https://studio.example.org", "edtn_s3cret", 60, 100, 4, ["--entrypoint-num-cpus=4"])


@pytest.fixture
def dashboard(settings: Any) -> Iterator[Dashboard]:
    with dashboard_of(settings) as server:
        yield server


# --- what it is asked for -----------------------------------------------------------------------------------------------------------------


def test_options_become_fields_of_the_jobs_api() -> None:
    words = ray.Ray().check(
        "--entrypoint-num-cpus=8 --entrypoint-num-gpus=0.5 --entrypoint-memory=8000000000 "
        """--entrypoint-resources='{"accelerator_type:A100": 0.001}' --entrypoint-label-selector='{"ray.io/market-type": "!in(spot)"}'"""
    )
    assert ray_options.request(words) == {
        "entrypoint_num_cpus": 8.0,
        "entrypoint_num_gpus": 0.5,
        "entrypoint_memory": 8000000000,
        "entrypoint_resources": {"accelerator_type:A100": 0.001},
        "entrypoint_label_selector": {"ray.io/market-type": "!in(spot)"},
    }


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("", "a job that asks for nothing is put on the head node"),
        ("--entrypoint-num-cpus=0", "a job that asks for nothing is put on the head node"),
        ("""--entrypoint-label-selector='{"a": "b"}'""", "a job that asks for nothing is put on the head node"),
        ("--entrypoint-num-cpus=1 --runtime-env-json={}", "'--runtime-env-json' cannot be chosen here"),
        ("--entrypoint-num-cpus=1 --working-dir=/etc", "'--working-dir' cannot be chosen here"),
        ("--entrypoint-num-cpus=1 --address=http://elsewhere", "'--address' cannot be chosen here"),
        ("--entrypoint-num-cpus=1 -- id", "'--' cannot be chosen here"),
        ("--entrypoint-num-cpus=1 --entrypoint=id", "'--entrypoint' cannot be chosen here"),
        ("--entrypoint-num-cpus 4", "'--entrypoint-num-cpus' cannot be chosen here: write --entrypoint-num-cpus=4"),
        ("--entrypoint-num-cpus=1 --entrypoint-num-cpus=2", "is there twice"),
        ("--entrypoint-num-cpus=nan", "a number of 0 or more"),
        ("--entrypoint-num-cpus=inf", "a number of 0 or more"),
        ("--entrypoint-num-gpus=-1", "a number of 0 or more"),
        ("--entrypoint-memory=1.5", "a whole number of bytes"),
        ("--entrypoint-memory=٣", "a whole number of bytes"),
        ("--entrypoint-resources=[1]", "names and values as JSON"),
        ("--entrypoint-resources=" + "[" * 900, "names and values as JSON"),
        ("""--entrypoint-resources='{"a": true}'""", "a number of 0 or more"),
        ("""--entrypoint-resources='{"a": "1"}'""", "a number of 0 or more"),
        ("""--entrypoint-resources='{"<b>": 1}'""", "is no name of Ray's"),
        ("""--entrypoint-num-cpus=1 --entrypoint-label-selector='{"a": 1}'""", "a label's value is a word"),
        ("""--entrypoint-num-cpus=1 --entrypoint-label-selector='{"a": "$(id)"}'""", "a label's value is a word"),
        ("--entrypoint-num-cpus='4", "No closing quotation"),
    ],
)
def test_an_administrator_chooses_resources_and_nothing_else(options: str, words: str) -> None:
    with pytest.raises(ValueError) as refused:
        ray.Ray().check(options)
    assert words in str(refused.value)


def test_nothing_that_a_dashboard_shows_of_a_job_is_secret(dashboard: Dashboard) -> None:
    assert ray.Ray().hold(ORDER) == "edt-1-gpu-1-1"
    (put, where, package), (post, address, body) = dashboard.asked
    assert (put, post, address) == ("PUT", "POST", "/api/jobs/")
    asked = json.loads(body)
    assert asked == {
        "submission_id": "edt-1-gpu-1-1",
        "entrypoint": "exec sh ./pilot.sh",
        "metadata": {"edt_node": "gpu-1", "edt_lasts_s": "3600"},
        "runtime_env": {
            "working_dir": where.replace("/api/packages/gcs/", "gcs://"),
            "env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": "120"},
        },
        "entrypoint_num_cpus": 4.0,
    }
    with zipfile.ZipFile(io.BytesIO(package)) as files:
        assert files.read("token") == b"edtn_s3cret\n"
        assert {each.filename: oct(each.external_attr >> 16) for each in files.infolist()} == dict.fromkeys(files.namelist(), "0o600")
    assert "s3cret" not in repr(ORDER)


def test_what_the_script_is_told_are_words_to_it_and_no_commands(tmp_path: Path, settings: Any) -> None:
    settings.EDT_PILOT_FOLDER = "/tmp/$(touch one)"
    order = Order("n", "n", "https://a/';touch two;'`touch three`", "t", 60, 10, 4, ["--entrypoint-num-cpus=1"])
    with zipfile.ZipFile(io.BytesIO(ray.packed(order))) as files:
        files.extract("order", tmp_path)
    read = '. ./order && printf "%s|%s|%s" "$studio" "$parent" "$lasts_s"'
    said = subprocess.run(["sh", "-c", read], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert said == "https://a/';touch two;'`touch three`|/tmp/$(touch one)|3600"
    assert [path.name for path in tmp_path.iterdir()] == ["order"]


# --- what is made of its answers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "message", "standing", "words"),
    [
        ("PENDING", WAITS, "waiting", f"PENDING: {WAITS}"),
        ("RUNNING", "Job is currently running.", "running", "RUNNING on 192.0.2.7: Job is currently running."),
        ("STOPPED", "Job was intentionally stopped.", "ended", "STOPPED: Job was intentionally stopped."),
        ("SUCCEEDED", "Job finished successfully.", "ended", "SUCCEEDED: Job finished successfully."),
        ("FAILED", "exit code 1, last\n\x1b[31mlines:\r\n a", "ended", "FAILED: exit code 1, last [31mlines: a"),
        ("A_NEW_ONE", "?", "ended", "A_NEW_ONE: ?"),
    ],
)
def test_how_a_job_is_in_rays_words(status: str, message: str, standing: str, words: str) -> None:
    lease = ray.lease_of(answer("edt-1-gpu-1-1", status, message))
    assert lease is not None
    assert (lease.id, lease.name, lease.standing, lease.words) == ("edt-1-gpu-1-1", "edt-1-gpu-1-1", standing, words)
    assert (lease.left_s, lease.lasts_s, lease.unserved) == (None, 3600.0, False)


def test_of_a_long_message_the_beginning_and_the_end_are_kept() -> None:
    words = ray.words_of(answer("edt-1-gpu-1-1", "FAILED", "Job failed with exit code 127: " + "line " * 4000 + "nosuch: not found"))
    assert words.startswith("FAILED: Job failed with exit code 127: line")
    assert words.endswith("nosuch: not found")
    assert len(words) < 1000


@pytest.mark.parametrize("metadata", [None, {}, {"edt_lasts_s": "-5"}, {"edt_lasts_s": "1e9"}, {"edt_lasts_s": None}, "x"])
def test_one_whose_length_nobody_can_read_has_none(metadata: object) -> None:
    lease = ray.lease_of(answer("edt-1-gpu-1-1", "RUNNING", "", metadata=metadata))
    assert lease is not None
    assert lease.lasts_s is None


@pytest.mark.parametrize(
    ("says", "words"),
    [
        ((200, "<html>another server</html>"), "answers, but not as Ray's dashboard does"),
        ((200, '{"jobs": []}'), "answers, but not as Ray's dashboard does"),
        ((403, "Forbidden: Invalid authentication token"), r"Forbidden: Invalid authentication token \(EDT_RAY_TOKEN\)"),
        ((500, "Traceback (most recent call last):\n  File\nValueError: no such thing\n.\n"), "^ValueError: no such thing$"),
        ((503, ""), "status 503"),
        ((307, "there"), "there"),
    ],
)
def test_what_it_cannot_say_is_told_in_its_words(dashboard: Dashboard, says: tuple[int, str], words: str) -> None:
    dashboard.says = says
    with pytest.raises(EngineProblem, match=words):
        ray.Ray().leases()


def test_an_answer_without_end_is_not_kept_in_memory(dashboard: Dashboard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "MOST_BYTES", 1000)
    dashboard.says = (200, "[" + " " * 5000 + "]")
    with pytest.raises(EngineProblem, match="answers with too much"):
        ray.Ray().leases()


def test_the_name_of_a_job_is_no_path(dashboard: Dashboard) -> None:
    ray.Ray().release("edt-1/../../packages?x=#-7", begun=True, hurry=False)
    assert [path for _, path, _ in dashboard.asked] == ["/api/jobs/edt-1%2F..%2F..%2Fpackages%3Fx%3D%23-7/stop"]


def test_without_an_address_or_a_dashboard_it_says_so(settings: Any) -> None:
    settings.EDT_RAY_ADDRESS = ""
    with pytest.raises(EngineProblem, match="EDT_RAY_ADDRESS"):
        ray.Ray().offers()
    settings.EDT_RAY_ADDRESS = "http://127.0.0.1:1"
    with pytest.raises(EngineProblem, match=r"^http://127.0.0.1:1 cannot be reached: "):
        ray.Ray().offers()
    settings.EDT_RAY_ADDRESS = "http://proxy:s3cret@127.0.0.1:1"
    with pytest.raises(EngineProblem, match=r"^http://127.0.0.1:1 cannot be reached: ") as problem:
        ray.Ray().offers()
    assert "s3cret" not in str(problem.value)


def test_a_token_that_no_header_can_have_is_a_sentence_and_no_crash(dashboard: Dashboard, settings: Any) -> None:
    for token in ("t\u00f6ken", "two\nlines"):
        settings.EDT_RAY_TOKEN = token
        with pytest.raises(EngineProblem, match="cannot be reached"):
            ray.Ray().leases()


def test_what_the_cluster_has_is_said_by_kind_of_machine(dashboard: Dashboard) -> None:
    large = {"CPU": 16.0, "GPU": 4.0, "memory": 64 * 2**30, "object_store_memory": 1.0, "node:192.0.2.7": 1.0, "accelerator_type:A100": 1.0}
    nodes = [
        {"state": "ALIVE", "resources_total": large},
        {"state": "ALIVE", "resources_total": {**large, "memory": 60 * 2**30, "node:192.0.2.8": 1.0}},
        {"state": "ALIVE", "resources_total": {"CPU": 4.0, "memory": 8 * 2**30, "node:__internal_head__": 1.0}},
        {"state": "DEAD", "resources_total": {"CPU": 99.0}},
    ]
    dashboard.says = (200, json.dumps({"result": True, "data": {"result": {"total": 4, "result": nodes}}}))
    assert [(offer.option, offer.words) for offer in ray.Ray().offers()] == [
        ("--entrypoint-num-cpus=16 --entrypoint-num-gpus=4", "2 machines of 16 CPUs, 4 GPUs, accelerator_type:A100, 60 GiB or more"),
        ("--entrypoint-num-cpus=4", "1 machine of 4 CPUs, 8 GiB or more"),
    ]
