"""Kubernetes' API server as far as pilots ask it, with the controllers that answer for it: what is sent is held against Kubernetes' own
schemas, a Job has a pod made, owners that go take along what they own, and who asks may do what a Role allows. It stands in for a cluster,
of which there is none here: that a real one does the same is read in its documentation and has not been seen.

Nodes are the test's: it says how pods are (`becomes`), or lets them run as processes (tests/e2e/kubernetes.py).
"""

from __future__ import annotations

import contextlib
import copy
import datetime as dt
import json
import re
import ssl
import threading
import uuid
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.domain.kubernetes_discovery import GROUPS, KINDS, discovery
from tests.domain.kubernetes_schemas import Invalid, Object, check
from tests.gitserver import make_certificate

NAMESPACE = "machines"
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:edt-studio"
UNSCHEDULABLE = "0/3 nodes are available: 3 Insufficient cpu. preemption: 0/3 nodes are available: 3 No preemption victims found."
# What the provider is to need, as the Role of the Helm chart has it (tests/platform/test_helm.py compares the two).
RULES = [
    {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["create", "get", "list", "delete"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "delete"]},
    {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]},
]


def now() -> str:
    return dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class ApiServer(ThreadingHTTPServer):
    """`objects`: by kind and name. `rules`: what the account may do. `says`: what is answered whatever is asked; `refuses`: what to a verb
    and kind; `cuts`: answers end in the middle; `hangs`: they begin and do not go on until that is set."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.lock = threading.RLock()
        self.objects: dict[str, dict[str, Object]] = {kind: {} for kind in GROUPS}
        self.asked: list[tuple[str, str, bytes]] = []
        self.rules = copy.deepcopy(RULES)
        self.token = "k8s-t0ken"
        self.says: tuple[int, str] | None = None
        self.refuses: dict[tuple[str, str], tuple[int, str]] = {}
        self.cuts = False
        self.hangs: threading.Event | None = None
        self.versions = 0
        self.scheme = "http"

    @property
    def address(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.server_port}"

    def secure(self, folder: Path) -> Path:
        """Speak TLS from now on; the certificate that it is to be trusted by, which it makes in that folder."""
        certificate, key = make_certificate(folder)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)  # a thread of its own does that
        self.scheme = "https"
        return certificate

    # --- for the test -------------------------------------------------------------------------------------------------------------------

    def names(self, kind: str) -> list[str]:
        with self.lock:
            return list(self.objects[kind])

    def pod_of(self, job: str) -> Object:
        with self.lock:
            (pod,) = [each for each in self.objects["pods"].values() if each["metadata"]["labels"].get("job-name") == job]
            return pod

    def becomes(self, job: str, phase: str, *, container: Object | None = None, **status: Any) -> None:
        """The pod of that Job is so from now on. `container`: the state of its container."""
        with self.lock:
            pod = self.pod_of(job)
            self.touch(pod)
            if phase == "Running" or container is not None:
                self.put_on_a_node(pod)
            containers = [{"name": "edt-node", "state": container}] if container is not None else []
            pod["status"] |= {"phase": phase, **({"containerStatuses": containers} if containers else {}), **status}
            if phase == "Running" and container is None:
                pod["status"]["containerStatuses"] = [{"name": "edt-node", "state": {"running": {"startedAt": now()}}}]
            self.settle()

    def put_on_a_node(self, pod: Object) -> None:
        if "nodeName" not in pod["spec"]:
            pod["spec"]["nodeName"] = "node-7"
            pod["status"] |= {"startTime": now(), "conditions": [{"type": "PodScheduled", "status": "True"}]}

    # --- the controllers ----------------------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Until nothing more follows: pods for Jobs, ends of Jobs, and what goes because its owner has gone."""
        with self.lock:
            for job in list(self.objects["jobs"].values()):
                self._reconcile(job)
            for pod in list(self.objects["pods"].values()):
                ended = pod["status"]["phase"] in ("Succeeded", "Failed")
                if "deletionTimestamp" in pod["metadata"] and (ended or "nodeName" not in pod["spec"]):
                    if not ended:  # it was deleted before it had a node, which counts as a failure
                        pod["status"]["phase"] = "Failed"
                        list(map(self._reconcile, self.objects["jobs"].values()))
                    self._remove("pods", pod)
            for job in list(self.objects["jobs"].values()):
                if "foregroundDeletion" in job["metadata"].get("finalizers", []) and not self._owned(job["metadata"]["uid"], blocking=True):
                    self._remove("jobs", job)

    def _reconcile(self, job: Object) -> None:
        uid, status = job["metadata"]["uid"], job["status"]
        pods = [pod for kind, pod in self._owned(uid) if kind == "pods"]
        done = any(each["type"] in ("Complete", "Failed") for each in status["conditions"])
        if not pods and not done and not job["spec"].get("suspend") and "deletionTimestamp" not in job["metadata"]:
            self._make_pod(job)
        for pod in pods:
            if pod["status"]["phase"] in ("Succeeded", "Failed") and not done:
                good = pod["status"]["phase"] == "Succeeded"
                backoff = {"reason": "BackoffLimitExceeded", "message": "Job has reached the specified backoff limit"}
                end = {"type": "Complete"} if good else {"type": "Failed", **backoff}
                status["conditions"].append({"status": "True", "lastTransitionTime": now(), **end})
                self.touch(job)

    def _make_pod(self, job: Object) -> None:
        name, template = job["metadata"]["name"], copy.deepcopy(job["spec"]["template"])
        labels = {"job-name": name, "batch.kubernetes.io/job-name": name}
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": job["metadata"]["uid"]}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{name[:57]}-{uuid.uuid4().hex[:5]}",
                "labels": {**template["metadata"]["labels"], **labels},
                "annotations": template["metadata"].get("annotations", {}),
                "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
            },
            "spec": template["spec"],
            "status": {},
        }
        waits = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": UNSCHEDULABLE}
        self._admit("pods", pod)
        pod["status"] = {"phase": "Pending", "conditions": [waits]}

    def _owned(self, uid: str, *, blocking: bool = False) -> list[tuple[str, Object]]:
        return [
            (kind, each)
            for kind in ("pods", "secrets")
            for each in self.objects[kind].values()
            for owner in each["metadata"].get("ownerReferences", [])
            if owner["uid"] == uid and (owner.get("blockOwnerDeletion") or not blocking)
        ]

    def delete(self, kind: str, name: str, *, policy: str = "Background", grace_s: int | None = None) -> None:
        """A pod on a node is asked to end, and stays until it has. `policy`: what becomes of what a Job owns; kubectl says Background."""
        with self.lock:
            found = self.objects[kind][name]
            if kind == "pods":
                grace_s = found["spec"].get("terminationGracePeriodSeconds", 30) if grace_s is None else grace_s
                before = found["metadata"].get("deletionGracePeriodSeconds", grace_s)
                found["metadata"] |= {"deletionTimestamp": now(), "deletionGracePeriodSeconds": min(before, grace_s)}
                self.touch(found)
            elif kind == "jobs" and policy == "Foreground":
                found["metadata"] |= {"deletionTimestamp": now(), "finalizers": ["foregroundDeletion"]}
                self.touch(found)
                self._take_along(found)
            else:
                for _, each in self._owned(found["metadata"]["uid"]) if policy == "Orphan" else []:
                    each["metadata"]["ownerReferences"] = []
                self._remove(kind, found)
            self.settle()

    def _remove(self, kind: str, found: Object) -> None:
        self.objects[kind].pop(found["metadata"]["name"], None)
        self._take_along(found)

    def _take_along(self, owner: Object) -> None:
        for kind, each in self._owned(owner["metadata"]["uid"]):
            if "deletionTimestamp" not in each["metadata"]:
                self.delete(kind, each["metadata"]["name"])

    def touch(self, found: Object) -> None:
        self.versions += 1
        found["metadata"]["resourceVersion"] = str(self.versions)

    # --- what is asked ------------------------------------------------------------------------------------------------------------------

    def create(self, kind: str, sent: Object) -> tuple[int, Object]:
        name = sent.get("metadata", {}).get("name", "")
        with self.lock:
            if name in self.objects[kind]:
                return 409, status(409, "AlreadyExists", f'{kind} "{name}" already exists')
            try:
                found = self._admit(kind, sent)
            except Invalid as problem:
                return 422, status(422, "Invalid", f'{KINDS[kind]} "{name}" is invalid: {problem}')
            if kind == "jobs":
                found["status"] = {"conditions": []}
            self.settle()
            return 201, found

    def _admit(self, kind: str, sent: Object) -> Object:
        check(sent)
        found = sent
        found["metadata"] |= {"uid": str(uuid.uuid4()), "creationTimestamp": now(), "namespace": NAMESPACE}
        self.touch(found)
        self.objects[kind][found["metadata"]["name"]] = found
        return found

    def may(self, verb: str, kind: str) -> bool:
        return any(GROUPS[kind] in rule["apiGroups"] and kind in rule["resources"] and verb in rule["verbs"] for rule in self.rules)


