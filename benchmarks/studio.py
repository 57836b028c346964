"""How long a person waits, and what the web side weighs: `python -m benchmarks.studio [--quick]`.

A whole studio in a folder of its own: seconds from `manage.py studio` to the first page (set up already; the median of some starts), what
all its processes but the node host's have spent of a processor by the time that they are ready, and what memory they take then (each shared
page once), memory of the idle web process (all that is resident, shared pages in full), and seconds from the click on "Run" to the first
point of the loss curve at the browser's end of the WebSocket, with the digits on four CPU slots. `--starts N`: that many starts alone.
"""

from __future__ import annotations

import argparse
import contextlib
import http.cookiejar
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from benchmarks.report import finish, table

REPOSITORY = Path(__file__).resolve().parents[1]
DEADLINE_S = 60.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Browser:
    """Cookies and forms, as much of a browser as a measurement needs."""

    address: str
    cookies: http.cookiejar.CookieJar = field(default_factory=http.cookiejar.CookieJar)

    def get(self, path: str) -> bytes:
        return self._open(urllib.request.Request(self.address + path))

    def post(self, path: str, **fields: str) -> bytes:
        token = next(cookie.value for cookie in self.cookies if cookie.name == "csrftoken")
        data = urllib.parse.urlencode({**fields, "csrfmiddlewaretoken": token}).encode()
        return self._open(urllib.request.Request(self.address + path, data=data, headers={"Origin": self.address}))

    def _open(self, request: urllib.request.Request) -> bytes:
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(self.cookies))
        with opener.open(request, timeout=DEADLINE_S) as answer:
            return bytes(answer.read())

    def header(self) -> str:
        return "; ".join(f"{cookie.name}={cookie.value}" for cookie in self.cookies)


