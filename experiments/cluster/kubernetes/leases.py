"""What Kubernetes tells of Jobs and their pods, as leases: how each is, in the cluster's own words. Pure.

A pod is looked at before its Job: a Job may be called failed, or be gone, while its pod still ends, and the studio takes the end of a lease
for the proof that nothing of it runs.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.cluster.kubernetes.manifests import CONTAINER, PILOT
from experiments.cluster.providers import Lease, Standing

PREPARES_S = 900.0  # from when a pod has a node until its container runs: an image is many gigabytes
CANNOT_START = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError", "CreateContainerError"}
    | {"RunContainerError", "CrashLoopBackOff"}
)
NO_ROOM = ("OutOf", "Preempt", "Evict", "NodeShutdown", "Shutdown", "Terminated")  # how reasons begin for which a pod had to make room
WAITED_S = 60.0  # before that; one that a node turns away at once would be asked for every few seconds
LONGEST_WORDS = 900
_PENDING, _DONE = "Pending", ("Succeeded", "Failed")


@dataclass(frozen=True)
class Pod:
    """Of a pod, what a lease is made of. `job`: whose it is; `pilot`: whose order. `leaving`: it is being deleted. `started_at`: when its
    node took it; `ends_at`: when its time there is over; None where nobody knows. `begun`: its container runs or has run. `reasons`: why
    it was ended, in Kubernetes' words for programs. `stuck`: its container cannot be started as things are."""

    job: str
    pilot: str
    phase: str
    leaving: bool
    made_at: float
    started_at: float | None
    ends_at: float | None
    begun: bool
    words: str
    reasons: Sequence[str]
    stuck: bool


def leases_of(jobs: Iterable[Mapping[str, Any]], pods: Iterable[Mapping[str, Any]], *, now: float) -> dict[str, Lease]:
    """All of the studio's kind, by the names of their Jobs. `pods`: asked for before `jobs`, so that a pod without a Job is one whose Job
    has gone, and not one that has just been made. `now`: of the clock."""
    newest: dict[str, Pod] = {}
    for pod in sorted(map(_pod, pods), key=lambda pod: (pod.phase not in _DONE, pod.made_at)):  # one that lasts counts most
        newest[pod.job] = pod
    there = {str(_at(job, "metadata", "name")): job for job in jobs}
    names = [name for name in [*there, *(name for name in newest if name not in there)] if name]
    found = (lease_of(name, there.get(name), newest.get(name), now=now) for name in names)
    return {lease.id: lease for lease in found if lease is not None}


def lease_of(name: str, job: Mapping[str, Any] | None, pod: Pod | None, *, now: float) -> Lease | None:
    """None for what no studio has asked for."""
    pilot = str(_at(job, "metadata", "annotations", PILOT) or (pod.pilot if pod else ""))
    if not pilot:
        return None
    standing = _standing(job, pod, now=now)
    left_s = pod.ends_at - now if pod is not None and pod.ends_at is not None and standing == "running" else None
    words = words_of(job, pod)
    return Lease(name, pilot, standing, left_s, words, unserved=standing == "ended" and _unserved(job, pod, now=now))


def words_of(job: Mapping[str, Any] | None, pod: Pod | None) -> str:
    """On one line: the pod, and what the Job says of its end."""
    told = [each for each in _conditions(job) if each.get("status") == "True" and each.get("type") in ("Failed", "Suspended")]
    of_job = [f"{each['type']}: {_reason_of(each)}" for each in told]
    if pod is None and not of_job and not _finished(job):
        leaves = bool(_at(job, "metadata", "deletionTimestamp"))
        of_job = ["Its Job is being deleted." if leaves else "It has no pod yet (should that last, `kubectl describe job` says why)."]
    said = [*([pod.words] if pod else []), *(f"Job {words}" if pod else words for words in of_job)]
    return _line("; ".join(said) or "Job Complete")[:LONGEST_WORDS]


def _standing(job: Mapping[str, Any] | None, pod: Pod | None, *, now: float) -> Standing:
    ends = job is None or bool(_at(job, "metadata", "deletionTimestamp")) or _finished(job) or _ending(job)
    if pod is None:
        over = _finished(job) or bool(_at(job, "spec", "suspend"))  # whoever has suspended it: were it resumed, its token would be over
        return "ended" if over else "ending" if ends else "waiting"
    if pod.phase in _DONE:
        return "ended"
    if ends or pod.leaving:
        return "ending"
    if pod.phase == _PENDING and not pod.stuck:
        waits = pod.started_at is None or now - pod.started_at < PREPARES_S
        return "waiting" if waits else "running"  # one that has a node and does not begin is given up as one that does not join
    return "running"


