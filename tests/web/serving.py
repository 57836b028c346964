"""A studio with a past on a port of its own, as a process: what the browser tests open, and anybody who wants to look.

    python -m tests.web.serving

prints one line of JSON (address, things to open) and then does what its standard input says, a line each: "steps 5" lets the running job
train on, "first-steps 5" the waiting one begin, "end-waiting" ends it, "log WORDS" writes them to the running one's log, "log-of worker-0
WORDS" to that worker's, "becomes suspended" and "becomes running" change its state, "use 0.5" says how far its slots were at work,
"cut-log WORDS" leaves nothing in it but them,
"drawn WORDS" writes them with Python's escapes and without an end of line, "handed-over" that the running one has all slots but
one, which the waiting one is about to have, "silent" that its machine was last heard of an hour ago,
"artifact NAME WORDS" keeps a file with the completed one, "files FOLDER 300" so many,
"definitions 120" makes so many training definitions,
"strange" adds very many of everything, "changed" tells the cluster page to look again, "box off" makes that the level of all
machines, "ill" that one slot is out of service and another is doubted, "session NAME" logs somebody in (the answer has the cookie),
"provider ISSUER CLIENT SECRET" lets everybody log in by that OpenID provider. It ends, and leaves nothing, when its input ends, or at
"end".
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import os
import shutil
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.web.served_addresses import addresses

if TYPE_CHECKING:
    from experiments.models import TrainingRun
    from tests.web.seed import Seeded

DEADLINE_S = 30.0
_speaking = threading.Lock()
_silent = threading.Event()  # the agents of its machines say nothing any more


def main() -> int:
    home = tempfile.mkdtemp(prefix="edt-web-")
    os.environ |= {"EDT_HOME": home, "DJANGO_SETTINGS_MODULE": "webapp.settings_test"}
    try:
        serve()
    finally:
        shutil.rmtree(home, ignore_errors=True)
    return 0


def serve() -> None:
    import django

    django.setup()
    logging.disable(logging.WARNING)
    from django.conf import settings
    from django.core.management import call_command
    from django.utils import timezone

    from experiments.live import notify
    from tests import migrated, transferred
    from tests.web import fetched, packages, seed

    notify.app.send_task = lambda *_, **__: None  # no Celery here: what would be scheduled is not
    migrated.copy_to(Path(settings.DATABASES["default"]["NAME"]))
    call_command("migrate", verbosity=0)  # makes the permissions
    studio = seed.studio(now=timezone.now())
    odd = seed.oddly_named(studio) | fetched.fetched(studio) | transferred.pages(studio.alice, studio.digits)
    threading.Thread(target=_hear_of_nodes, daemon=True).start()
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    server = _server()
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    end = time.monotonic() + DEADLINE_S
    while not server.started:
        assert time.monotonic() < end, "the server did not start"
        time.sleep(0.02)
    _say({"url": f"http://127.0.0.1:{listener.getsockname()[1]}", **addresses(studio), **packages.pages(), **odd})
    while (line := sys.stdin.readline().strip()) and line != "end":
        _say({"done": line, **(_obey(line.split(), studio) or {})})
    server.should_exit = True
    thread.join(DEADLINE_S)
    if line:
        _say({"done": line})


def _hear_of_nodes() -> None:
    """What the agents of its machines do: without them every run's machine would be silent after a quarter of a minute."""
    from django.utils import timezone

    from experiments.models import Node

    while not _silent.wait(3.0):
        with _speaking:  # else what is said last could come after they were silenced
            if not _silent.is_set():
                Node.objects.update(last_seen_at=timezone.now())


def _server():  # type: ignore[no-untyped-def]
    import uvicorn
    from channels.routing import ProtocolTypeRouter
    from django.contrib.staticfiles.handlers import ASGIStaticFilesHandler

    from webapp.asgi import application
    from webapp.studio import web

    parts = application.application_mapping
    whole = ProtocolTypeRouter({"http": ASGIStaticFilesHandler(parts["http"]), "websocket": parts["websocket"]})
    return uvicorn.Server(web.config(whole, log_level="error", timeout_graceful_shutdown=2))


def _box(level: str) -> None:
    from experiments.live import notify
    from experiments.models import Node

    Node.objects.update(sandbox_level=level)
    notify.changed("cluster", "nodes")


