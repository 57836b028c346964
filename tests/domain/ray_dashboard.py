"""Ray's dashboard as far as a studio asks it, with answers as Ray 2.60 gives them. That these are right is seen with Ray itself, in
tests/e2e/test_ray_pilots.py."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

WAITS = (
    "Job has not started yet. It may be waiting for resources (CPUs, GPUs, memory, custom resources) to become available. It may be "
    "waiting for the runtime environment to be set up."
)


def answer(name: str, status: str, message: str, **more: object) -> dict[str, object]:
    """Of a job, as the dashboard of Ray 2.60 gives it."""
    return {
        **{"type": "SUBMISSION", "job_id": None, "submission_id": name, "driver_info": None, "status": status, "message": message},
        **{"entrypoint": "exec sh ./pilot.sh", "error_type": None, "start_time": 1795685568235, "end_time": None},
        **{"metadata": {"edt_node": "gpu-1", "edt_lasts_s": "3600"}, "driver_exit_code": None},
        **{"driver_agent_http_address": None if status == "PENDING" else "http://192.0.2.7:52365", "driver_node_id": None},
        **more,
    }


class Dashboard(ThreadingHTTPServer):
    """Answers what the test says, and writes down what it is asked. `jobs`: by name."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.jobs: dict[str, dict[str, object]] = {}
        self.asked: list[tuple[str, str, bytes]] = []
        self.refuses: set[str] = set()  # what ends so
        self.says: tuple[int, str] | None = None  # whatever it is asked
        self.token = "r4y"


class Handler(BaseHTTPRequestHandler):
    server: Dashboard

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.asked.append((self.command, self.path, body))
        status, text = self.server.says or self._answer(body)
        self.send_response(status)
        self.end_headers()
        self.wfile.write(text.encode())

    do_GET = do_POST = do_PUT = _serve

    def _answer(self, body: bytes) -> tuple[int, str]:
        if self.headers["Authorization"] != f"Bearer {self.server.token}":
            return 401, "Unauthorized: Missing authentication token"
        if self.path.endswith(tuple(self.server.refuses)):
            return 500, "RuntimeError: not now"
        jobs = self.server.jobs
        if (self.command, self.path) == ("GET", "/api/jobs/"):
            return 200, json.dumps([*jobs.values(), {"type": "DRIVER", "job_id": "02000000", "submission_id": None, "status": "RUNNING"}])
        if (self.command, self.path) == ("POST", "/api/jobs/"):
            name = json.loads(body)["submission_id"]
            jobs[name] = answer(name, "PENDING", WAITS)
            return 200, json.dumps({"job_id": name, "submission_id": name})
        job = jobs.get(self.path.split("/")[3])
        return (200, json.dumps(job)) if job or self.command == "PUT" else (404, f"Job {self.path} does not exist")

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def dashboard_of(settings: Any) -> Iterator[Dashboard]:
    """One that the studio with these settings asks."""
    with Dashboard() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        settings.EDT_RAY_ADDRESS, settings.EDT_RAY_TOKEN = f"http://127.0.0.1:{server.server_port}", server.token
        try:
            yield server
        finally:
            server.shutdown()
            thread.join(10)
