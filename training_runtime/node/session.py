"""One connection of a joined machine to its studio: a DesiredState comes down and is given to the host once the files are here, what the
host sees goes up as far as its files have arrived there."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from training_runtime.errors import HostUnavailable, ProtocolError, UnknownMessage
from training_runtime.host import client
from training_runtime.news import news, packages
from training_runtime.node import places
from training_runtime.node.fetching import fetch_run, fetch_tree, forget_unused, is_here
from training_runtime.node.files import Files, NotOurs, Unreachable
from training_runtime.node.folders import Folder, Folders
from training_runtime.node.messages import (
    GUEST,
    Departed,
    DesiredState,
    Journal,
    JournalsGrown,
    Message,
    ObservedState,
    Refused,
    RunFolder,
    Welcome,
    decode,
    encode,
)
from training_runtime.node.mirroring import Mirroring
from training_runtime.node.reporting import reported
from training_runtime.node.settings import Settings
from training_runtime.protocol import OLDEST, VERSION, Apply, Observation, RunSpec, WantedRun
from training_runtime.unknown_messages import LeftOut

log = logging.getLogger(__name__)
SAY_PAUSE_S = 0.05
HOST_TIMEOUT_S = 10.0
RETRY_S = 1.0


class Stream(Protocol):
    """As `websockets.sync.client.ClientConnection` is."""

    def send(self, message: str) -> None: ...

    def recv(self, timeout: float | None = None) -> str | bytes: ...

    def close(self) -> None: ...


class TurnedAway(Exception):
    """The studio does not take this machine, and will not."""


class Session:
    """`run` returns when the connection is over. `address`: where other machines reach this one."""

    def __init__(self, settings: Settings, stream: Stream, welcome: Welcome, *, files: Files, folders: Folders, address: str = "") -> None:
        self._settings, self._stream, self._welcome, self._address = settings, stream, welcome, address
        self._files, self._folders = files, folders
        self._wanted: DesiredState | None = None
        self._seen: Observation | None = None
        self._coming: dict[int, tuple[RunSpec, RunFolder, str]] = {}
        self._lock = threading.RLock()
        self.leaving = threading.Event()  # the machine is being ended: a run that dies of that has not ended
        self._over = threading.Event()
        self._left_out = LeftOut(log)
        self._news = threading.Event()
        self._needed = threading.Event()
        self._mirror = Mirroring(files, folders, live=self._live, changed=self._news.set)

    def run(self) -> None:
        """Raises what the stream raises at its end, TurnedAway, and ProtocolError for nonsense."""
        parts = (self._listen, self._tell, self._fetch, self._mirror.run)
        threads = [threading.Thread(target=self._run_part, args=(part,), daemon=True, name=part.__qualname__) for part in parts]
        for thread in threads:
            thread.start()
        try:
            while True:
                try:
                    message = decode(self._stream.recv())
                except UnknownMessage as error:
                    self._left_out.note(error, of="the studio")
                    continue
                if isinstance(message, Refused):
                    raise (TurnedAway if message.final else ProtocolError)(message.reason)
                if isinstance(message, DesiredState):
                    with self._lock:
                        self._wanted = message
                    self._apply()
        finally:
            self._over.set()
            self._mirror.stop.set()
            for event in (self._news, self._needed):
                event.set()
            self._mirror.wake()
            for thread in threads:
                thread.join(timeout=60)

    def _run_part(self, part: Callable[[], None]) -> None:
        """Edge of a thread. A connection of which a part has failed says only half: it is closed, and the next begins with all of them."""
        try:
            part()
        except Exception:
            log.exception("a part of the connection to the studio has failed, the connection is made anew")
            with contextlib.suppress(Exception):  # it is over already
                self._stream.close()

    def wait_for_files(self, patience_s: float) -> None:
        """Until two looks have found nothing to send, or the connection is over."""
        self._mirror.quiet_looks = 0
        end = time.monotonic() + patience_s
        while self._mirror.quiet_looks < 2 and not self._over.is_set() and time.monotonic() < end:
            self._over.wait(0.1)

    def say_departed(self, patience_s: float) -> None:
        """The last word: nothing of the machine's runs is left here. Until the studio has closed the stream, having taken it in."""
        with contextlib.suppress(Exception):  # the stream is over: then the lease says it, later
            self._stream.send(encode(Departed()))
            self._over.wait(patience_s)

    # --- down -----------------------------------------------------------------------------------------------------------------------------

    def _apply(self) -> None:
        """Have the host make it so, without the runs whose files are not here yet."""
        with self._lock:
            wanted = self._wanted
        if wanted is None:
            return
        where = {folder.run: folder for folder in wanted.folders}
        begun: list[WantedRun] = []
        with self._lock:
            self._coming = {run: each for run, each in self._coming.items() if run in where}
            for wish in wanted.apply.runs:
                folder = where.get(wish.spec.run)
                if folder is None or wish.stop or self._is_here(wish.spec, folder):
                    self._coming.pop(wish.spec.run, None)
                    reached = dataclasses.replace(wish.spec, address=self._address if wanted.several else "")
                    begun.append(dataclasses.replace(wish, spec=reached))
                elif wish.spec.run not in self._coming:
                    self._coming[wish.spec.run] = (wish.spec, folder, "")
        # The stream's version covers what is in it: to the host here it is this release that speaks.
        ours = dataclasses.replace(wanted.apply, runs=tuple(begun), version=VERSION, oldest=OLDEST)
        try:
            seen = client.apply(self._settings.work, self._welcome.name, self._placed(ours, where), timeout_s=HOST_TIMEOUT_S)
        except HostUnavailable as error:
            log.warning("%s", error)
            return
        self._merge_observation(seen)
        if self._coming:
            self._needed.set()
        self._tidy(wanted)

    def _placed(self, apply: Apply, where: Mapping[int, RunFolder]) -> Apply:
        """With paths of this machine for places. The folder of a run whose driver is elsewhere is this machine's own, also where folders
        are shared: what counts is what the driver's machine writes."""
        placed = places.translated(apply, self._path)
        runs = tuple(
            dataclasses.replace(wish, spec=dataclasses.replace(wish.spec, result_dir=str(self._folders.path(where[wish.spec.run].folder))))
            if wish.spec.remote and wish.spec.run in where
            else wish
            for wish in placed.runs
        )
        return dataclasses.replace(placed, runs=runs)

    def _tidy(self, wanted: DesiredState) -> None:
        """What is copied in full and wanted no more need not be here, nor what no run has used for long."""
        there = {folder.run for folder in wanted.folders} | (self._live() or {}).keys()
        for folder in list(self._folders.known.values()):
            if folder.complete and folder.run not in there:
                self._folders.put_away(folder.name)
        needed = {tree for wish in wanted.apply.runs for tree in places.trees(wish.spec)}
        forget_unused(self._settings.home, needed, now=time.time())

    def _is_here(self, spec: RunSpec, folder: RunFolder) -> bool:
        known = self._folders.known.get(folder.folder)
        if self._settings.shares is not None and folder.term != GUEST:
            return True
        if known is None or known.term != folder.term:
            return False
        known.attempt = max(known.attempt, spec.attempt)
        return all(is_here(self._settings.home, room, name) for room, name in self._trees(spec))

    def _trees(self, spec: RunSpec) -> tuple[tuple[str, str], ...]:
        """What has to be brought here; where folders are shared, the studio has put it there."""
        return places.trees(spec) if self._settings.shares is None else ()

    def _path(self, place: str) -> str:
        return places.path_of(place, home=str(self._settings.work), data=str(self._settings.data))

    def _fetch(self) -> None:
        """Thread: brings what wanted runs lack, one after the other."""
        while not self._over.is_set():
            self._needed.wait()
            self._needed.clear()
            with self._lock:
                coming = list(self._coming.values())
            for spec, folder, _ in coming:
                if self._over.is_set():
                    return
                known = self._folders.known.get(folder.folder)
                is_sent = known is None or known.complete or not known.guest  # what a guest has written is nowhere else yet
                if is_sent and (self._live() or {}).get(spec.run, True):  # else a process of an earlier stay is being ended
                    self._bring(spec, folder)

    def _bring(self, spec: RunSpec, folder: RunFolder) -> None:
        def say(done: int, total: int) -> None:
            tenth = total * (done * 10 // total) // 10 if total else 0  # each is told to the studio
            how_far = f", {tenth >> 20} of {total >> 20} MiB" if total >> 20 else ""
            with self._lock:
                if spec.run in self._coming:
                    self._coming[spec.run] = (spec, folder, how_far)
            self._news.set()

        home = self._settings.home
        try:
            for room, name in self._trees(spec):
                if room == "runs" and name not in self._folders.known:
                    self._folders.put_away(name)  # to continue from: it may have got on since
                fetch_tree(self._files, home, room, name, say=say)
            known = self._folders.known.get(folder.folder)
            if known is None or known.term != folder.term:
                new = Folder(spec.run, folder.folder, folder.term, spec.attempt, guest=folder.term == GUEST)
                fetch_run(self._files, self._folders, new, code=self._code(spec), say=say)
        except (Unreachable, NotOurs, OSError, ValueError) as error:
            log.warning("files of a run cannot be brought here now: %s run=%d", error, spec.run)
            self._over.wait(RETRY_S)
            return
        except Exception:  # the edge of the thread: the other runs' files come all the same
            log.exception("files of a run could not be brought here run=%d", spec.run)
            self._over.wait(RETRY_S)
            return
        self._apply()

    def _code(self, spec: RunSpec) -> Path:
        return Path(self._path(spec.code_dir))

    # --- up -------------------------------------------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        """Thread: what the host sees, as it comes."""
        while not self._over.is_set():
            with contextlib.suppress(HostUnavailable):
                for seen in client.subscribe(self._settings.work, self._welcome.name, stop=self._over):
                    self._merge_observation(seen)
            self._over.wait(0.5)

    def _merge_observation(self, seen: Observation) -> None:
        with self._lock:
            if self._seen is not None and seen.revision < self._seen.revision:
                return
            if seen.environments is None and self._seen is not None:  # only journals have grown: the rest is as it was
                seen = dataclasses.replace(seen, environments=self._seen.environments, folders=self._seen.folders)
            self._seen = seen
            for run in seen.runs:
                for folder in list(self._folders.known.values()):
                    if folder.run == run.run:
                        folder.attempt = max(folder.attempt, run.attempt)
        self._mirror.wake()
        self._news.set()

    def _live(self) -> Mapping[int, bool] | None:
        """Whether each run that the host knows has ended; None before the host was heard of."""
        with self._lock:
            return None if self._seen is None else {run.run: run.exit_code is not None for run in self._seen.runs}

    def _tell(self) -> None:
        """Thread: tells the studio what is news, at most every SAY_PAUSE_S, and all there is after each DesiredState: its number is new."""
        told: tuple[object, ...] = ()
        journals: frozenset[Journal] = frozenset()
        while not self._over.is_set():
            self._news.wait()
            self._news.clear()
            with self._lock:
                seen = self._seen
                coming = {run: (spec.attempt, how_far) for run, (spec, _, how_far) in self._coming.items()}
            if seen is None or self._over.is_set():
                continue
            report = reported(seen, copies=self._mirror.copies(), coming=coming, address=self._address, leaving=self.leaving.is_set())
            if (facts := (*news(report), *packages(report))) != told and self._try_send(ObservedState(report)):
                told = facts
            if self._settings.shares is not None:
                long = frozenset(Journal(run.run, run.journal_bytes) for run in seen.runs if not run.remote and run.journal_bytes)
                if (grown := long - journals) and self._try_send(JournalsGrown(tuple(sorted(grown, key=lambda each: each.run)))):
                    journals = long
            self._over.wait(SAY_PAUSE_S)

    def _try_send(self, message: Message) -> bool:
        with contextlib.suppress(Exception):  # the stream is over, which `run` notices too
            self._stream.send(encode(message))
            return True
        return False
