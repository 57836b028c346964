"""What a link lives through: a studio that is a real server, and faults that nobody foresaw."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from websockets.exceptions import WebSocketException
from websockets.http11 import Request
from websockets.sync.client import ClientConnection
from websockets.sync.server import ServerConnection, serve

from tests.e2e.studio import wait_until
from training_runtime.host import client
from training_runtime.node.link import Link
from training_runtime.node.messages import Hello, Refused, Welcome, decode, encode
from training_runtime.node.settings import Settings


class Joinings:
    """Welcomes whoever says Hello, and turns it away at the third time: `Link.run` returns then."""

    def __init__(self) -> None:
        self.heard = 0
        self.address = ""

    def take(self, stream: ServerConnection) -> None:
        assert isinstance(decode(stream.recv(timeout=10)), Hello)
        self.heard += 1
        if self.heard == 3:
            stream.send(encode(Refused("enough", final=True)))
            return
        stream.send(encode(Welcome("beta", self.heard, 0.0)))
        if self.heard == 2:
            return  # closed by the studio, as at a restart of it
        with suppress(WebSocketException):
            stream.recv(timeout=20)


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Those of this process are put back: a link takes them."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def joinings() -> Iterator[Joinings]:
    made = Joinings()
    with serve(made.take, "127.0.0.1", 0) as server:
        made.address = f"http://127.0.0.1:{server.socket.getsockname()[1]}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield made
        server.shutdown()
        thread.join()


def test_a_link_that_is_told_to_end_while_it_connects_does_not_join(tmp_path: Path) -> None:
    """A studio that has just been started takes a while to answer."""
    joined: list[Hello] = []
    ends = threading.Event()

    def tells_to_end(_stream: ServerConnection, _request: Request) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        wait_until(lambda: made._ending.is_set(), "it has heard")
        wait_until(lambda: all(thread.name != "leave" for thread in threading.enumerate()), "it has seen that there is no stream to close")

    def take(stream: ServerConnection) -> None:
        with suppress(WebSocketException):
            joined.append(decode(stream.recv(timeout=10)))  # type: ignore[arg-type]
            stream.send(encode(Welcome("beta", 1, 0.0)))
            ends.wait(15)

    with serve(take, "127.0.0.1", 0, process_request=tells_to_end) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.socket.getsockname()[1]}"
        made = Link(Settings(address, tmp_path, tmp_path / "data", "edtn_x", has_host=False))
        assert made.run() == 0
        ends.set()
        server.shutdown()
    assert joined == []


def link(joinings: Joinings, home: Path) -> Link:
    return Link(Settings(joinings.address, home, home / "data", "edtn_x", has_host=False))


def test_a_connection_that_dies_of_a_fault_in_its_library_is_made_anew(
    joinings: Joinings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As two threads that wait for the end of a third one's do, now and then, before Python 3.13."""
    receive, asked = ClientConnection.recv, 0

    def fails_once(stream: ClientConnection, timeout: float | None = None) -> str | bytes:
        nonlocal asked
        asked += 1
        if asked == 2:  # the first is the welcome
            raise AssertionError
        return receive(stream, timeout)

    monkeypatch.setattr(ClientConnection, "recv", fails_once)
    assert link(joinings, tmp_path).run() == 1
    assert joinings.heard == 3
    assert "it is made anew" in caplog.text


def test_a_connection_of_which_a_part_has_failed_is_made_anew(
    joinings: Joinings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    subscribe, asked = client.subscribe, 0

    def fails_once(*arguments: object, **named: object) -> object:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise ValueError("not a message")
        return subscribe(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(client, "subscribe", fails_once)
    assert link(joinings, tmp_path).run() == 1
    assert joinings.heard == 3
    assert "a part of the connection to the studio has failed" in caplog.text
