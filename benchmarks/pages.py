"""How long pages take and what they weigh: `python -m benchmarks.pages [--quick] [--postgres]`.

A whole studio in a folder of its own, with an experiment of 1,000 runs, one of 10,000 for the table of runs, a hundred runs with three
curves of 10,000 points each to compare, and a run whose journal of a million points was ingested the usual way. Pages are asked for over
HTTP, by turns, as a logged-in person; "interactive" is read in a real Chromium: from the navigation until both charts of the long run are
drawn and the page has answered a click. Assets are what that browser received, compressed.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import http.client
import os
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from benchmarks import _compare, _run_table, _what_if
from benchmarks.report import finish, table
from benchmarks.studio import DEADLINE_S, Browser, studio
from tests.domain import postgres

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from experiments.models import Experiment, TrainingRun, User

RUNS, WAITING = 1000, 100
LONG_STEPS = 500_000  # of two points each
METRICS = {("train", "loss"): 0.2, ("train", "accuracy"): 93.1, ("test", "loss"): 0.3, ("test", "accuracy"): 91.4}


@dataclass(frozen=True)
class Seeded:
    """Where to look. `password` is Alice's; `points`: of the long run; `compared`: the address of a hundred runs side by side."""

    password: str
    project: int
    experiment: int
    table: int
    long_run: int
    points: int
    compared: str


def seed() -> Seeded:
    """A project of Alice's with the runs; nothing of it is for the planner to start."""
    from experiments import services
    from experiments.accounts.passwords import give_password
    from experiments.models import User
    from tests import cast

    password = give_password("alice")
    alice = User.objects.get(username="alice")
    project = services.create_project(by=alice, name="Benchmark")
    experiment = cast.experiment(project, by=alice, versions=[cast.definition(project, by=alice)], name="Learning rates")
    many(experiment, alice)
    large = services.create_project(by=alice, name="Ten thousand runs")  # of its own: the lists above stay what they were
    table = cast.experiment(large, by=alice, versions=[cast.definition(large, by=alice)], name="Trials")
    _run_table.seed(table, alice)
    long = cast.experiment(project, by=alice, versions=[cast.definition(project, by=alice, name="long")], name="A long run")
    run = services.run_experiment(long, by=alice)[0]
    services.stop_run(run, by=alice)  # it never held anything: the planner leaves it alone
    compared = _compare.seed(cast.experiment(large, by=alice, versions=[cast.definition(large, by=alice)], name="Long curves"), alice)
    return Seeded(password, project.pk, experiment.pk, table.pk, run.pk, ingested(run), _compare.address(compared))


def many(experiment: Experiment, alice: User) -> None:
    """1,000 runs: most have ended, 100 are queued and paused, each has curves."""
    from django.utils import timezone

    from experiments.models import JournalCursor, MetricSeries, RunState, TrainingRun

    now, version = timezone.now(), experiment.versions.get()
    shared = {"experiment": experiment, "version": version, "submitted_by": alice, "command": "python main.py --lr 0.01", "epochs": 20}
    rows = []
    for number in range(RUNS):
        at = now - dt.timedelta(minutes=number)
        ended = {"state": RunState.COMPLETED if number % 7 else RunState.FAILED, "started_at": at, "ended_at": at + dt.timedelta(minutes=9)}
        waiting = {"paused": True, "plan_reason": "It is paused: it gets slots again when somebody resumes it."}
        state = waiting if number < WAITING else ended
        rows.append(TrainingRun(name=f"rate 0.{number:04}", submitted_at=at, steps_per_epoch=100, step=2000, **shared, **state))
    made = TrainingRun.objects.bulk_create(rows)
    JournalCursor.objects.bulk_create(JournalCursor(run=run) for run in made)
    MetricSeries.objects.bulk_create(
        MetricSeries(run=run, group=group, name=name, points=2000, last_step=2000, last_value=value)
        for run in made
        for (group, name), value in METRICS.items()
    )