def status(code: int, reason: str, message: str) -> Object:
    """How Kubernetes says no."""
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message, "reason": reason, "code": code}


class Handler(BaseHTTPRequestHandler):
    server: ApiServer
    protocol_version = "HTTP/1.1"

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.asked.append((self.command, self.path, body))
        code, found = self.server.says or self._answer(body)
        text = (found if isinstance(found, str) else json.dumps(found)).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if self.server.hangs is not None:
            self.wfile.write(text[:1])
            self.server.hangs.wait(30)
        if self.server.cuts or self.server.hangs is not None:
            self.wfile.write(text[: len(text) // 2])
            self.close_connection = True
            return
        self.wfile.write(text)

    do_GET = do_POST = do_DELETE = do_PUT = do_PATCH = _serve

    def _answer(self, body: bytes) -> tuple[int, Object]:
        if self.headers["Authorization"] != f"Bearer {self.server.token}":
            return 401, status(401, "Unauthorized", "Unauthorized")
        at = urlsplit(self.path)
        if at.path in discovery():
            return 200, discovery()[at.path]
        kind, name = self._asked_for(unquote(at.path) if "%2F" not in at.path else at.path)
        if not kind:
            return 404, status(404, "NotFound", "the server could not find the requested resource")
        query = {key: values[0] for key, values in parse_qs(at.query).items()}
        verb = {"GET": "get" if name else "list", "POST": "create", "DELETE": "delete"}.get(self.command, self.command)
        if (verb, kind) in self.server.refuses:
            code, message = self.server.refuses[verb, kind]
            return code, status(code, "Refused", message)
        if not self.server.may(verb, kind):
            where = f'in API group "{GROUPS[kind]}" in the namespace "{NAMESPACE}"'
            return 403, status(403, "Forbidden", f'{kind} is forbidden: User "{ACCOUNT}" cannot {verb} resource "{kind}" {where}')
        with self.server.lock:
            if name and name not in self.server.objects[kind]:
                return 404, status(404, "NotFound", f'{kind} "{name}" not found')
            return self._carry_out(verb, kind, name, query, body)

    def _carry_out(self, verb: str, kind: str, name: str, query: dict[str, str], body: bytes) -> tuple[int, Object]:
        there = self.server.objects[kind]
        if verb == "create":
            return self.server.create(kind, json.loads(body))
        if verb == "delete":
            how = json.loads(body) if body else query  # one of them counts
            grace_s = int(how["gracePeriodSeconds"]) if "gracePeriodSeconds" in how else None
            by_itself = "Orphan" if kind == "jobs" else "Background"  # of Jobs, as they were deleted before there were policies
            self.server.delete(kind, name, policy=how.get("propagationPolicy", by_itself), grace_s=grace_s)
            return 200, {"kind": "Status", "apiVersion": "v1", "status": "Success"}
        if verb == "get":
            return 200, copy.deepcopy(there[name])
        chosen = dict(each.split("=") for each in query.get("labelSelector", "").split(",") if each)
        fits = [each for each in there.values() if chosen.items() <= each["metadata"].get("labels", {}).items()]
        return 200, {"kind": "List", "apiVersion": "v1", "items": copy.deepcopy(fits)}

    def _asked_for(self, path: str) -> tuple[str, str]:
        """Kind and name; an empty kind where there is no such place."""
        for kind, group in GROUPS.items():
            root = f"/apis/{group}/v1" if group else "/api/v1"
            inside = "" if kind in ("nodes", "priorityclasses") else f"/namespaces/{NAMESPACE}"
            if match := re.fullmatch(rf"{re.escape(root + inside)}/{kind}(?:/([^/]+))?", path):
                return kind, match[1] or ""
        return "", ""

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def running() -> Iterator[ApiServer]:
    with ApiServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server
        finally:
            if server.hangs is not None:
                server.hangs.set()
            server.shutdown()
            thread.join(10)


@contextlib.contextmanager
def api_server_of(settings: Any) -> Iterator[ApiServer]:
    """One that the studio with these settings asks."""
    with running() as server:
        settings.EDT_KUBERNETES_ADDRESS, settings.EDT_KUBERNETES_TOKEN = server.address, server.token
        settings.EDT_KUBERNETES_NAMESPACE, settings.EDT_KUBERNETES_IMAGE = NAMESPACE, "edt-studio:0.1.0"
        yield server
