"""The web process: uvicorn on a listening socket that the studio has opened (`--fd N`), or on an address (`--host`, `--port`).

A command of its own and not `uvicorn`, which takes every inherited socket for a Unix socket and so leaves Nagle's delay on, and whose
limits would have to be said again wherever the process is started.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import socket
import tempfile
import threading
from typing import Any

import h11
import uvicorn
from django.conf import settings
from uvicorn.protocols.http.h11_impl import H11Protocol

from experiments.boxed import pool
from training_runtime import watchdog

HEAD_S = 15.0  # a request's first line and headers have to come in this time
HEAD_BYTES = 64 << 10
MESSAGE_BYTES = 8 << 20  # of a socket: a machine with a thousand runs, or with the longest list of packages; pages are held to far less
MOST_CONNECTIONS = 4000


class Connection(H11Protocol):
    """h11 and not httptools, whose headers may be endless; and with an end for a connection that never says what it wants."""

    head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop_timer()

    def _await_head(self) -> None:
        """Between requests uvicorn's own keep-alive timer runs; this one runs from the first byte of a head until it is there."""
        upgraded = self.transport.get_protocol() is not self
        if upgraded or self.conn.their_state is not h11.IDLE or self.timeout_keep_alive_task is not None:
            self._stop_timer()
        elif self.head_timer is None:
            self.head_timer = self.loop.call_later(HEAD_S, self.transport.close)

    def _stop_timer(self) -> None:
        if self.head_timer is not None:
            self.head_timer.cancel()
            self.head_timer = None


def config(application: Any = "webapp.asgi:application", **changes: Any) -> uvicorn.Config:
    """The one definition of the web process. `changes` are for tests."""
    said: dict[str, Any] = {
        "http": Connection,
        "h11_max_incomplete_event_size": HEAD_BYTES,
        "limit_concurrency": MOST_CONNECTIONS,
        # Nobody's word about addresses is taken but that of the proxies that are named.
        "proxy_headers": bool(settings.EDT_TRUSTED_PROXIES),
        "forwarded_allow_ips": settings.EDT_TRUSTED_PROXIES,
        "lifespan": "off",
        "access_log": False,
        "log_config": None,
        "ws_max_size": MESSAGE_BYTES,
        "timeout_graceful_shutdown": 3,
        "server_header": False,
    }
    return uvicorn.Config(application, **{**said, **changes})


class Server(uvicorn.Server):
    """Says, from its own loop, that this turns; and has work on people's files ready before somebody waits for it."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        self._pings = asyncio.create_task(_ping())
        threading.Thread(target=pool.warm, name="warm", daemon=True).start()


async def _ping() -> None:
    while True:
        watchdog.ping()
        await asyncio.sleep(watchdog.EVERY_S)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m webapp.studio.web", description="Serve the studio's pages.")
    parser.add_argument("--fd", type=int, help="number of a listening socket that is inherited")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on, where no socket is inherited")
    parser.add_argument("--port", type=int, default=8000)
    said = parser.parse_args()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webapp.settings")
    _allow_files(MOST_CONNECTIONS + 1000)
    # Django writes the bodies of requests to the default folder, which may be memory. The settings, which look at it too, come first.
    tempfile.tempdir = str(settings.FILE_UPLOAD_TEMP_DIR)
    if said.fd is None:
        Server(config(host=said.host, port=said.port)).run()
    else:
        Server(config()).run(sockets=[socket.socket(fileno=said.fd)])


def _allow_files(wanted: int) -> None:
    """As many open files as there may be connections, where the machine allows it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


if __name__ == "__main__":
    main()