@contextlib.contextmanager
def studio(home: Path) -> Iterator[tuple[str, float, subprocess.Popen[bytes]]]:
    """(address, seconds to the first page, process) of a running studio."""
    port = free_port()
    began = time.monotonic()
    with open(home / "output.log", "ab") as output:
        process = subprocess.Popen(
            [sys.executable, "manage.py", "studio", "--port", str(port), "--slots", "4"],
            cwd=REPOSITORY,
            env={**os.environ, "EDT_HOME": str(home)},
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        address = f"http://127.0.0.1:{port}"
        while not answers(address):
            assert process.poll() is None, (home / "output.log").read_text()
            assert time.monotonic() < began + DEADLINE_S, "the studio did not start"
            time.sleep(0.01)
        yield address, time.monotonic() - began, process
    except urllib.error.HTTPError:
        print((home / "output.log").read_text()[-4000:], file=sys.stderr)
        raise
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(DEADLINE_S)


def answers(address: str) -> bool:
    try:
        return int(urllib.request.urlopen(f"{address}/login/", timeout=DEADLINE_S).status) == 200
    except urllib.error.HTTPError:
        raise
    except OSError:
        return False


def resident_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1024


def web_idle_mb(home: Path, address: str) -> float:
    """After some pages have been served and it has been left alone for a moment."""
    for _ in range(5):
        answers(address)
    time.sleep(2)
    return resident_mb(int((home / "run" / "web.pid").read_text().split()[0]))


def wait_until_ready(home: Path, starts: int) -> None:
    """Until its workers and its link have said that they are, for the time of that number."""
    end = time.monotonic() + DEADLINE_S
    for name, words in {"ingest": " ready.", "control": " ready.", "link": " Joined "}.items():
        log = home / "log" / f"{name}.log"
        while not log.exists() or log.read_text().count(words) < starts:
            assert time.monotonic() < end, f"{name} is not ready"
            time.sleep(0.05)


def spent(studio: int, home: Path) -> tuple[float, float]:
    """(seconds of a processor, MB of memory) of the studio's process and all that it has started but the node host, which imports torch."""
    host = int((home / "run" / "host.pid").read_text().split()[0])
    me = psutil.Process(studio)
    processes = [me]
    for child in me.children():
        if child.pid != host:
            processes += [child, *child.children(recursive=True)]
    seconds = sum(sum(process.cpu_times()[:2]) for process in processes) + sum(me.cpu_times()[2:4])
    return seconds, sum(process.memory_full_info().pss for process in processes) / (1 << 20)


def starts_of(home: Path, count: int) -> dict[str, float]:
    """The medians of so many starts, of a studio that was started once."""
    pages, processor, memory = [], [], []
    for number in range(count):
        with studio(home) as (_, taken, process):
            pages.append(taken)
            wait_until_ready(home, number + 2)
            seconds, mb = spent(process.pid, home)
            processor.append(seconds)
            memory.append(mb)
    found = {"first_page_s": pages, "start_processor_s": processor, "ready_mb": memory}
    return {name: statistics.median(values) for name, values in found.items()}


def an_experiment() -> tuple[int, str]:
    """(id of an experiment with the digits, Alice's password), made with the demonstration's own services."""
    from experiments.management.demonstration import story
    from experiments.models import Slot, User

    story.put_data()
    password = story.cast()["alice"]
    end = time.monotonic() + DEADLINE_S
    while Slot.objects.count() < 4:
        assert time.monotonic() < end, "the node has not said what it has"
        time.sleep(0.05)
    alice = User.objects.get(username="alice")
    from experiments import services

    version = story.definition_of(alice, slots=4)
    experiment = services.create_experiment(
        version.definition.project, by=alice, name="Benchmark", source_folder="digits", global_command="main.py", versions=[version]
    )
    return experiment.pk, password


def first_point_s(address: str) -> float:
    """From sending the form to having the first point, by the socket or by the catch-up that a page asks for when it opens."""
    from websockets.sync.client import connect

    from experiments.models import TrainingRun

    experiment, password = an_experiment()
    browser = Browser(address)
    browser.get("/login/")
    browser.post("/login/", username="alice", password=password)
    with connect(f"ws{address[4:]}/ws/", additional_headers={"Cookie": browser.header()}, origin=address) as page:
        began = time.monotonic()
        browser.post(f"/experiments/{experiment}/run/", idempotency_key=str(uuid.uuid4()))
        run = TrainingRun.objects.filter(experiment=experiment).latest("pk").pk
        page.send(json.dumps({"subscribe": [f"run-{run}"]}))
        points = json.loads(browser.get(f"/runs/{run}/points?after=0"))["points"]
        while not points:
            said = json.loads(page.recv(timeout=DEADLINE_S))
            points = said.get("points", []) if said["type"] == "points" else []
        taken = time.monotonic() - began
    browser.post(f"/runs/{run}/stop/")
    return taken


def show(figures: dict[str, float]) -> None:
    table("The studio", ["figure", "measured"], [[name, round(value, 2)] for name, value in figures.items()])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.studio", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer starts")
    parser.add_argument("--starts", type=int, help="so many starts, and nothing else")
    said = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="edt-benchmark-"))
    home.chmod(0o755)
    os.environ.update(EDT_HOME=str(home), DJANGO_SETTINGS_MODULE="webapp.settings")
    try:
        with studio(home) as (_, set_up_s, _):
            wait_until_ready(home, 1)
        figures = {"first_start_s": set_up_s, **starts_of(home, said.starts or (3 if said.quick else 7))}
        if said.starts:
            show(figures)
            return
        with studio(home) as (address, _, _):
            idle_mb = web_idle_mb(home, address)
            import django

            django.setup()
            figures |= {"web_idle_mb": idle_mb, "first_point_s": first_point_s(address)}
    finally:
        shutil.rmtree(home, ignore_errors=True)
    show(figures)
    finish("studio", {name: round(value, 3) for name, value in figures.items()})


if __name__ == "__main__":
    main()
