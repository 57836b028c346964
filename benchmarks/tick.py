"""What the scheduler's shell costs with a large database: `python -m benchmarks.tick [--quick] [--postgres]`.

50 nodes of 8 slots, 20 people, thousands of runs that have ended with their grants and histories, and 300 queued ones. `tick_s`: one tick
that grants 400 slots to the 300 runs, a real Valkey taking its messages, `messages` of them in `pipelines`; `steady_s`: a tick after which
nothing has changed; `cluster_ms`: the cluster page and the parts it fetches again, answered in this process. SQLite with the studio's own
settings; --postgres: on the test wheel's server (DATABASE_URL measures another database). Figures are the medians unless they say p95.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks.report import finish, table

if TYPE_CHECKING:
    from experiments.models import TrainingRun

NODES, SLOTS_EACH, QUEUED, PEOPLE = 50, 8, 300, 20
OLD, QUICK_OLD = 100_000, 5_000
PAGES = {
    "cluster": "/cluster/",
    "jobs": "/cluster/?part=jobs",
    "feed": "/cluster/?part=feed",
    "now": "/cluster/?part=now",
    "lanes": "/cluster/lanes?window=10m",
    "lanes_all": "/cluster/lanes?window=all",
    "usage": "/cluster/usage/",
    "rules": "/cluster/sharing/",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_OLD} ended runs instead of {OLD}")
    parser.add_argument("--postgres", action="store_true", help="on the PostgreSQL of the test wheel instead of SQLite")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="edt-bench-") as home, contextlib.ExitStack() as stack:
        if given.postgres:
            from tests.domain import postgres

            os.environ["DATABASE_URL"] = stack.enter_context(postgres.running())
        os.environ |= {"EDT_HOME": home, "DJANGO_SETTINGS_MODULE": "webapp.settings", "EDT_LOG_LEVEL": "ERROR", "EDT_ALLOWED_HOSTS": "*"}
        os.environ.pop("EDT_REDIS_URL", None)
        stack.enter_context(valkey(Path(home)))
        figures = measure(old=QUICK_OLD if given.quick else OLD, rounds=5 if given.quick else 10)
    table("Scheduler and cluster page", ("figure", "value"), [[name, value] for name, value in figures.items()])
    finish("tick", {"database": "postgresql" if given.postgres else "sqlite", **figures})


@contextlib.contextmanager
def valkey(home: Path) -> Iterator[None]:
    """The studio's own broker, in the home."""
    from webapp import home as homes
    from webapp.studio import broker

    homes.prepare(home)
    for name in ("run", "redis"):
        (home / name).mkdir(mode=0o700)
    broker.make_socket_folder(home)
    server = subprocess.Popen([broker.server_binary(), "-"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, cwd=home / "redis")
    assert server.stdin is not None
    server.stdin.write(broker.configuration(home))
    server.stdin.close()
    try:
        broker.wait(homes.broker_urls(home, "")[1])
        yield
    finally:
        server.terminate()
        server.wait()
        socket = homes.broker_socket(home)
        if home not in socket.parents:
            shutil.rmtree(socket.parent, ignore_errors=True)


def measure(*, old: int, rounds: int) -> dict[str, float]:
    import django

    django.setup()
    from django.core.management import call_command
    from django.utils import timezone

    call_command("migrate", verbosity=0)
    call_command("collectstatic", interactive=False, verbosity=0)
    now = timezone.now()
    runs = seed(old, now)
    figures: dict[str, float] = {"ended_runs": old}
    figures |= ticks(now, runs)
    figures |= pages(rounds)
    return figures


def seed(old: int, now: dt.datetime) -> list[TrainingRun]:
    """The cluster and its past; the queued runs, which nothing has been granted to."""
    from experiments import services
    from experiments.models import ClusterRules, RunState, TrainingRun, User
    from tests import cast

    people = [User.objects.create_user(f"person-{number:02}", is_staff=not number) for number in range(PEOPLE)]
    nodes = [cast.node(f"node-{number:02}", slots=SLOTS_EACH, now=now) for number in range(NODES)]
    slots = [slot for node in nodes for slot in cast.slot_ids(node)]
    project = services.create_project(by=people[0], name="Benchmark")
    experiment = cast.experiment(project, by=people[0], versions=[cast.definition(project, by=people[0])])
    version, rng = experiment.versions.get(), Random(7)
    shared = {"experiment": experiment, "version": version, "command": "python main.py"}
    for first in range(0, old, 5000):
        ended = [_ended(number, now, people[number % PEOPLE], shared) for number in range(first, min(old, first + 5000))]
        _past(TrainingRun.objects.bulk_create(ended), slots, rng)
    ClusterRules.current()
    queued = [
        TrainingRun(
            name=f"queued {number}",
            submitted_by=people[number % PEOPLE],
            submitted_at=now - dt.timedelta(seconds=QUEUED - number),
            state=RunState.QUEUED,
            max_slots=2,
            **shared,
        )
        for number in range(QUEUED)
    ]
    return TrainingRun.objects.bulk_create(queued)


def _ended(number: int, now: dt.datetime, person: object, shared: dict[str, Any]) -> TrainingRun:
    from experiments.models import RunState, TrainingRun

    begin = now - dt.timedelta(minutes=10 + number)
    state = RunState.COMPLETED if number % 7 else RunState.FAILED
    times = {"submitted_at": begin, "started_at": begin, "ended_at": begin + dt.timedelta(minutes=9)}
    return TrainingRun(name=f"ended {number}", submitted_by=person, state=state, engines=4, busy_s=500.0, **times, **shared)


def _past(runs: list[TrainingRun], slots: list[int], rng: Random) -> None:
    """Grants, states and generations of runs that have ended, as many as an elastic run leaves behind."""
    from experiments.models import GenerationRecord, Grant, RunTransition

    grants, moves, generations = [], [], []
    for run in runs:
        assert run.ended_at is not None
        for slot in rng.sample(slots, 4):
            reason = "starts with 4 of 8 slots: its maximum"
            grants.append(Grant(run=run, slot_id=slot, granted_at=run.submitted_at, released_at=run.ended_at, reason=reason))
        for place, (was, new) in enumerate(pairwise(["", "queued", "starting", "running", run.state])):
            at = run.submitted_at + dt.timedelta(minutes=2 * place)
            moves.append(RunTransition(run=run, at=at, old=was, new=new, reason="It was so."))
        for place in (1, 2):
            generations.append(
                GenerationRecord(
                    run=run,
                    seq=place,
                    generation=place,
                    at=run.submitted_at + dt.timedelta(minutes=place),
                    step=100 * place,
                    epoch=1,
                    workers=2 * place,
                    workers_before=2 * (place - 1),
                    reason="more slots",
                    pause_ms=5.0,
                    redone=0,
                )
            )
    for model, rows in ((Grant, grants), (RunTransition, moves), (GenerationRecord, generations)):
        model.objects.bulk_create(rows, batch_size=2000)  # type: ignore[attr-defined]


def ticks(now: dt.datetime, runs: list[TrainingRun]) -> dict[str, float]:
    """The tick that grants everything, and ticks after which nothing has changed."""
    from experiments.cluster import scheduling
    from experiments.models import Grant

    before = _published()
    processor, first_s = time.process_time(), _timed(lambda: scheduling.tick(now))
    processor_s = time.process_time() - processor
    messages = _published() - before
    granted = Grant.objects.filter(released_at__isnull=True).count()
    assert granted == NODES * SLOTS_EACH, f"{granted} slots granted to {len(runs)} runs"
    scheduling.tick(now)
    steady = [_timed(lambda: scheduling.tick(now)) for _ in range(5)]
    return {"tick_s": first_s, "tick_processor_s": processor_s, "messages": messages, "steady_s": median(steady)}


def _published() -> int:
    """How often the server was asked to publish something."""
    import redis
    from django.conf import settings

    with redis.Redis.from_url(settings.REDIS_URL) as client:
        said = client.info("commandstats")
    assert isinstance(said, dict)
    return int(said.get("cmdstat_publish", {}).get("calls", 0))


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def pages(rounds: int) -> dict[str, float]:
    """Milliseconds of the cluster's pages, as an administrator's browser asks for them, without the way over HTTP."""
    from django.test import Client

    from experiments.models import User

    client = Client(HTTP_HOST="localhost")
    client.force_login(User.objects.get(is_staff=True), backend="django.contrib.auth.backends.ModelBackend")
    figures = {}
    for name, path in PAGES.items():
        assert client.get(path).status_code == 200, path
        taken = sorted(1000 * _timed(lambda path=path: client.get(path)) for _ in range(rounds))  # type: ignore[misc]
        figures[f"{name}_ms"], figures[f"{name}_p95_ms"] = median(taken), taken[min(rounds - 1, int(0.95 * rounds))]
    return figures


if __name__ == "__main__":
    main()
