"""From "start" to "everything is gone": checks, preparation and supervisor in their order, for the commands that run a studio."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

from experiments.live import notify
from webapp.setting_names import unknown_names
from webapp.studio import broker, checks, own_machine, prepare, programs
from webapp.studio.log import Terminal
from webapp.studio.own_machine import Joining
from webapp.studio.processes import clear_leftovers
from webapp.studio.supervisor import Supervisor
from webapp.studio.watchdog import SILENT_S

FIRST_PAGE = "/login/"  # written out: asking for it by its name would load every page, which is done when it is the web process' turn


@dataclass(frozen=True)
class Options:
    """How a studio is started. `slots` None: EDT_SLOTS, or what the machine has. `show_logs`: on the terminal, too."""

    host: str = "127.0.0.1"
    port: int = 8000
    slots: int | None = None
    show_logs: bool = True


@dataclass(frozen=True)
class Running:
    """A studio that serves its pages."""

    address: str
    supervisor: Supervisor


@contextlib.contextmanager
def studio(options: Options, *, prepared: Callable[[], None] = lambda: None) -> Iterator[Running | None]:
    """Start everything, and stop everything on leaving, however that happens. None: it was asked to stop before its first page.

    `prepared` is called once the database is up to date and before anything runs. Raises checks.Refusal, with nothing left behind, where
    the studio cannot start.
    """
    home = Path(settings.EDT_HOME)
    checks.make_folders(home)
    with checks.hold(home, address=_address(options.host, options.port)), contextlib.ExitStack() as leaving:
        checks.room(home)
        checks.slots(os.environ.get("EDT_SLOTS", ""))
        checks.address(os.environ.get("EDT_NODE_ADDRESS", ""))
        for name in ("EDT_STOP_GRACE_S", "EDT_WATCHDOG_S"):
            checks.seconds(name, os.environ.get(name, ""))
        for name in programs.COPIES.values():
            checks.processes(name, os.environ.get(name, ""))
        own_machine.refuse_host_of_before(home)
        clear_leftovers(home, survivor="host")
        listener = leaving.enter_context(checks.listen(options.host, options.port))
        supervisor = _supervisor(home, options, listener=listener)
        with notify.unheard():
            prepare.database()
            prepare.static_files(home)
            prepared()
        for words in unknown_names(os.environ):
            supervisor.terminal.say(words)
        supervisor.catch_signals()
        leaving.callback(supervisor.stop)
        # The Celery workers come after the first page: a person would wait for what is loaded for them, too.
        supervisor.start(until="web")
        port = int(listener.getsockname()[1])
        up = supervisor.await_first_page(listener, FIRST_PAGE)
        supervisor.start()
        yield Running(_address(options.host, port), supervisor) if up else None


def _supervisor(home: Path, options: Options, *, listener: socket.socket) -> Supervisor:
    own_broker = not settings.EDT_REDIS_URL
    if own_broker:
        broker.make_socket_folder(home)
    else:
        broker.require(settings.REDIS_URL)
    children = programs.all_of_them(
        home=home,
        node=settings.EDT_NODE,
        listener=listener.fileno(),
        slots=options.slots,
        own_broker=own_broker,
        joining=_joining(home, _address(options.host, int(listener.getsockname()[1]))),
    )
    shown = tuple(p.name for p in children if p.name != "broker")  # its lines mean nothing to most; they are in its file
    terminal = Terminal(home, shown, show=options.show_logs)
    probes = {"broker": lambda: broker.is_alive(settings.REDIS_URL)} if own_broker else {}
    ready = {"broker": lambda: broker.wait(settings.REDIS_URL)}
    return Supervisor(home, children, terminal, ready=ready, probes=probes, silent_s=float(os.environ.get("EDT_WATCHDOG_S") or SILENT_S))


def _joining(home: Path, studio: str) -> Joining:
    return Joining(studio, lambda: prepare.own_token(home), Path(settings.EDT_DATA_ROOT))


def _address(host: str, port: int) -> str:
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)  # noqa: S104
    return f"http://{shown}:{port}"
