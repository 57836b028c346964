"""The pages, calls and command of pools of pilots: for administrators of the cluster, and what a policy would do before it is stored."""

from __future__ import annotations

from typing import Any

import pytest
from django.urls import reverse

from edt_client.cli import main
from edt_client.client import Studio
from experiments.cluster import fleet
from experiments.models import ClusterChange, PilotPool
from tests.domain.kubernetes_server import api_server_of
from tests.web import api
from tests.web.conftest import As
from tests.web.seed import Seeded
from tests.web.test_nodes_command import Connected

POLICY = {
    "studio": "https://studio.example.org",
    "options": "--partition=gpu",
    "slots": "4",
    "device": "cpu",
    "least": "0",
    "most": "4",
    "idle_minutes": "10",
    "walltime_minutes": "240",
}


def test_an_administrator_makes_a_pool_and_sees_what_is_held_and_why(studio: Seeded, as_: As) -> None:
    client = as_(studio.dora)
    assert 'value="http://testserver"' in client.get(reverse("pilots")).content.decode(), "the studio's own address is proposed"
    answer = client.post(reverse("pilots"), {**POLICY, "name": "big", "provider": "slurm"})
    assert answer["Location"] == reverse("pilot_pool", args=["big"])
    assert "No pilot is held" in client.get(answer["Location"]).content.decode()
    assert ClusterChange.objects.first().text == "dora made the pool of pilots big of Slurm: 0 to 4 of 4 slots each"
    page = client.get(reverse("pilot_pool", args=["gpu"])).content.decode()
    for words in ("Those on their way will do: LeNet would begin.", "PENDING (Resources)", "job 4711", "nobody has needed it for 10 min"):
        assert words in page
    refused = client.post(reverse("pilots"), {**POLICY, "name": "big", "provider": "slurm", "options": "--uid=0"}).content.decode()
    assert "There is a pool big already" in refused
    refused = client.post(reverse("pilot_pool", args=["big"]), {**POLICY, "options": "--uid=0"}).content.decode()
    assert "--uid cannot be chosen here" in refused
    client.post(reverse("pilot_pool", args=["big"]), {**POLICY, "most": "9"})
    assert PilotPool.objects.get(name="big").most == 9


def test_a_policy_says_what_it_would_do_now_and_changes_nothing(studio: Seeded, as_: As) -> None:
    client, address = as_(studio.dora), reverse("preview_pilot_pool", args=["gpu"])
    fleet.drain_node(studio.node, draining=True)
    said = client.get(address, {**POLICY, "least": "2"}).content.decode()
    assert "With this policy now:" in said
    assert "Asks for " in said
    assert "is given back: at most 0 are to be held" in client.get(address, {**POLICY, "most": "0"}).content.decode()
    assert "Give a whole number" in client.get(address, {**POLICY, "most": "x"}).content.decode()
    assert "7 is not possible" in client.get(address, {**POLICY, "least": "7"}).content.decode()
    pool = PilotPool.objects.get(name="gpu")
    assert (pool.least, pool.most, pool.pilots.count()) == (0, 4, 2)