def _session(username: str) -> dict[str, str]:
    from django.conf import settings
    from django.test import Client

    from experiments.models import User

    client = Client()
    client.force_login(User.objects.get(username=username))
    return {"cookie": settings.SESSION_COOKIE_NAME, "value": client.cookies[settings.SESSION_COOKIE_NAME].value}


def _obey(words: list[str], studio: Seeded) -> dict[str, str] | None:
    """What is said of it beside that it is done."""
    from django.utils import timezone

    from experiments import services
    from experiments.metrics import ingest
    from experiments.models import TrainingRun
    from experiments.notifications import rules
    from experiments.runs import states
    from tests import cast
    from tests.web import strange

    run = TrainingRun.objects.get(pk=studio.running.pk)
    now = timezone.now()
    match words:
        case ["session", username]:
            return _session(username)
        case ["steps", count]:
            for step in range(run.step + 1, run.step + 1 + int(count)):
                cast.write_journal(run, cast.step(step, loss=0.2, workers=2, epoch=run.epoch), t=now.timestamp())
            ingest.catch_up(run.pk, now=now)
        case ["first-steps", count]:
            _first_steps(studio, int(count))
        case ["end-waiting"]:
            _end(studio.queued, now)
        case ["tell"]:
            rules.notify_state(studio.stopped, reason="wrong data", now=now, actor=None)
        case ["becomes", state]:
            states.transition(run, state, reason="as it was told", now=now)
        case ["retell"]:
            services.annotate_run(studio.completed, by=studio.alice, tags=[], note="told again")
        case ["use", share]:
            _at_work(run, studio, float(share))
        case ["strange"]:
            strange.many_metrics(studio, now=now)
            strange.much_use(studio.completed, strange.many_slots(studio, now=now))
        case _:
            _obey_of_files(words, run, studio, now)
    return None


def _obey_of_files(words: list[str], run: TrainingRun, studio: Seeded, now: dt.datetime) -> None:
    from experiments.files import runfiles
    from experiments.live import notify
    from tests.web import strange, written

    match words:
        case ["log", *rest]:
            _log(run, " ".join(rest) + "\n")
        case ["cut-log", *rest]:
            _log(run, " ".join(rest) + "\n", mode="w")
        case ["drawn", *rest]:
            _log(run, " ".join(rest).encode().decode("unicode_escape"))
        case ["log-of", name, *rest]:
            _log(run, " ".join(rest) + "\n", name=name)
            notify.changed(f"run-{run.pk}", "generations")
        case ["artifact", name, *rest]:
            path = runfiles.folder(studio.completed) / "artifacts" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(" ".join(rest))
        case ["files", name, count]:
            strange.many_files(studio.completed, name, int(count))
        case ["definitions", count]:
            strange.many_definitions(studio, int(count))
        case ["looks", *steps]:
            for name, data in written.looks(tuple(map(int, steps))).items():
                (runfiles.folder(studio.completed) / name).write_bytes(data)
            notify.changed(f"run-{studio.completed.pk}", "media")
        case _:
            _obey_of_machines(words, studio, now)


def _obey_of_machines(words: list[str], studio: Seeded, now: dt.datetime) -> None:
    from experiments.live import notify
    from experiments.models import Node

    match words:
        case ["handed-over"]:
            handed_over(studio, proven=True)
            notify.changed("cluster", "jobs", "lanes", "feed", "nodes")
        case ["silent"]:
            _silent.set()
            with _speaking:
                Node.objects.update(last_seen_at=now - dt.timedelta(hours=1), refused_at=now)
        case ["provider", issuer, client, secret]:
            _log_in_by(issuer, client, secret)
        case ["box", level]:
            _box(level)
        case ["ill"]:
            _look_ill(now)
        case ["changed"]:
            notify.changed("cluster", "jobs", "lanes", "feed", "nodes")


def _log_in_by(issuer: str, client: str, secret: str) -> None:
    from django.conf import settings

    settings.EDT_OIDC_ISSUER, settings.EDT_OIDC_CLIENT_ID, settings.EDT_OIDC_CLIENT_SECRET = issuer, client, secret
    settings.EDT_OIDC_NAME, settings.EDT_OIDC_ALLOW = "Example SSO", ["*"]


