"""The real ASGI application on a port of its own, in a thread of the test's process: pages, static files and sockets for a real browser."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import uvicorn
from channels.routing import ProtocolTypeRouter
from django.contrib.staticfiles.handlers import ASGIStaticFilesHandler


@contextlib.contextmanager
def served(*, deadline_s: float = 20.0) -> Iterator[str]:
    """The address of a running studio."""
    from webapp.asgi import application

    routed = application.application_mapping
    whole = ProtocolTypeRouter({"http": ASGIStaticFilesHandler(routed["http"]), "websocket": routed["websocket"]})
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    config = uvicorn.Config(whole, log_level="error", lifespan="off", ws="websockets-sansio", timeout_graceful_shutdown=2)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    end = time.monotonic() + deadline_s
    while not server.started:
        assert time.monotonic() < end, "the server did not start"
        time.sleep(0.02)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(deadline_s)
        listener.close()
        assert not thread.is_alive(), "the server did not stop"