def test_what_slurm_lends_is_asked_for_when_somebody_wants_to_know(studio: Seeded, as_: As, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    said = as_(studio.dora).get(reverse("pilots"), {"part": "offers", "engine": "slurm"}).content.decode()
    assert "sinfo is not installed where the studio" in said
    assert as_(studio.dora).get(reverse("pilots"), {"part": "offers", "engine": "pbs"}).status_code == 404


def test_what_ray_lends_is_asked_of_its_dashboard(studio: Seeded, as_: As, settings: Any) -> None:
    settings.EDT_RAY_ADDRESS = "http://127.0.0.1:1"
    said = as_(studio.dora).get(reverse("pilots"), {"part": "offers", "engine": "ray"}).content.decode()
    assert "http://127.0.0.1:1 cannot be reached" in said
    settings.EDT_RAY_ADDRESS = ""
    said = as_(studio.dora).get(reverse("pilots"), {"part": "offers", "engine": "ray"}).content.decode()
    assert "the setting EDT_RAY_ADDRESS, which says where its dashboard is" in said


def test_what_kubernetes_lends_is_asked_of_its_api_server(studio: Seeded, as_: As, settings: Any) -> None:
    with api_server_of(settings) as server:
        said = as_(studio.dora).get(reverse("pilots"), {"part": "offers", "engine": "kubernetes"}).content.decode()
        assert "the studio&#x27;s account may not see the cluster&#x27;s nodes, so type what a pilot needs" in said
        server.rules.append({"apiGroups": ["scheduling.k8s.io"], "resources": ["priorityclasses"], "verbs": ["list"]})
        server.objects["priorityclasses"] = {"batch": {"metadata": {"name": "batch"}, "value": -10}}
        said = as_(studio.dora).get(reverse("pilots"), {"part": "offers", "engine": "kubernetes"}).content.decode()
        assert "--priority-class=batch" in said
        assert "priority -10" in said
    settings.EDT_KUBERNETES_ADDRESS, settings.EDT_KUBERNETES_ACCOUNT = "", "/nowhere"
    said = as_(studio.dora).get(reverse("pilots"), {"part": "offers", "engine": "kubernetes"}).content.decode()
    assert "the setting EDT_KUBERNETES_ADDRESS, which says where its API server is" in said


def test_a_pool_of_kubernetes_is_made_shown_and_changed_in_its_words(studio: Seeded, as_: As) -> None:
    client = as_(studio.dora)
    new = {**POLICY, "name": "cluster", "provider": "kubernetes"}
    refused = client.post(reverse("pilots"), new).content.decode()
    assert "&#x27;--partition&#x27; cannot be chosen here" in refused
    assert "or of a pod as in --cpu=8 --memory=32Gi --gpus=1" in refused
    made = client.post(reverse("pilots"), {**new, "options": "--cpu=4"})
    page = client.get(made["Location"]).content.decode()
    assert "Options of a pod" in page
    assert "sbatch" not in page
    said = client.get(reverse("preview_pilot_pool", args=["cluster"]), {**POLICY, "options": "--cpu=4", "least": "1"})
    assert "Kubernetes was asked for 0 pilots; at least 1, at most 4." in said.content.decode()
    assert "Insufficient nvidia.com/gpu" in client.get(reverse("pilot_pool", args=["pods"])).content.decode()
    script = api.of(studio.dora)
    made = script.post("/pilot-pools", {"name": "other", "provider": "kubernetes", "slots": 4, "most": 2, "options": "--cpu=4"}).json()
    assert (made["provider"], made["options"]) == ("kubernetes", "--cpu=4")


def test_a_pool_of_ray_is_made_shown_and_changed_in_rays_words(studio: Seeded, as_: As) -> None:
    client = as_(studio.dora)
    new = {**POLICY, "name": "cluster", "provider": "ray"}
    refused = client.post(reverse("pilots"), new).content.decode()
    assert "&#x27;--partition&#x27; cannot be chosen here" in refused
    made = client.post(reverse("pilots"), {**new, "options": "--entrypoint-num-cpus=4"})
    page = client.get(made["Location"]).content.decode()
    assert "Options of ray job submit" in page
    assert "sbatch" not in page
    said = client.get(reverse("preview_pilot_pool", args=["cluster"]), {**POLICY, "options": "--entrypoint-num-cpus=4", "least": "1"})
    assert "Ray was asked for 0 pilots; at least 1, at most 4." in said.content.decode()
    said = client.get(reverse("preview_pilot_pool", args=["cluster"]), {**POLICY, "options": "--runtime-env-json={}"}).content.decode()
    assert "&#x27;--runtime-env-json&#x27; cannot be chosen here" in said


def test_a_pool_is_made_changed_and_deleted_by_the_api(studio: Seeded) -> None:
    script = api.of(studio.dora)
    made = script.post("/pilot-pools", {"name": "big", "slots": 8, "most": 2, "device": "gpu", "options": "--gpus=8"})
    assert made.status_code == 201
    assert (made.json()["studio"], made.json()["pilots"]) == ("http://testserver", [])
    changed = script.send("PATCH", "/pilot-pools/big", {"least": 1, "reason": "the course begins"})
    assert changed.json()["least"] == 1
    assert ClusterChange.objects.first().reason == "the course begins"
    foreseen = script.post("/pilot-pools/big/preview", {"least": 2}).json()
    assert foreseen["words"][1] == "Asks for 2 more: at least 2 are held."
    assert script.send("PATCH", "/pilot-pools/big", {"most": 0}).status_code == 400, "less than the least"
    assert script.send("DELETE", "/pilot-pools/gpu").status_code == 400, "it holds a pilot"
    assert script.send("DELETE", "/pilot-pools/big").status_code == 204
    ray = {"name": "cluster", "provider": "ray", "slots": 4, "most": 2}
    assert "put on the head node" in script.post("/pilot-pools", ray).content.decode()
    made = script.post("/pilot-pools", {**ray, "options": "--entrypoint-num-cpus=4"}).json()
    assert (made["provider"], made["options"]) == ("ray", "--entrypoint-num-cpus=4")
    assert script.post("/pilot-pools", {**ray, "name": "other", "provider": "pbs"}).status_code == 400


def test_edt_nodes_pilots_says_what_is_held_and_why(
    studio: Seeded, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Studio, "from_environment", lambda: Connected(api.of(studio.dora)))
    assert main.main(["nodes", "pilots"]) == 0
    said = capsys.readouterr().out
    assert "gpu: Slurm was asked for 1 pilot (1 waiting in its queue); at least 0, at most 4." in said
    assert "PENDING (Resources)" in said
    assert "gpu-2" not in said, "it has ended"
    assert "shared: Ray was asked for 1 pilot (1 ending)" in said
    assert "pods: Kubernetes was asked for 1 pilot (1 waiting in its queue)" in said