def _unserved(job: Mapping[str, Any] | None, pod: Pod | None, *, now: float) -> bool:
    """It has ended before its container began, for want of room, and not at once."""
    if pod is not None and (pod.begun or pod.stuck):
        return False
    late = any(each.get("type") == "Failed" and each.get("reason") == "DeadlineExceeded" for each in _conditions(job))
    return late or (pod is not None and now - pod.made_at >= WAITED_S and any(reason.startswith(NO_ROOM) for reason in pod.reasons))


def _finished(job: Mapping[str, Any] | None) -> bool:
    return any(each.get("type") in ("Complete", "Failed") and each.get("status") == "True" for each in _conditions(job))


def _ending(job: Mapping[str, Any] | None) -> bool:
    """The end is decided, and is not carried out yet."""
    said = ("FailureTarget", "SuccessCriteriaMet")
    return any(each.get("type") in said and each.get("status") == "True" for each in _conditions(job))


def _pod(found: Mapping[str, Any]) -> Pod:
    status = _mapping(found.get("status"))
    container = _container(status)
    state = _mapping(container.get("state"))
    waits, ended = _mapping(state.get("waiting")), _mapping(state.get("terminated"))
    disrupted = [each for each in _conditions(found) if each.get("type") == "DisruptionTarget" and each.get("status") == "True"]
    unscheduled = [each for each in _conditions(found) if each.get("type") == "PodScheduled" and each.get("status") != "True"]
    started_at = _time(status.get("startTime"))
    deadline_s, grace_s = _at(found, "spec", "activeDeadlineSeconds"), _at(found, "spec", "terminationGracePeriodSeconds")
    lasts_s = (deadline_s or 0) + (grace_s or 0) if isinstance(deadline_s, int) else None
    node = str(_at(found, "spec", "nodeName") or "")
    phase = str(status.get("phase") or _PENDING)
    parts = [
        f"{phase} on {node}" if node and phase not in _DONE else phase,
        *([_reason_of(status)] if status.get("reason") or status.get("message") else []),
        *map(_reason_of, [*disrupted, *(unscheduled if phase == _PENDING else [])]),
        *([_reason_of(waits)] if waits else []),
        *([_ending_of(ended)] if ended else []),
    ]
    return Pod(
        job=_job_of(found),
        pilot=str(_at(found, "metadata", "annotations", PILOT) or ""),
        phase=phase,
        leaving=bool(_at(found, "metadata", "deletionTimestamp")),
        made_at=_time(_at(found, "metadata", "creationTimestamp")) or 0.0,
        started_at=started_at,
        ends_at=started_at + lasts_s if started_at is not None and lasts_s is not None else None,
        begun=bool(ended or state.get("running")),
        words=": ".join([parts[0], ", ".join(parts[1:])]) if parts[1:] else parts[0],
        reasons=[str(each.get("reason") or "") for each in (status, *disrupted)],
        stuck=str(waits.get("reason")) in CANNOT_START,
    )


def _container(status: Mapping[str, Any]) -> Mapping[str, Any]:
    """The one in which edt-node runs; others may be beside it."""
    all_of_them = [_mapping(each) for each in _list(status.get("containerStatuses"))]
    return next((each for each in all_of_them if each.get("name") == CONTAINER), all_of_them[0] if all_of_them else {})


def _job_of(pod: Mapping[str, Any]) -> str:
    owners = [_mapping(each) for each in _list(_at(pod, "metadata", "ownerReferences"))]
    return next((str(each.get("name")) for each in owners if each.get("kind") == "Job"), "")


def _ending_of(ended: Mapping[str, Any]) -> str:
    reason, code = str(ended.get("reason") or ""), ended.get("exitCode")
    said = f"exit code {code}" + (f" ({reason})" if reason not in ("", "Error", "Completed") else "")
    return f"{said}: {ended['message']}" if ended.get("message") else said


def _reason_of(found: Mapping[str, Any]) -> str:
    """The reason and what is said of it, as conditions, states of containers and the status of a pod have them."""
    return ": ".join(str(found[name]) for name in ("reason", "message") if found.get(name))


def _line(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _conditions(found: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    return [_mapping(each) for each in _list(_at(found, "status", "conditions"))]


def _at(found: Any, *path: str) -> Any:
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    return found


def _mapping(found: Any) -> Mapping[str, Any]:
    return found if isinstance(found, dict) else {}


def _list(found: Any) -> list[Any]:
    return found if isinstance(found, list) else []


def _time(text: Any) -> float | None:
    """Of Kubernetes' RFC 3339, in seconds."""
    try:
        return dt.datetime.fromisoformat(str(text)).timestamp()
    except ValueError:
        return None
