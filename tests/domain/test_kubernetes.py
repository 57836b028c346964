"""Kubernetes as an engine that lends machines: what its API server is asked for, and what nobody can ask for or read."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest

from experiments.cluster.kubernetes import manifests, pod_options
from experiments.cluster.kubernetes.provider import Kubernetes
from experiments.cluster.providers import EngineProblem, Order
from tests.domain.kubernetes_schemas import VERSIONS
from tests.domain.kubernetes_server import NAMESPACE, ApiServer, api_server_of

ORDER = Order("edt-1-gpu-1-1", "gpu-1", "https://studio.example.org", "edtn_s3cret", 60, 100, 4, ["--cpu=8", "--memory=32Gi", "--gpus=2"])
GPU = "nvidia.com/gpu"
EVERYTHING = (
    "--cpu=7.5 --memory=64Gi --ephemeral-storage=100G --gpus=8 --node-selector=nvidia.com/gpu.product=A100-SXM4 --node-selector=zone= "
    "--toleration=nvidia.com/gpu --toleration=dedicated=training:NoSchedule --priority-class=batch --runtime-class=nvidia"
)


@pytest.fixture
def server(settings: Any) -> Iterator[ApiServer]:
    with api_server_of(settings) as server:
        yield server


def asked_for(options: str, order: Order = ORDER, **more: Any) -> dict[str, Any]:
    chosen = pod_options.parse(Kubernetes().check(options), gpu=GPU)
    return manifests.job(order, chosen, image="edt-studio:0.1.0", command="edt-node join", **more)


# --- what it is asked for -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_asked_for_is_what_kubernetes_takes(version: str) -> None:
    for options in ("--cpu=500m", EVERYTHING):
        kubernetes_validate.validate(asked_for(options), version, strict=True)
    kubernetes_validate.validate(manifests.secret(ORDER, owner="5f0c"), version, strict=True)


def test_options_become_fields_of_the_pod_and_of_its_job() -> None:
    job = asked_for(EVERYTHING)
    spec = job["spec"]["template"]["spec"]
    sizes = {"memory": "64Gi", "ephemeral-storage": "100G"}
    assert spec["containers"][0]["resources"] == {"requests": {"cpu": "7.5", **sizes}, "limits": {**sizes, GPU: "8"}}
    assert spec["nodeSelector"] == {"nvidia.com/gpu.product": "A100-SXM4", "zone": ""}
    assert spec["tolerations"] == [
        {"key": "nvidia.com/gpu", "operator": "Exists"},
        {"key": "dedicated", "operator": "Equal", "value": "training", "effect": "NoSchedule"},
    ]
    assert (spec["priorityClassName"], spec["runtimeClassName"]) == ("batch", "nvidia")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("", "a pod that asks for nothing is the first to be evicted"),
        ("--priority-class=batch", "a pod that asks for nothing is the first to be evicted"),
        ("--cpu=1 --image=elsewhere/any", "'--image' cannot be chosen here"),
        ("--cpu=1 --command=id", "'--command' cannot be chosen here"),
        ("--cpu=1 --service-account=admin", "'--service-account' cannot be chosen here"),
        ("--cpu=1 --host-network=true", "'--host-network' cannot be chosen here"),
        ("--cpu=1 --volume=/etc", "'--volume' cannot be chosen here"),
        ("--cpu=1 --namespace=kube-system", "'--namespace' cannot be chosen here"),
        ("--cpu=1 --env=A=b", "'--env' cannot be chosen here"),
        ("--cpu 4", "'--cpu' cannot be chosen here: write --cpu=8"),
        ("--cpu=1 --cpu=2", "--cpu is there twice"),
        ("--cpu=0", "a number of CPUs above 0"),
        ("--cpu=0.000", "a number of CPUs above 0"),
        ("--cpu=-1", "a number of CPUs above 0"),
        ("--cpu=1e9", "a number of CPUs above 0"),
        ("--cpu=٣", "a number of CPUs above 0"),
        ("--memory=16", "an amount with its unit, as in 32Gi"),
        ("--memory=500m", "an amount with its unit"),
        ("--memory=0Gi", "an amount with its unit"),
        ("--gpus=0", "a whole number above 0"),
        ("--gpus=0.5", "a whole number above 0"),
        ("--cpu=1 --node-selector=a", "a label of nodes"),
        ("--cpu=1 --node-selector=a=b,c=d", "a label of nodes"),
        ("--cpu=1 --node-selector=a=b --node-selector=a=c", "a cannot be two things at once"),
        ("--cpu=1 --toleration=:NoSchedule", "a taint of nodes"),
        ("--cpu=1 --toleration=", "a taint of nodes"),
        ("--cpu=1 --toleration=a:Sometimes", "a taint of nodes"),
        ("--cpu=1 --priority-class=../x", "a name of the cluster's"),
        ("--cpu=1 --runtime-class=A", "a name of the cluster's"),
        ("--cpu='4", "No closing quotation"),
    ],
)
def test_an_administrator_chooses_resources_and_nothing_else(options: str, words: str) -> None:
    with pytest.raises(ValueError) as refused:
        Kubernetes().check(options)
    assert words in str(refused.value)


def test_the_token_is_in_a_secret_that_the_job_owns_and_nowhere_else(server: ApiServer) -> None:
    assert Kubernetes().hold(ORDER) == "edt-1-gpu-1-1"
    (post, where, job), (second, elsewhere, secret) = server.asked
    assert (post, where) == ("POST", f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs")
    assert (second, elsewhere) == ("POST", f"/api/v1/namespaces/{NAMESPACE}/secrets")
    assert b"s3cret" not in job
    assert json.loads(secret)["stringData"] == {"token": "edtn_s3cret\n"}
    (owner,) = json.loads(secret)["metadata"]["ownerReferences"]
    assert owner["uid"] == server.objects["jobs"]["edt-1-gpu-1-1"]["metadata"]["uid"]
    assert "s3cret" not in json.dumps([server.objects[kind] for kind in ("jobs", "pods")])
    spec = server.pod_of("edt-1-gpu-1-1")["spec"]
    assert {each["secret"]["secretName"] for each in spec["volumes"] if "secret" in each} == {"edt-1-gpu-1-1"}
    assert spec["automountServiceAccountToken"] is False, "and no right in the cluster is"


def test_a_pod_is_told_in_time_and_has_no_longer_than_its_walltime(server: ApiServer) -> None:
    Kubernetes().hold(ORDER)
    spec = server.pod_of("edt-1-gpu-1-1")["spec"]
    assert spec["activeDeadlineSeconds"] + spec["terminationGracePeriodSeconds"] == 3600
    assert spec["terminationGracePeriodSeconds"] == 100
    job = server.objects["jobs"]["edt-1-gpu-1-1"]["spec"]
    assert job["activeDeadlineSeconds"] > 3600, "in which the time in the queue is counted"
    assert (job["backoffLimit"], job["podReplacementPolicy"]) == (0, "Failed")


def test_what_the_shell_of_the_pod_is_told_are_words_to_it_and_no_commands(tmp_path: Path) -> None:
    order = Order("n", "n", "https://a/$(touch one);'`touch two`", "t", 60, 10, 4, ["--cpu=1"])
    job = asked_for("--cpu=1", order)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    (tmp_path / "token").write_text("edtn_x\n")
    shell, flag, script = container["command"]
    script = script.replace("/run/edt-pilot", str(tmp_path)).replace("exec edt-node join", "exec printf '%s|'")
    environment = {each["name"]: each["value"] for each in container["env"]}
    said = subprocess.run([shell, flag, script], env=environment, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert said == "https://a/$(touch one);'`touch two`|--token|-|--home|/var/lib/edt-node|--slots|4|"
    assert [path.name for path in tmp_path.iterdir()] == ["token"]


def test_who_runs_the_studio_says_what_a_pod_is_and_the_studio_what_it_does(tmp_path: Path, server: ApiServer, settings: Any) -> None:
    settings.EDT_KUBERNETES_POD = str(tmp_path / "pod.json")
    data = {"name": "data", "mountPath": "/data", "readOnly": True}
    given = {
        "imagePullSecrets": [{"name": "registry"}],
        "nodeSelector": {"kubernetes.io/arch": "amd64"},
        "containers": [
            {"name": "logs", "image": "logs:1"},
            {"name": "edt-node", "resources": {"requests": {"cpu": "1", "rdma/hca": "1"}}, "volumeMounts": [data], "command": ["x"]},
        ],
        "volumes": [{"name": "data", "nfs": {"server": "nfs.example.org", "path": "/data"}}],
        "restartPolicy": "Always",
    }
    (tmp_path / "pod.json").write_text(json.dumps(given))
    Kubernetes().hold(ORDER)
    spec = server.pod_of("edt-1-gpu-1-1")["spec"]
    logs, container = spec["containers"]
    assert logs == {"name": "logs", "image": "logs:1"}
    assert container["resources"]["requests"] == {"cpu": "8", "memory": "32Gi", "rdma/hca": "1"}
    assert [each["mountPath"] for each in container["volumeMounts"]] == ["/data", "/var/lib/edt-node", "/run/edt-pilot", "/dev/shm"]
    assert (container["image"], container["command"][0], spec["restartPolicy"]) == ("edt-studio:0.1.0", "sh", "Never")
    assert (spec["imagePullSecrets"], spec["volumes"][0]["name"]) == ([{"name": "registry"}], "data")


def test_what_that_says_nothing_of_stays_as_it_is(tmp_path: Path, server: ApiServer, settings: Any) -> None:
    settings.EDT_KUBERNETES_POD = str(tmp_path / "pod.json")
    (tmp_path / "pod.json").write_text(json.dumps({"imagePullSecrets": [{"name": "registry"}]}))
    Kubernetes().hold(ORDER)
    spec = server.pod_of("edt-1-gpu-1-1")["spec"]
    assert spec["imagePullSecrets"] == [{"name": "registry"}]
    assert spec["securityContext"] == manifests.POD["securityContext"]
    assert spec["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.parametrize("text", [None, "not json", "[]", '{"containers": []}', '{"containers": ["a"]}'])
def test_a_file_that_is_no_pod_is_refused_in_a_sentence(tmp_path: Path, settings: Any, server: ApiServer, text: str | None) -> None:
    settings.EDT_KUBERNETES_POD = str(tmp_path / "pod.json")
    if text is not None:
        (tmp_path / "pod.json").write_text(text)
    with pytest.raises(EngineProblem, match=r"^EDT_KUBERNETES_POD"):
        Kubernetes().hold(ORDER)
    assert server.asked == []


def test_a_name_that_is_too_long_for_a_job_is_cut_and_told_by_another_word(server: ApiServer) -> None:
    long = [f"edt-0badc0de-{'p' * 40}-12-{number}" for number in (10**9, 10**9 + 1)]
    ids = [Kubernetes().hold(Order(name, "p", "https://s.example.org", "t", 60, 10, 1, ["--cpu=1"])) for name in long]
    assert len(set(ids)) == 2
    assert {lease.name: lease.id for lease in Kubernetes().leases().values()} == dict(zip(long, ids, strict=True))


# --- giving back --------------------------------------------------------------------------------------------------------------------------


def test_one_that_is_given_back_is_told_and_takes_its_secret_along(server: ApiServer) -> None:
    Kubernetes().hold(ORDER)
    server.becomes(ORDER.name, "Running")
    Kubernetes().release(ORDER.name, begun=True, hurry=False)
    assert (server.names("secrets"), server.names("jobs")) == ([], [ORDER.name]), "the Job lasts until its pod has ended"
    assert Kubernetes().leases()[ORDER.name].standing == "ending"
    assert server.pod_of(ORDER.name)["metadata"]["deletionGracePeriodSeconds"] == 100
    Kubernetes().release(ORDER.name, begun=True, hurry=True)
    assert server.pod_of(ORDER.name)["metadata"]["deletionGracePeriodSeconds"] == 1
    server.becomes(ORDER.name, "Succeeded")
    assert (server.names("pods"), server.names("jobs")) == ([], [])
    Kubernetes().release(ORDER.name, begun=True, hurry=True)  # harmless
    assert Kubernetes().ending(ORDER.name) == f"the Job {ORDER.name} has been deleted"


def test_one_whose_secret_cannot_be_made_is_not_left_behind(server: ApiServer) -> None:
    server.refuses["create", "secrets"] = (403, "exceeded quota: compute, requested: secrets=1, used: secrets=9, limited: secrets=9")
    with pytest.raises(EngineProblem, match=r"^exceeded quota: compute"):
        Kubernetes().hold(ORDER)
    assert server.names("jobs") == []


def test_the_name_of_a_job_is_no_path(server: ApiServer) -> None:
    Kubernetes().release("edt-1/../../secrets?x=#-7", begun=True, hurry=False)
    ((_, path, _),) = server.asked
    assert path == f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/edt-1%2F..%2F..%2Fsecrets%3Fx%3D%23-7"
