"""Where the MLflow client of a run finds its server: a port of this machine's own, opened by the run's driver, with a token that lasts as
long as that process. So a run can log wherever it runs, whether or not the studio is up, and no other run's script gets in.

One thread serves all connections and waits for none of them. It is the only one beside the script's, and a lock keeps it from doing
anything while this process forks, so that no child begins with a lock that a thread it has not got holds.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
import select
import socket
import sys
import threading
import urllib.parse
from collections.abc import Callable, MutableMapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from training_runtime.tracking import answers
from training_runtime.tracking.answers import Refused
from training_runtime.tracking.tracker import EXPERIMENT, Tracker

ADDRESS = "127.0.0.1"
THREAD = "mlflow-endpoint"
MOST_BYTES = 16 << 20  # of a request
MOST_HEAD = 64 << 10
MOST_CONNECTIONS = 64  # the oldest goes: anybody on this machine may connect
OTHERS = ("MLFLOW_TRACKING_URI", "DATABRICKS_HOST")  # who gives their run one of them means another server
_PROXIES = ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")
_WORDS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found"}


@dataclass
class _Talk:
    """A connection: what has come, and what is still to be sent; it ends after one answer."""

    incoming: bytearray = field(default_factory=bytearray)
    outgoing: bytes = b""


class Endpoint:
    """`tracker` is made when somebody first asks. `tell` says to this process, and so to all that it starts, where the endpoint is."""

    def __init__(self, tracker: Callable[[], Tracker]) -> None:
        self._make = tracker
        self._tracker: Tracker | None = None
        self._token = secrets.token_urlsafe(32)
        self._talks: dict[socket.socket, _Talk] = {}
        self._listener = socket.create_server((ADDRESS, 0))
        self._listener.setblocking(False)
        self._lock = threading.Lock()
        os.register_at_fork(before=self._lock.acquire, after_in_parent=self._lock.release, after_in_child=self._leave)
        threading.Thread(target=self._serve, name=THREAD, daemon=True).start()

    def tell(self, environment: MutableMapping[str, str], *, run: int) -> None:
        environment["MLFLOW_TRACKING_URI"] = f"http://{ADDRESS}:{self._listener.getsockname()[1]}"
        environment["MLFLOW_TRACKING_TOKEN"] = self._token
        environment["MLFLOW_RUN_ID"], environment["MLFLOW_EXPERIMENT_ID"] = str(run), EXPERIMENT
        if any(environment.get(name) for name in _PROXIES):  # which cannot reach this address
            for name in ("NO_PROXY", "no_proxy"):
                environment[name] = ",".join(filter(None, (environment.get(name), ADDRESS)))

    def _leave(self) -> None:
        """In a process that was forked from this one: who holds a connection open would keep its other end waiting."""
        for each in (self._listener, *self._talks):
            each.close()
        self._talks.clear()
        self._lock.release()

    def _serve(self) -> None:
        while True:
            poll = select.poll()
            poll.register(self._listener, select.POLLIN)
            for peer, talk in self._talks.items():
                poll.register(peer, select.POLLOUT if talk.outgoing else select.POLLIN)
            ready = {fd for fd, _ in poll.poll()}
            with self._lock:
                self._turn(ready)

    def _turn(self, ready: set[int]) -> None:
        for peer in [peer for peer in self._talks if peer.fileno() in ready]:
            try:
                is_over = self._go_on(peer, self._talks[peer])
            except BlockingIOError:
                continue
            except OSError:  # it has gone
                is_over = True
            if is_over:
                del self._talks[peer]
                peer.close()
        if self._listener.fileno() in ready:
            with suppress(OSError):  # gone again, or no descriptor is free
                peer, _ = self._listener.accept()
                peer.setblocking(False)
                self._talks[peer] = _Talk()
                if len(self._talks) > MOST_CONNECTIONS:
                    oldest = next(iter(self._talks))
                    del self._talks[oldest]
                    oldest.close()

    def _go_on(self, peer: socket.socket, talk: _Talk) -> bool:
        """Whether the connection is done with."""
        if not talk.outgoing:
            if not (data := peer.recv(1 << 16)):
                return True
            talk.incoming += data
            talk.outgoing = self._replied(talk.incoming)
        if talk.outgoing:
            talk.outgoing = talk.outgoing[peer.send(talk.outgoing) :]
            return not talk.outgoing
        return False

    def _replied(self, incoming: bytearray) -> bytes:
        """Empty where the request is not whole yet."""
        head, ended, body = bytes(incoming).partition(b"\r\n\r\n") if b"\r\n\r\n" in incoming else (bytes(incoming[:MOST_HEAD]), b"", b"")
        try:
            if not ended:
                return b"" if len(incoming) < MOST_HEAD else answers.refuse("The head of the request is too long.")
            method, target, fields = _head(head)
            # Who it is comes first: a stranger's body is not kept.
            self._check(fields.get("authorization", ""))
            length = fields.get("content-length", "0")
            if not length.isdigit() or int(length) > MOST_BYTES:
                answers.refuse(f"A request has at most {MOST_BYTES >> 20} MiB: log less at a time.")
            if len(body) < int(length):
                return b""
            return _response(200, self._answer(method, target, body))
        except Refused as refused:
            return _response(answers.STATUS[refused.code], answers.error(refused))
        except Exception as error:  # a mistake of ours costs this request, with a word of it in the log, and no run
            print(f"the MLflow endpoint: {type(error).__name__}: {error}", file=sys.stderr)  # noqa: T201
            return _response(400, {"error_code": "INTERNAL_ERROR", "message": f"The studio has failed: {type(error).__name__}: {error}"})

    def _check(self, authorization: str) -> None:
        if not hmac.compare_digest(authorization.encode(errors="replace"), f"Bearer {self._token}".encode()):
            raise Refused("UNAUTHENTICATED", "This address is for the processes of one run, with its MLFLOW_TRACKING_TOKEN.")

    def _answer(self, method: str, target: str, body: bytes) -> dict[str, Any]:
        address = urllib.parse.urlsplit(target)
        if not address.path.startswith(answers.PREFIX):
            raise Refused("ENDPOINT_NOT_FOUND", f"The studio does not answer {address.path[:100]}: docs/mlflow.md says what it does.")
        said: Any = dict(urllib.parse.parse_qsl(address.query))
        if body:
            try:
                said = json.loads(body)
            except (ValueError, RecursionError):
                said = None
        if not isinstance(said, dict):
            answers.refuse("The body is no JSON object.")
        if self._tracker is None:
            self._tracker = self._make()
        return self._tracker.answer(method, address.path.removeprefix(answers.PREFIX), said)


def _head(head: bytes) -> tuple[str, str, dict[str, str]]:
    """Method, target and fields."""
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3:
        answers.refuse("This is no HTTP request.")
    fields = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return words[0], words[1], fields


def _response(status: int, answer: dict[str, Any]) -> bytes:
    content = json.dumps(answer).encode()
    fields = f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\nConnection: close"
    return f"HTTP/1.1 {status} {_WORDS[status]}\r\n{fields}\r\n\r\n".encode() + content