def ingested(run: TrainingRun) -> int:
    """How many points the run has when its journal of LONG_STEPS steps has been read."""
    from django.utils import timezone

    from experiments.files import runfiles
    from experiments.metrics import ingest
    from experiments.models import Metric
    from tests import cast
    from training_runtime import journal, journal_writer

    writer = journal_writer.Writer(runfiles.make(run) / journal.FILE_NAME, run.pk)
    writer.write(cast.started(epochs=1, steps=LONG_STEPS))
    for step in range(1, LONG_STEPS + 1):
        metrics = {"loss": 2.5 / step**0.5 + (step * 7919 % 97) / 1000, "accuracy": 100 - 90 / (step + 1) ** 0.2}
        train = journal.Train(step=step, epoch=1, metrics=metrics, samples=64, workers=4, step_s=0.01)
        writer.write(train, t=1.79e9 + step / 100)
        if step % 10_000 == 0:
            writer.flush()
    writer.close()
    ingest.catch_up(run.pk, now=timezone.now())
    return Metric.objects.filter(series__run=run).count()


class Visitor:
    """One kept connection, as a browser has: milliseconds and bytes of each page."""

    def __init__(self, browser: Browser) -> None:
        self.connection = http.client.HTTPConnection(browser.address.removeprefix("http://"), timeout=DEADLINE_S)
        self.headers = {"Cookie": browser.header(), "Accept-Encoding": "gzip"}

    def get(self, path: str) -> tuple[float, float, int]:
        """(ms to the first byte, ms to the last, bytes of the body as sent)."""
        began = time.perf_counter()
        self.connection.request("GET", path, headers=self.headers)
        answer = self.connection.getresponse()
        first = time.perf_counter()
        body = answer.read()
        assert answer.status == 200, (path, answer.status)
        return 1000 * (first - began), 1000 * (time.perf_counter() - began), len(body)

    def plain_kb(self, path: str) -> float:
        """What the page weighs before it is compressed."""
        self.connection.request("GET", path, headers=self.headers | {"Accept-Encoding": "identity"})
        return len(self.connection.getresponse().read()) / 1000


def percentile(values: list[float], share: float) -> float:
    """The value that `share` of them do not exceed."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(share * len(ranked)))]


def processor_s(pid: int) -> float:
    """Processor time that the process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def over_http(address: str, seeded: Seeded, rounds: int, web: int) -> tuple[dict[str, float], list[list[object]]]:
    """(figures, a row for each page): the pages by turns, so that a busy moment hits them all; then each for itself, for the processor time
    that it costs the web process `web`, which other work on the machine changes little."""
    browser = Browser(address)
    browser.get("/login/")
    browser.post("/login/", username="alice", password=seeded.password)
    lists = {
        "experiment, 1,000 runs": f"/experiments/{seeded.experiment}/",
        "jobs of the project": f"/projects/{seeded.project}/jobs/",
        "cluster": "/cluster/",
    }
    run = f"/runs/{seeded.long_run}/"
    pages = {**lists, "projects": "/projects/", "run, a million points": run, "its curves": f"{run}series?max=1500"}
    visitor = Visitor(browser)
    rows = measured(visitor, pages, rounds, web)
    tables = measured(visitor, _run_table.addresses(seeded.table), rounds, web)
    html = [row for row in rows if row[0] != "its curves"]
    return {
        "runs_page_p95_ms": max(float(str(row[3])) for row in rows if row[0] in lists),
        "runs_page_kb": max(float(str(row[4])) for row in rows if row[0] in lists),
        "first_html_ms": max(float(str(row[1])) for row in html),
        "processor_ms": max(float(str(row[5])) for row in html),
        "table_10k_p95_ms": float(str(tables[0][3])),
        "table_10k_kb": float(str(tables[0][6])),
    }, [*rows, *tables]


def what_if(address: str, seeded: Seeded, rounds: int, web: int) -> tuple[dict[str, float], list[list[object]]]:
    """(figures, a row for each question): the median of the dearest of them, and the processor time that it costs."""
    from experiments import services
    from experiments.models import User
    from tests import cast

    alice = User.objects.get(username="alice")
    project = services.create_project(by=alice, name="Two hundred live runs")  # seeded last: the planner thinks of them from now on
    _what_if.seed(cast.experiment(project, by=alice, versions=[cast.definition(project, by=alice, device="gpu")], name="Trials"), alice)
    browser = Browser(address)
    browser.get("/login/")
    browser.post("/login/", username="alice", password=seeded.password)
    rows = measured(Visitor(browser), _what_if.ADDRESSES, rounds, web)
    return {
        "what_if_ms": max(float(str(row[2])) for row in rows),
        "what_if_processor_ms": max(float(str(row[5])) for row in rows),
    }, rows