def _look_ill(now: dt.datetime) -> None:
    from experiments.cluster import slot_health
    from experiments.models import Slot

    words = "Workers of 3 runs of 2 people keep dying on it, and the same runs do well on 7 other slots."
    Slot.objects.filter(index=2).update(doubt=f"{words} It stays in service because it is the last GPU slot that is.")
    slot_health.take_out(Slot.objects.get(index=3), words, now=now)


def _at_work(run: TrainingRun, studio: Seeded, share: float) -> None:
    """The run's machine says how far its slots were at work for ten seconds more."""
    from django.utils import timezone

    from experiments.cluster import utilization
    from experiments.live import notify
    from experiments.models import LatestUtilization
    from tests.web.measured import STRANGER
    from training_runtime.protocol import RunObservation, SlotSeen

    last = run.utilization_samples.latest("tick")
    counts = {each.slot: each for each in utilization.by_slot(last.slots).values()}
    slots = tuple(
        SlotSeen(
            each.slot,
            each.since_s,
            (each.busy_s or 0) + 10 * share,
            each.counted_s + 10,
            (1 + 2 * place) * 10**9,
            143 * 10**9,
            holders=STRANGER,
        )
        for place, each in enumerate(counts.values())
    )
    busy_s, counted_s = (last.busy_s or 0) + 20 * share, last.counted_s + 20
    seen = RunObservation(run.pk, 1, "running", tuple(counts), busy_s=busy_s, counted_s=counted_s, slots=slots)
    later = timezone.datetime.fromtimestamp(last.t + 10, timezone.get_current_timezone())
    utilization.store_sample(run, seen, now=later)
    known = max((each.t for each in utilization.entries(LatestUtilization.objects.filter(run=run).first())), default=0.0)
    soonest = dt.datetime.fromtimestamp(known + utilization.PRESENT_S, dt.UTC)
    renewed = utilization.renew(run, seen, now=max(later, soonest, timezone.now()))  # pages say of what was heard long ago that it was
    assert renewed, "it was too soon after the last"
    notify.changed(f"node-{studio.node.pk}", "use")


def _end(run: TrainingRun, now: dt.datetime) -> None:
    """The run writes its last words, without an end of the line, and has ended."""
    from experiments.files import runfiles
    from experiments.runs import states

    path = runfiles.folder(run) / "log" / "driver" / "console.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as log:
        log.write("its last words")
    states.transition(run, "completed", reason="It finished.", now=now, actor=None)


def _log(run: TrainingRun, text: str, *, name: str = "driver", mode: str = "a") -> None:
    from experiments.files import runfiles

    path = runfiles.folder(run) / "log" / name / "console.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open(mode, newline="") as log:
        log.write(text)


def handed_over(studio: Seeded, *, proven: bool) -> None:
    """Alice's run has all slots, and was asked for the second, for Bob's run that waits; `proven`: its worker has left it."""
    from django.utils import timezone

    from experiments.models import Grant, Node, TrainingRun

    now = timezone.now()
    ago = now - dt.timedelta(seconds=1)
    Node.objects.filter(pk=studio.node.pk).update(last_seen_at=now)
    Grant.objects.filter(run=studio.other, released_at=None).update(run=studio.running)
    TrainingRun.objects.filter(pk=studio.other.pk).update(state="completed", ended_at=now)
    asked = Grant.objects.filter(run=studio.running, slot__index=1, released_at=None)
    asked.update(release_requested_at=ago, released_at=ago if proven else None)


def _first_steps(studio: Seeded, count: int) -> None:
    """Let the run that waits begin, or go on."""
    from django.utils import timezone

    from experiments.files import runfiles
    from experiments.metrics import ingest
    from experiments.models import TrainingRun
    from tests import cast
    from tests.web import seeded_runs

    run, now = TrainingRun.objects.get(pk=studio.queued.pk), timezone.now()
    begins = [] if run.step else [cast.started(steps=100), seeded_runs.generation(1, 2, 0)]
    log = runfiles.folder(run) / "log" / "driver" / "console.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("INFO training begins\n")
    steps = [cast.step(step, loss=2 / step, workers=2) for step in range(run.step + 1, run.step + 1 + count)]
    cast.write_journal(run, *begins, *steps, t=now.timestamp())
    ingest.catch_up(run.pk, now=now)


def _say(what: dict[str, str]) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
