"""What is made of the answers of Kubernetes' API server: how a pilot is, in its words; why it cannot be asked; and what it lends."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from experiments.cluster.kubernetes import api, leases, manifests, nodes
from experiments.cluster.kubernetes.provider import Kubernetes
from experiments.cluster.providers import EngineProblem, Lease
from tests.domain.kubernetes_server import ACCOUNT, NAMESPACE, UNSCHEDULABLE, ApiServer, api_server_of, status
from tests.domain.test_kubernetes import GPU, ORDER

KUBECTL = Path(__file__).resolve().parents[2] / ".cache" / "helm" / "kubectl"


@pytest.fixture
def server(settings: Any) -> Iterator[ApiServer]:
    with api_server_of(settings) as server:
        yield server


# --- what is made of its answers ----------------------------------------------------------------------------------------------------------


def lease_after(server: ApiServer, phase: str, **said: Any) -> Lease:
    Kubernetes().hold(ORDER)
    server.becomes(ORDER.name, phase, **said)
    return Kubernetes().leases()[ORDER.name]


@pytest.mark.parametrize(
    ("phase", "said", "standing", "words"),
    [
        ("Pending", {}, "waiting", f"Pending: Unschedulable: {UNSCHEDULABLE}"),
        ("Pending", {"container": {"waiting": {"reason": "ContainerCreating"}}}, "waiting", "Pending on node-7: ContainerCreating"),
        ("Pending", {"container": {"waiting": {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "x"'}}}, "running",
         'Pending on node-7: ImagePullBackOff: Back-off pulling image "x"'),
        ("Running", {}, "running", "Running on node-7"),
        ("Failed", {"container": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}, "ended",
         "Failed: exit code 137 (OOMKilled); Job Failed: BackoffLimitExceeded: Job has reached the specified backoff limit"),
        ("Failed", {"container": {"terminated": {"exitCode": 2}}, "reason": "Evicted", "message": "The node was low\non resource: memory."},

         "ended", "Failed: Evicted: The node was low on resource: memory., exit code 2; Job Failed: BackoffLimitExceeded: Job has reached "
         "the specified backoff limit"),
        ("Succeeded", {"container": {"terminated": {"exitCode": 0, "reason": "Completed"}}}, "ended", "Succeeded: exit code 0"),
    ],
)  # fmt: skip
def test_how_a_pilot_is_in_kubernetes_words(server: ApiServer, phase: str, said: Any, standing: str, words: str) -> None:
    lease = lease_after(server, phase, **said)
    assert (lease.id, lease.name, lease.standing, lease.words, lease.unserved) == (ORDER.name, ORDER.name, standing, words, False)
    assert Kubernetes().ending(ORDER.name) == words


def test_one_that_runs_has_its_walltime_from_when_its_node_took_it(server: ApiServer) -> None:
    left_s = lease_after(server, "Running").left_s
    assert left_s is not None
    assert 3590 < left_s <= 3600
    assert Kubernetes().leases()[ORDER.name].lasts_s is None


DISRUPTED = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "PreemptionByScheduler",
    "message": "default-scheduler: preempting to accommodate a higher priority pod",
}


def test_preemption_is_told_in_kubernetes_words(server: ApiServer) -> None:
    lease = lease_after(server, "Failed", container={"terminated": {"exitCode": 143}}, conditions=[DISRUPTED])
    assert "Failed: PreemptionByScheduler: default-scheduler: preempting to accommodate a higher priority pod, exit code 143" in lease.words
    assert not lease.unserved, "it has begun"


@pytest.mark.parametrize(
    "said",
    [
        {"reason": "OutOfnvidia.com/gpu", "message": "Pod was rejected: Node didn't have enough resource"},
        {"reason": "Evicted", "message": "The node had condition: [DiskPressure]."},
        {"conditions": [DISRUPTED]},
        {"conditions": [{**DISRUPTED, "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting"}]},
    ],
)
def test_one_that_ends_before_it_begins_for_want_of_room_is_unserved_unless_that_was_at_once(server: ApiServer, said: Any) -> None:
    lease = lease_after(server, "Failed", **said)
    assert (lease.standing, lease.unserved) == ("ended", False), "else it would be asked for every few seconds"
    made = dt.datetime.fromisoformat(server.pod_of(ORDER.name)["metadata"]["creationTimestamp"]).timestamp()
    pods, jobs = server.objects["pods"].values(), server.objects["jobs"].values()
    assert leases.leases_of(jobs, pods, now=made + leases.WAITED_S)[ORDER.name].unserved


def test_one_whose_job_has_waited_for_too_long_is_unserved() -> None:
    late = {"type": "Failed", "status": "True", "reason": "DeadlineExceeded", "message": "Job was active longer than specified deadline"}
    job = {"metadata": {"name": "n", "annotations": {manifests.PILOT: "edt-1-n-1"}}, "status": {"conditions": [late]}}
    (lease,) = leases.leases_of([job], [], now=0).values()
    assert (lease.standing, lease.unserved) == ("ended", True)
    assert lease.words == "Failed: DeadlineExceeded: Job was active longer than specified deadline"


def test_an_image_that_does_not_come_is_no_queue(server: ApiServer) -> None:
    """It has a node, so nothing is gained by waiting for ever: it is taken for one that has begun, and given up when it does not join."""
    Kubernetes().hold(ORDER)
    server.becomes(ORDER.name, "Pending", container={"waiting": {"reason": "ContainerCreating"}})
    pods, jobs = server.objects["pods"].values(), server.objects["jobs"].values()
    begun = dt.datetime.fromisoformat(server.pod_of(ORDER.name)["status"]["startTime"]).timestamp()
    for after_s, standing in ((60, "waiting"), (leases.PREPARES_S + 1, "running")):
        assert leases.leases_of(jobs, pods, now=begun + after_s)[ORDER.name].standing == standing


def test_nothing_has_ended_while_its_pod_has_not() -> None:
    pod = {
        "metadata": {"annotations": {manifests.PILOT: "edt-1-n-1"}, "ownerReferences": [{"kind": "Job", "name": "n"}]},
        "spec": {"nodeName": "node-7"},
        "status": {"phase": "Running", "containerStatuses": [{"name": "edt-node", "state": {"running": {}}}]},
    }
    failed = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "it has"}
    job: dict[str, Any] = {"metadata": {"name": "n", "annotations": {manifests.PILOT: "edt-1-n-1"}}, "status": {"conditions": [failed]}}
    leaving = {**pod, "metadata": {**pod["metadata"], "deletionTimestamp": "2026-11-26T09:00:00Z"}}
    started = {**job, "status": {}}

    def standing(jobs: list[Any], pods: list[Any]) -> str:
        (lease,) = leases.leases_of(jobs, pods, now=0).values()
        return lease.standing

    assert standing([started], [pod]) == "running"
    assert standing([job], [pod]) == "ending", "older clusters call a Job failed while its pod ends"
    assert standing([], [pod]) == "ending", "somebody has deleted the Job and not waited"
    assert standing([started], [leaving]) == "ending"
    assert standing([{**started, "metadata": {**job["metadata"], "deletionTimestamp": "x"}}], []) == "ending"
    assert standing([started], []) == "waiting"
    suspended = {**started, "spec": {"suspend": True}}
    assert standing([suspended], [leaving]) == "ending"
    assert standing([suspended], []) == "ended"


def test_what_belongs_to_nobody_is_left_alone(server: ApiServer) -> None:
    assert leases.leases_of([{"metadata": {"name": "backup"}}, {}], [{}, {"metadata": None, "status": "x"}], now=0) == {}


# --- what keeps it from answering ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("says", "words"),
    [
        ((200, "<html>another server</html>"), "answers, but not as Kubernetes' API server does"),
        ((200, '{"kind": "Status"}'), "is no list"),
        ((200, "[]"), "answers, but not as Kubernetes' API server does"),
        (
            (401, json.dumps(status(401, "Unauthorized", "Unauthorized"))),
            r"^Unauthorized \(EDT_KUBERNETES_TOKEN, EDT_KUBERNETES_TOKEN_FILE",
        ),
        ((429, json.dumps(status(429, "TooManyRequests", "the server has received too many requests"))), "too many requests .*asked again"),
        ((500, json.dumps(status(500, "InternalError", "etcdserver: request timed out"))), "^etcdserver: request timed out$"),
        ((503, ""), "^status 503$"),
        ((307, ""), "^status 307$"),
    ],
)
def test_what_it_cannot_say_is_told_in_its_words(server: ApiServer, says: tuple[int, str], words: str) -> None:
    server.says = says
    with pytest.raises(EngineProblem, match=words):
        Kubernetes().leases()


def test_a_right_that_is_missing_is_named(server: ApiServer) -> None:
    server.rules = [rule for rule in server.rules if rule["resources"] != ["pods"]]
    with pytest.raises(EngineProblem, match=f'^pods is forbidden: User "{ACCOUNT}" cannot list resource "pods"'):
        Kubernetes().leases()


def test_an_answer_that_is_cut_or_does_not_end_is_none(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.cuts = True
    with pytest.raises(EngineProblem, match="cannot be reached"):
        Kubernetes().leases()
    server.cuts, server.hangs = False, threading.Event()
    with monkeypatch.context() as hurried:
        hurried.setattr(api, "TIMEOUT_S", 0.2)
        with pytest.raises(EngineProblem, match="cannot be reached"):
            Kubernetes().leases()
    server.hangs.set()
    server.hangs = None
    monkeypatch.setattr(api, "MOST_BYTES", 20)
    with pytest.raises(EngineProblem, match="answers with too much"):
        Kubernetes().leases()


def test_a_token_that_is_written_anew_is_read_anew(server: ApiServer, settings: Any, tmp_path: Path) -> None:
    settings.EDT_KUBERNETES_TOKEN, settings.EDT_KUBERNETES_TOKEN_FILE = "", str(tmp_path / "token")
    with pytest.raises(EngineProblem, match="EDT_KUBERNETES_TOKEN_FILE cannot be read"):
        Kubernetes().leases()
    for token in (server.token, "another"):
        server.token = token
        (tmp_path / "token").write_text(f"{token}\n")
        assert Kubernetes().leases() == {}


def test_in_a_pod_it_asks_its_own_cluster_as_its_own_account(
    settings: Any, server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in {"token": server.token, "namespace": NAMESPACE}.items():
        (tmp_path / name).write_text(text)
    settings.EDT_KUBERNETES_ACCOUNT = str(tmp_path)
    settings.EDT_KUBERNETES_ADDRESS = settings.EDT_KUBERNETES_TOKEN = settings.EDT_KUBERNETES_NAMESPACE = ""
    monkeypatch.setattr(api, "IN_POD", server.address)
    assert Kubernetes().hold(ORDER) == ORDER.name
    settings.EDT_KUBERNETES_ADDRESS = server.address
    with pytest.raises(EngineProblem, match="Unauthorized"):  # what is mounted is for the studio's own cluster
        Kubernetes().leases()


def test_without_an_address_a_server_or_an_image_it_says_so(server: ApiServer, settings: Any, tmp_path: Path) -> None:
    settings.EDT_KUBERNETES_IMAGE = ""
    with pytest.raises(EngineProblem, match="EDT_KUBERNETES_IMAGE"):
        Kubernetes().hold(ORDER)
    settings.EDT_KUBERNETES_ADDRESS, settings.EDT_KUBERNETES_ACCOUNT = "", str(tmp_path)
    with pytest.raises(EngineProblem, match="EDT_KUBERNETES_ADDRESS"):
        Kubernetes().offers()
    settings.EDT_KUBERNETES_ADDRESS = "http://proxy:s3cret@127.0.0.1:1"
    with pytest.raises(EngineProblem, match=r"^http://127.0.0.1:1 cannot be reached: ") as problem:
        Kubernetes().offers()
    assert "s3cret" not in str(problem.value)
    settings.EDT_KUBERNETES_CA = str(tmp_path / "none.pem")
    with pytest.raises(EngineProblem, match="EDT_KUBERNETES_CA"):
        Kubernetes().offers()
    (tmp_path / "none.pem").write_text("no certificate")
    with pytest.raises(EngineProblem, match="EDT_KUBERNETES_CA"):
        Kubernetes().offers()


def test_a_certificate_that_nobody_has_signed_for_is_refused(server: ApiServer, settings: Any, tmp_path: Path) -> None:
    """And one that is named is trusted."""
    trusted = server.secure(tmp_path)
    settings.EDT_KUBERNETES_ADDRESS = server.address
    with pytest.raises(EngineProblem, match="CERTIFICATE_VERIFY_FAILED"):
        Kubernetes().leases()
    settings.EDT_KUBERNETES_CA = str(trusted)
    assert Kubernetes().leases() == {}


@pytest.mark.skipif(not KUBECTL.exists(), reason="kubectl is not installed in .cache/helm (tools/setup.sh test)")
def test_kubectl_reads_and_deletes_there_what_the_studio_has_asked_for(server: ApiServer, settings: Any, tmp_path: Path) -> None:
    """So the stand-in speaks as a client expects that others have made."""
    trusted = server.secure(tmp_path)
    settings.EDT_KUBERNETES_ADDRESS, settings.EDT_KUBERNETES_CA = server.address, str(trusted)
    Kubernetes().hold(ORDER)
    who = ["--server", server.address, "--certificate-authority", str(trusted), "--token", server.token, "--namespace", NAMESPACE]

    def kubectl(*words: str) -> str:
        done = subprocess.run([KUBECTL, *who, *words], env={"HOME": str(tmp_path)}, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert kubectl("get", "jobs,pods", "--selector", manifests.SELECTOR, "--output", "name").split() == [
        f"job.batch/{ORDER.name}",
        f"pod/{server.pod_of(ORDER.name)['metadata']['name']}",
    ]
    assert "s3cret" not in kubectl("get", "jobs,pods", "--output", "yaml")
    kubectl("delete", "pod", server.pod_of(ORDER.name)["metadata"]["name"], "--wait=false")
    assert Kubernetes().leases()[ORDER.name].words.startswith("Failed: BackoffLimitExceeded")
    assert kubectl("delete", "job", ORDER.name, "--wait=false") == f'job.batch "{ORDER.name}" deleted from {NAMESPACE} namespace\n'
    assert Kubernetes().leases() == {}
    assert server.names("secrets") == []


# --- what it lends ------------------------------------------------------------------------------------------------------------------------


def node(name: str, *, memory: str = "130Gi", ready: str = "True", **more: Any) -> dict[str, Any]:
    labels = {"node.kubernetes.io/instance-type": "p4d.24xlarge"}
    there = {"cpu": "95690m", "memory": memory, GPU: "8"}
    conditions = [{"type": "Ready", "status": ready}]
    return {"metadata": {"name": name, "labels": labels}, "spec": more, "status": {"allocatable": there, "conditions": conditions}}


def test_what_the_cluster_has_is_said_by_kind_of_node_where_that_may_be_seen(server: ApiServer) -> None:
    taint = {"key": "nvidia.com/gpu", "effect": "NoSchedule"}
    there = [
        node("a", taints=[taint]),
        node("b", memory="125829120Ki", taints=[taint]),
        node("c", unschedulable=True),
        node("d", ready="Unknown"),
    ]
    small = {
        "metadata": {},
        "spec": {},
        "status": {"allocatable": {"cpu": "2", "memory": "4Gi"}, "conditions": [{"type": "Ready", "status": "True"}]},
    }
    server.objects["nodes"] = dict(zip("abcde", [*there, small], strict=True))
    classes = {"system-node-critical": 2000001000, "batch": -10}
    server.objects["priorityclasses"] = {name: {"metadata": {"name": name}, "value": value} for name, value in classes.items()}
    with pytest.raises(EngineProblem, match=r"the studio's account may not see .*cannot list resource"):
        Kubernetes().offers()
    server.rules.append({"apiGroups": ["scheduling.k8s.io"], "resources": ["priorityclasses"], "verbs": ["list"]})
    assert [offer.option for offer in Kubernetes().offers()] == ["--priority-class=batch"]
    server.rules.append({"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]})
    offered = Kubernetes().offers()
    assert [(offer.option, offer.words) for offer in offered] == [
        ("--cpu=1", "1 node of 2 CPUs, 4 GiB or more"),
        (
            "--cpu=95 --gpus=8 --node-selector=node.kubernetes.io/instance-type=p4d.24xlarge --toleration=nvidia.com/gpu",
            "2 nodes of 95.69 CPUs, 8 nvidia.com/gpu, p4d.24xlarge, 120 GiB or more",
        ),
        ("--priority-class=batch", "priority -10"),
    ]
    for offer in offered[:2]:
        Kubernetes().check(offer.option)


@pytest.mark.parametrize(
    ("text", "number"), [("500m", 0.5), ("8", 8), ("64Gi", 64 * 2**30), ("1e3", 1000), ("2k", 2000), ("x", 0), ("1Zi", 0), ("1.2.3", 0)]
)
def test_quantities_are_read_as_kubernetes_writes_them(text: str, number: float) -> None:
    assert nodes.quantity(text) == number
