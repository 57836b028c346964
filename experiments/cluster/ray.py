"""Ray as an engine that lends machines: each pilot is a job of its Jobs API, over HTTP, so the studio needs no Ray. The API is described at
https://docs.ray.io/en/latest/cluster/running-applications/job-submission/rest.html

What Ray tells everybody who reaches its dashboard (command, environment, metadata, log) says nothing of a pilot's token: that is in the
job's package, which the dashboard takes and gives to nobody. Ray knows no end of a job and gives none notice: `ray_pilot.sh` sees to both.
"""

from __future__ import annotations

import io
import json
import re
import secrets
import shlex
import time
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
from django.conf import settings

from experiments.cluster import ray_options
from experiments.cluster.providers import EngineProblem, Lease, Offer, Order, Standing

TIMEOUT_S, CONNECT_S = 20.0, 5.0
MOST_BYTES = 64 << 20  # of an answer
ENTRYPOINT = "exec sh ./pilot.sh"
SPARE_S = 20  # for the guard to end what has not ended in time, before Ray kills the job
LASTS = "edt_lasts_s"
STANDINGS: Mapping[str, Standing] = {"PENDING": "waiting", "RUNNING": "running"}  # all others have ended
GAVE_UP = "JOB_SUPERVISOR_ACTOR_START_TIMEOUT"  # after RAY_JOB_START_TIMEOUT_SECONDS without room
FIRST_CHARS, LAST_CHARS = 300, 500  # of a message: what has happened, and the end of the log


class Refused(EngineProblem):
    """Ray answers, and says no. `status`: of HTTP."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


class Ray:
    """See `providers.Provider`."""

    options_of = "ray job submit"
    example = "--entrypoint-num-cpus=8 --entrypoint-num-gpus=4"

    def offers(self) -> Sequence[Offer]:
        found = _read("GET", "/api/v0/nodes?limit=10000")
        nodes = _mapping(_mapping(_mapping(found).get("data")).get("result")).get("result")
        there = [_mapping(_mapping(node).get("resources_total")) for node in _list(nodes) if _mapping(node).get("state") == "ALIVE"]
        kinds: dict[tuple[str, str], list[float]] = {}
        for each in there:
            kinds.setdefault(_kind(each), []).append(each.get("memory", 0) / 2**30)
        return [
            Offer(option, f"{_machines(len(gib))} of {words}, {min(gib):.0f} GiB or more", usable=True)
            for (option, words), gib in kinds.items()
        ]

    def hold(self, order: Order) -> str:
        package = f"_ray_pkg_{secrets.token_hex(16)}.zip"
        _ask("PUT", f"/api/packages/gcs/{package}", content=packed(order))
        _ask("POST", "/api/jobs/", json=job(order, package))
        return order.name

    def leases(self) -> Mapping[str, Lease]:
        found = [lease_of(_mapping(each)) for each in _list(_read("GET", "/api/jobs/"))]
        return {lease.id: lease for lease in found if lease is not None}

    def ending(self, lease: str) -> str:
        try:
            found = _mapping(_read("GET", _address_of(lease)))
        except EngineProblem:
            return ""
        return words_of(found)

    def release(self, lease: str, *, begun: bool, hurry: bool) -> None:  # noqa: ARG002
        """The guard ends the machine in order, or by force after a while: Ray is told the same in all cases."""
        try:
            _ask("POST", f"{_address_of(lease)}/stop")
        except Refused as problem:
            if problem.status != 404:
                raise

    def check(self, options: str) -> Sequence[str]:
        words = shlex.split(options)
        ray_options.request(words)
        return words


def job(order: Order, package: str) -> dict[str, Any]:
    """What the Jobs API is asked for. Nothing in it is secret."""
    return {
        "submission_id": order.name,
        "entrypoint": ENTRYPOINT,
        "metadata": {"edt_node": order.node, LASTS: str(order.walltime_minutes * 60)},
        "runtime_env": {
            "working_dir": f"gcs://{package}",
            "env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": str(order.notice_s + SPARE_S)},
        },
        **ray_options.request(order.options),
    }


def packed(order: Order) -> bytes:
    """The package that the job begins in: its script, what that is told, and the token. Their modes are those that they will have there."""
    facts = {
        "studio": order.studio,
        "slots": str(order.slots),
        "parent": settings.EDT_PILOT_FOLDER,
        "command": settings.EDT_PILOT_COMMAND,
        "lasts_s": str(order.walltime_minutes * 60),
        "notice_s": str(order.notice_s),
    }
    files = {
        "pilot.sh": Path(__file__).with_name("ray_pilot.sh").read_text(),
        "order": "".join(f"{name}={shlex.quote(value)}\n" for name, value in facts.items()),
        "token": f"{order.token}\n",
    }
    output = io.BytesIO()
    with zipfile.ZipFile(output, "w") as package:
        for name, text in files.items():
            member = zipfile.ZipInfo(name)
            member.external_attr = 0o600 << 16
            package.writestr(member, text)
    return output.getvalue()


def lease_of(found: Mapping[str, Any]) -> Lease | None:
    """What Ray tells of a job; None for what no studio has submitted."""
    name = str(found.get("submission_id") or "")
    if found.get("type") != "SUBMISSION" or not name.startswith("edt-"):
        return None
    lasts = str(_mapping(found.get("metadata")).get(LASTS, ""))
    standing = STANDINGS.get(str(found.get("status")), "ended")
    unserved = standing == "ended" and found.get("error_type") == GAVE_UP
    return Lease(name, name, standing, None, words_of(found), lasts_s=float(lasts) if lasts.isdecimal() else None, unserved=unserved)


def words_of(found: Mapping[str, Any]) -> str:
    """How a job is, in Ray's words, on one line; of a long message its beginning and its end."""
    message = " ".join("".join(c if c.isprintable() else " " for c in str(found.get("message") or "")).split())
    if len(message) > FIRST_CHARS + LAST_CHARS:
        message = f"{message[:FIRST_CHARS]} … {message[-LAST_CHARS:]}"
    where = httpx.URL(str(found.get("driver_agent_http_address") or "")).host if found.get("status") == "RUNNING" else ""
    return f"{found.get('status', '')}{f' on {where}' if where else ''}: {message}"


