"""How soon a metric is seen: `python -m benchmarks.live [--quick]`.

A whole studio in a folder of its own, a real run on its slots that does ten steps a second, and 100 WebSockets of ten people that follow
the run as its page does. Each point carries the time at which the driver wrote it; what is measured is how much later each of the sockets
has it, over every point (since all are open) and every socket: journal, node host, agent, Celery, database, channel layer, web server. One
more page is open in a real Chromium, and what it shows is compared with the same clock: from its line in the journal to the step on screen.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import tempfile
import threading
import time
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.handover import Person, person, wait_for
from benchmarks.pages import percentile
from benchmarks.report import finish, table
from benchmarks.studio import DEADLINE_S, Browser, studio

SOCKETS, PEOPLE = 100, 10
SCRIPT = """
import time

import torch
from torch import nn
from fabric_model import FabricModel

model = nn.Linear(32, 4)
data = torch.utils.data.TensorDataset(torch.randn(6400, 32), torch.randint(0, 4, (6400,)))


def loss(predicted, wanted):
    time.sleep(0.1)
    return nn.functional.cross_entropy(predicted, wanted)


FabricModel(model, lambda: (data, None), loss, torch.optim.SGD(model.parameters(), 0.01)).train(100000, 16, 4, checkpoint_freq=0)
"""
WATCH = """() => {
  const step = document.querySelector('#tiles [data-f=step]');
  window.seen = [];
  const note = () => window.seen.push([Number(step.textContent.replaceAll(',', '')), Date.now() / 1000]);
  new MutationObserver(() => requestAnimationFrame(note)).observe(step, {childList: true, characterData: true, subtree: true});
}"""


@dataclass
class Heard:
    """What the sockets got. `late_s`: of each point on each socket; `sequences`: the journal lines each socket was told of, in order."""

    late_s: list[float] = field(default_factory=list)
    sequences: list[list[tuple[int, int]]] = field(default_factory=list)

    def gaps(self) -> int:
        """Messages that did not go on where the last one of their socket ended."""
        return sum(1 for found in self.sequences for (_, before), (after, _) in pairwise(found) if after != before)


async def listen(address: str, cookie: str, run: int, everybody: asyncio.Barrier, seconds: float, heard: Heard) -> None:
    """One page's socket, for so many seconds after all of them have been subscribed."""
    from websockets.asyncio.client import connect

    sequence: list[tuple[int, int]] = []
    heard.sequences.append(sequence)
    async with connect(f"ws{address[4:]}/ws/", additional_headers={"Cookie": cookie}, origin=address, open_timeout=DEADLINE_S) as page:
        await page.send(json.dumps({"subscribe": [f"run-{run}", "run-0"]}))
        while json.loads(await page.recv())["type"] != "refused":  # of the run that is not there: the one before it is subscribed
            pass
        await everybody.wait()
        began = time.time()
        while (left := began + seconds - time.time()) > 0:
            try:
                said = await asyncio.wait_for(page.recv(), left)
            except TimeoutError:
                break
            now = time.time()
            message = json.loads(said)
            if message["type"] == "points":
                sequence.append((message["after"], message["seq"]))
                heard.late_s += [now - point[3] for point in message["points"] if point[3] >= began]


def follow(address: str, cookies: list[str], run: int, seconds: float) -> Heard:
    """100 sockets for some seconds, in a thread with a loop of its own: Playwright's occupies this one."""
    heard = Heard()

    async def all_of_them() -> None:
        everybody = asyncio.Barrier(SOCKETS)
        pages = (listen(address, cookies[n % len(cookies)], run, everybody, seconds, heard) for n in range(SOCKETS))
        await asyncio.gather(*pages)

    thread = threading.Thread(target=lambda: asyncio.run(all_of_them()))
    thread.start()
    thread.join()
    return heard


def audience(address: str, run: int) -> list[str]:
    """Cookies of people who have logged in and may read the run."""
    from experiments import services
    from experiments.accounts.passwords import give_password
    from experiments.models import TrainingRun, User

    project, alice = TrainingRun.objects.get(pk=run).experiment.project, User.objects.get(username="alice")
    found = []
    for number in range(PEOPLE):
        name = f"reader-{number}"
        browser, password = Browser(address), give_password(name)
        services.add_member(project, by=alice, username=name, role="viewer")
        browser.get("/login/")
        browser.post("/login/", username=name, password=password)
        found.append(browser.header())
    return found


def submitted(alice: Person) -> int:
    from experiments.models import TrainingRun

    run, _ = alice.submits()
    wait_for("the run trains", lambda: TrainingRun.objects.get(pk=run).step > 5)
    return run


def drawn(page: Any, times: dict[int, float]) -> list[float]:
    """Seconds from the journal's line of a step to that step on the page."""
    return [at - times[step] for step, at in page.evaluate("window.seen") if step in times]


def measure(home: Path, seconds: float) -> tuple[Heard, list[float]]:
    from tests import chromium

    with studio(home) as (address, _, _):
        import django

        django.setup()
        from experiments.files import runfiles
        from experiments.models import Slot
        from training_runtime import journal

        wait_for("the node has said what it has", lambda: Slot.objects.count() == 4)
        alice = person(address, "alice", script=SCRIPT)
        run = submitted(alice)
        cookies = audience(address, run)
        with chromium.started() as browser:
            context = browser.new_context()
            context.add_cookies([{"name": each.name, "value": str(each.value), "url": address} for each in alice.browser.cookies])
            page = context.new_page()
            page.goto(f"{address}/runs/{run}/")
            page.locator('#live[data-state="live"]').wait_for()
            page.evaluate(WATCH)
            heard = follow(address, cookies, run, seconds)
            folder = runfiles.folder_of(run)
            assert folder is not None
            lines = journal.follow(folder / journal.FILE_NAME)
            shown = drawn(page, {line.event.step: line.t for line in lines if isinstance(line.event, journal.Train)})
        alice.stops(run)
    return heard, shown


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.live", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="15 seconds instead of 60")
    seconds = 15.0 if parser.parse_args().quick else 60.0
    home = Path(tempfile.mkdtemp(prefix="edt-benchmark-"))
    home.chmod(0o755)
    os.environ.update(EDT_HOME=str(home), DJANGO_SETTINGS_MODULE="webapp.settings", EDT_LOG_LEVEL="ERROR")
    try:
        heard, shown = measure(home, seconds)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    late = [1000 * each for each in heard.late_s]
    rows = [
        ["on a socket", len(late), percentile(late, 0.5), percentile(late, 0.95), percentile(late, 0.99), max(late)],
        ["drawn in Chromium", len(shown), *(1000 * percentile(shown, share) for share in (0.5, 0.95, 0.99)), 1000 * max(shown)],
    ]
    load = f"{SOCKETS} sockets, {heard.gaps()} gaps; load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    table(load, ["metric written until it is", "times", "p50 ms", "p95 ms", "p99 ms", "most ms"], rows)
    figures = {"visible_p95_ms": percentile(late, 0.95), "drawn_p95_ms": 1000 * percentile(shown, 0.95), "gaps": heard.gaps()}
    finish("live", {name: round(value, 1) for name, value in figures.items()})


if __name__ == "__main__":
    main()