def measured(visitor: Visitor, pages: dict[str, str], rounds: int, web: int) -> list[list[object]]:
    """A row for each page: the last figure is its weight before it is compressed."""
    seen: dict[str, list[tuple[float, float, int]]] = {name: [] for name in pages}
    for path in pages.values():
        visitor.get(path)  # the first one of each also fills caches
    for _ in range(rounds):
        for name, path in pages.items():
            seen[name].append(visitor.get(path))
    rows: list[list[object]] = []
    for name, found in seen.items():
        began = processor_s(web)
        for _ in range(rounds):
            visitor.get(pages[name])
        cost = 1000 * (processor_s(web) - began) / rounds
        first, whole = [each[0] for each in found], [each[1] for each in found]
        rows.append(
            [
                name,
                percentile(first, 0.95),
                median(whole),
                percentile(whole, 0.95),
                found[-1][2] / 1000,
                cost,
                visitor.plain_kb(pages[name]),
            ]
        )
    return rows


def in_the_browser(address: str, seeded: Seeded, rounds: int) -> dict[str, float]:
    """Seconds until the run of a million points can be used and until a hundred runs are drawn side by side, and the kilobytes of assets
    that a first visit fetched."""
    from tests import chromium

    taken = []
    with chromium.started() as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(f"{address}/login/")
        page.get_by_label("Username").fill("alice")
        page.get_by_label("Password").fill(seeded.password)
        page.get_by_role("button", name="Log in").click()
        page.wait_for_url("**/projects/")
        for _ in range(rounds):
            taken.append(interactive_s(page, f"{address}/runs/{seeded.long_run}/"))
        compared = [_compare.drawn_s(page, f"{address}{seeded.compared}") for _ in range(rounds)]
        fresh = browser.new_context(storage_state=page.context.storage_state()).new_page()
        interactive_s(fresh, f"{address}/runs/{seeded.long_run}/")
        assets = "performance.getEntriesByType('resource').filter(e => e.name.includes('/static/'))"
        sizes = fresh.evaluate(f"{assets}.map(e => e.encodedBodySize)")
    return {"million_points_s": median(taken), "compare_100_s": median(compared), "assets_kb": sum(sizes) / 1000}


def interactive_s(page: Page, address: str) -> float:
    """From the navigation to a page whose charts are drawn and that answers a click."""
    began = time.perf_counter()
    page.goto(address, wait_until="commit")
    page.locator(".uplot").nth(1).wait_for()
    page.get_by_role("button", name="Time", exact=True).click()
    page.locator('[data-axis="time"][aria-pressed="true"]').wait_for()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pages", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--postgres", action="store_true", help="on the PostgreSQL of the test wheel")
    asked = parser.parse_args()
    with contextlib.ExitStack() as stack:
        if asked.postgres:
            os.environ["DATABASE_URL"] = stack.enter_context(postgres.running())
        measure(quick=asked.quick)


def measure(*, quick: bool) -> None:
    home = Path(tempfile.mkdtemp(prefix="edt-benchmark-"))
    home.chmod(0o755)
    os.environ.update(EDT_HOME=str(home), DJANGO_SETTINGS_MODULE="webapp.settings", EDT_LOG_LEVEL="ERROR")
    try:
        with studio(home) as (address, _, _):
            import django

            django.setup()
            seeded = seed()
            web = int((home / "run" / "web.pid").read_text().split()[0])
            figures, rows = over_http(address, seeded, 20 if quick else 100, web)
            figures |= in_the_browser(address, seeded, 3 if quick else 9)
            asked, futures = what_if(address, seeded, 10 if quick else 50, web)
            figures |= asked
    finally:
        shutil.rmtree(home, ignore_errors=True)
    load = f"{RUNS:,} runs, a run of {seeded.points:,} points; load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    table(load, ["page", "first byte p95 ms", "whole p50 ms", "whole p95 ms", "KB", "processor ms", "KB plain"], rows)
    title = f"{_what_if.RUNS} live runs on {_what_if.MACHINES * _what_if.SLOTS} slots"
    table(title, ["page", "first byte p95 ms", "whole p50 ms", "whole p95 ms", "KB", "processor ms", "KB plain"], futures)
    seen = ("million_points_s", "compare_100_s", "assets_kb")
    table("In Chromium", ["figure", "measured"], [[name, figures[name]] for name in seen])
    finish("pages", {name: round(value, 3) for name, value in figures.items()})


if __name__ == "__main__":
    main()