def _kind(resources: Mapping[str, Any]) -> tuple[str, str]:
    """What takes a whole machine with these resources, and what that has in words, without its memory: machines hardly agree in that."""
    cpus, gpus = resources.get("CPU", 0), resources.get("GPU", 0)
    option = f"--entrypoint-num-cpus={cpus:g}" + (f" --entrypoint-num-gpus={gpus:g}" if gpus else "")
    own = sorted(name for name in resources if name not in ("CPU", "GPU", "memory", "object_store_memory") and not name.startswith("node:"))
    return option, ", ".join([f"{cpus:g} CPUs", *([f"{gpus:g} GPUs"] if gpus else []), *own])


def _machines(count: int) -> str:
    return "1 machine" if count == 1 else f"{count} machines"


def _read(method: str, path: str) -> Any:
    said = _ask(method, path)
    try:
        return json.loads(said)
    except ValueError:
        raise EngineProblem(f"{_without_password(settings.EDT_RAY_ADDRESS)} answers, but not as Ray's dashboard does.") from None


def _mapping(found: Any) -> Mapping[str, Any]:
    return found if isinstance(found, dict) else {}


def _list(found: Any) -> Sequence[Any]:
    if not isinstance(found, list):
        raise EngineProblem(f"{_without_password(settings.EDT_RAY_ADDRESS)} answers, but not as Ray's dashboard does.")
    return found


def _ask(method: str, path: str, **request: Any) -> bytes:
    address, token = settings.EDT_RAY_ADDRESS, settings.EDT_RAY_TOKEN
    if not address:
        raise EngineProblem("the setting EDT_RAY_ADDRESS, which says where its dashboard is (http://ray.example.org:8265), is empty.")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    body, end = bytearray(), time.monotonic() + 2 * TIMEOUT_S
    try:
        with httpx.stream(
            method, address + path, headers=headers, timeout=httpx.Timeout(TIMEOUT_S, connect=CONNECT_S), **request
        ) as answer:
            for piece in answer.iter_bytes():
                body += piece
                if len(body) > MOST_BYTES or time.monotonic() > end:
                    raise EngineProblem(f"{_without_password(address)} answers with too much, or too slowly.")
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:  # the last: a token that no header can have
        raise EngineProblem(f"{_without_password(address)} cannot be reached: {error or type(error).__name__}") from None
    if answer.status_code != 200:
        raise Refused(answer.status_code, _refusal(answer.status_code, body.decode(errors="replace")))
    return bytes(body)


def _address_of(lease: str) -> str:
    """Anybody there may give a job a name with slashes in it."""
    return f"/api/jobs/{quote(lease, safe='')}"


def _without_password(address: str) -> str:
    """Without a password, should one be in it."""
    return re.sub(r"//[^/]*@", "//", address)


def _refusal(status: int, said: str) -> str:
    """Ray answers with a traceback: its last sentence is the reason."""
    lines = [line.strip() for line in said.splitlines() if len(line.strip()) > 1]
    hint = " (EDT_RAY_TOKEN)" if status in (401, 403) else ""
    return f"{lines[-1][:700] if lines else f'status {status}'}{hint}"
