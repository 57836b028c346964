"""The process of `edt-node join`: a node host beside it, and a stream to the studio that is opened again whenever it is lost.

Told to end (SIGTERM, Ctrl-C) it has the host suspend its runs, sends what they have written, and goes. Killed, it leaves the host and its
runs: they train on until the lease is over, or the next `edt-node join` finds them.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import ssl
import threading
import time
import uuid
from pathlib import Path
from types import FrameType

from websockets.exceptions import WebSocketException
from websockets.sync.client import ClientConnection, connect

from training_runtime import watchdog
from training_runtime.errors import ProtocolError
from training_runtime.node.files import Files
from training_runtime.node.folders import Folders
from training_runtime.node.host_process import HostProcess
from training_runtime.node.messages import SPOKEN, STREAM, Hello, Message, Refused, Welcome, apart, decode, encode
from training_runtime.node.places import ROOMS
from training_runtime.node.session import Session, TurnedAway
from training_runtime.node.settings import INSTALLATION, Settings, address_of
from training_runtime.protocol import MAX_STUDIO_LINE_BYTES
from training_runtime.version_skew import ProtocolVersion, too_far_behind

log = logging.getLogger(__name__)
PAUSES_S = (0.5, 1.0, 2.0, 5.0)
LAST_STATES_S = 960.0  # for runs to write their states, as long as the host itself waits
LAST_FILES_S = 120.0  # for these to be sent
LAST_WORD_S = 15.0  # for the studio to take in that the machine has ended
UNTIL_LEASE_S = 10.0  # of a host that is started before the studio has said
NOT_SHARED = "this machine was told that it shares the studio's folders, and {home} is the home of another studio: see --shares"


class Link:
    """`run` returns the exit status of the process."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        for room in ROOMS:
            (settings.home / room).mkdir(parents=True, exist_ok=True)
        settings.data.mkdir(parents=True, exist_ok=True)
        self._folders = Folders(settings.home)
        self._host: HostProcess | None = None
        self._stream: ClientConnection | None = None
        self._session: Session | None = None
        self._ending = threading.Event()

    def run(self) -> int:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        watchdog.Thread(lambda _: True).start()  # of a process that stands still; a stream that does is found by pings
        if self._settings.name:
            self._have_host(self._settings.name, self._settings.slots, UNTIL_LEASE_S)
        failures, said = 0, ""
        while not self._ending.is_set():
            began = time.monotonic()
            try:
                self._connect()
            except TurnedAway as refusal:
                log.error("The studio does not take this machine: %s", refusal)
                self._end_host()
                return 1
            except (OSError, WebSocketException, ProtocolError) as error:
                why = str(error) or type(error).__name__
                if not self._ending.is_set():
                    log.log(logging.DEBUG if why == said else logging.WARNING, "No stream to %s: %s", self._settings.studio, why)
                said = why
            except Exception:  # whatever a connection dies of, the machine and its runs do not
                log.exception("The connection to %s has failed, it is made anew", self._settings.studio)
            failures = 0 if time.monotonic() - began > 30 else failures + 1
            self._ending.wait(PAUSES_S[min(failures, len(PAUSES_S) - 1)])
        self._end_host()
        return 0

    def _connect(self) -> None:
        settings = self._settings
        address = "ws" + settings.studio.removeprefix("http") + STREAM
        with connect(
            address,
            additional_headers={"Authorization": f"Bearer {settings.token}"},
            open_timeout=10,
            close_timeout=2,
            ping_interval=5,
            ping_timeout=10,
            max_size=MAX_STUDIO_LINE_BYTES,
            compression=None,
            ssl=_trusting(settings),
        ) as stream:
            self._stream = stream
            if self._ending.is_set():
                return  # told while it connected, when there was no stream that `_leave` could have closed
            stream.send(encode(Hello(identity_of(settings.home), _boot(), settings.slots)))
            answer = _welcomed(decode(stream.recv(timeout=30)))
            if settings.shares is not None and answer.installation != _installation(settings.shares):
                raise TurnedAway(NOT_SHARED.format(home=settings.shares))
            settings.write_down(answer.name)
            self._have_host(answer.name, answer.slots, answer.lease_s)
            log.info("Joined %s as %s.", settings.studio, answer.name)
            files = Files(settings.studio, settings.token, answer.incarnation, verify=settings.verify)
            try:
                address = address_of(settings, str(stream.local_address[0]))
                self._session = Session(settings, stream, answer, files=files, folders=self._folders, address=address)
                self._session.run()
            finally:
                self._session = None
                files.close()

    def _have_host(self, name: str, slots: int | None, lease_s: float) -> None:
        if self._settings.has_host and (self._host is None or self._host.node != name):
            self._host = HostProcess(self._settings, name, slots=slots, lease_s=lease_s)
            self._host.start()

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if not self._ending.is_set():
            self._ending.set()
            threading.Thread(target=self._leave, name="leave").start()

    def _leave(self) -> None:
        """Thread: the stream stays open until what runs have written last is in the studio. Who keeps no host leaves the runs alone."""
        session = self._session
        if self._settings.has_host:
            self._end_runs(session)
        if self._stream is not None:
            with contextlib.suppress(OSError, WebSocketException):
                self._stream.close()

    def _end_runs(self, session: Session | None) -> None:
        log.info("Told to end: runs here are suspended, and go on elsewhere.")
        if session is not None:
            session.leaving.set()
        nothing_left = self._end_host()
        if session is not None:
            session.wait_for_files(LAST_FILES_S)
            if nothing_left:
                session.say_departed(LAST_WORD_S)

    def _end_host(self) -> bool:
        return self._host is not None and self._host.end(patience_s=LAST_STATES_S)


def _welcomed(answer: Message) -> Welcome:
    """Raises TurnedAway, and ProtocolError where it is worth asking again."""
    if isinstance(answer, Refused):
        raise (TurnedAway if answer.final else ProtocolError)(answer.reason)
    if not isinstance(answer, Welcome):
        raise ProtocolError(f"the studio began with {answer.type}")
    if behind := too_far_behind(SPOKEN, theirs := ProtocolVersion(answer.version, answer.oldest)):
        raise ProtocolError(apart(behind, studio=theirs, machine=SPOKEN))
    return answer


def identity_of(home: Path) -> str:
    """Made once; another home is another machine."""
    path = home / "identity"
    if not path.exists():
        beside = path.with_suffix(".new")
        beside.write_text(uuid.uuid4().hex)
        beside.replace(path)
    return path.read_text().strip()[:64]


def _installation(home: Path) -> str:
    with contextlib.suppress(OSError):
        return (home / INSTALLATION).read_text().strip()
    return ""


def _boot() -> str:
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


def _trusting(settings: Settings) -> ssl.SSLContext | None:
    if not settings.studio.startswith("https:"):
        return None
    return ssl.create_default_context(cafile=settings.verify if isinstance(settings.verify, str) else None)
