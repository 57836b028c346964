"""Sends what runs write here to the studio, for as long as a connection lasts: journals at once, all else as `mirror` decides."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from training_runtime.node.files import PIECE_BYTES, Files, NotOurs, Rejected, Unreachable, WrongOffset
from training_runtime.node.folders import Folder, Folders, look, open_file
from training_runtime.node.mirror import JOURNAL, Action, Append, File, Remove, Replace, decide, is_guests
from training_runtime.node.reporting import Copy

log = logging.getLogger(__name__)
LOOK_S = 1.0
RETRY_S = 1.0


class Mirroring:
    """`live`: (run -> whether it has ended) of those that the host knows; a run that it does not know has ended. `changed`: called when
    something has arrived that the studio should be told of."""

    def __init__(
        self, files: Files, folders: Folders, *, live: Callable[[], Mapping[int, bool] | None], changed: Callable[[], None]
    ) -> None:
        self._files, self._folders, self._live, self._changed = files, folders, live, changed
        self.stop = threading.Event()
        self._woken = threading.Event()
        self._looked_at = 0.0
        self.quiet_looks = 0  # thorough ones in a row that have found nothing to send

    def wake(self) -> None:
        """A journal has grown, or a run has ended."""
        self._woken.set()

    def copies(self) -> list[Copy]:
        return [
            Copy(folder.run, folder.attempt, folder.arrived[JOURNAL].size if JOURNAL in folder.arrived else 0, folder.complete)
            for folder in list(self._folders.known.values())
            if not folder.guest
        ]

    def run(self) -> None:
        """Until `stop`, in a thread of its own."""
        while not self.stop.is_set():
            self._woken.wait(LOOK_S)
            self._woken.clear()
            live = self._live()
            if live is None:
                continue  # the host has not been heard of on this connection: nobody knows who has ended
            thorough = time.monotonic() >= self._looked_at + LOOK_S
            if thorough:
                self._looked_at = time.monotonic()
                self._folders.empty_trash(time.time())
            sent = [self._turn(folder, live, thorough=thorough) for folder in list(self._folders.known.values())]
            if thorough:
                self.quiet_looks = 0 if any(sent) else self.quiet_looks + 1

    def _turn(self, folder: Folder, live: Mapping[int, bool], *, thorough: bool) -> bool:
        """Whether there was, or may be, something to send."""
        ended = live.get(folder.run, True)
        if folder.complete and not ended:
            folder.complete = False  # its next attempt has begun here
        if folder.complete or self.stop.is_set():
            return False
        try:
            if thorough or ended:
                return self._send_all(folder, ended=ended)
            if not folder.guest:
                self._send_journal(folder)
        except NotOurs as refusal:
            if folder.run in live and not ended:
                return False  # the studio lists it no more, and the host ends it
            log.info("the studio takes no more files of a run, what is here is put away: %s run=%d", refusal, folder.run)
            self._folders.put_away(folder.name)
            self._changed()
        except (Unreachable, OSError) as error:
            log.warning("files of a run are sent later: %s run=%d", error, folder.run)
            self.stop.wait(RETRY_S)
            return True
        except Exception:  # the edge of the thread: the other runs' files are sent all the same
            log.exception("files of a run could not be sent run=%d", folder.run)
            self.stop.wait(RETRY_S)
            return True
        return False

    def _send_journal(self, folder: Folder) -> None:
        with contextlib.suppress(FileNotFoundError):
            facts = (self._top(folder) / JOURNAL).lstat()
            found = [File(JOURNAL, facts.st_size, facts.st_mtime_ns)]
            for action in decide(found, {JOURNAL: known} if (known := folder.arrived.get(JOURNAL)) else {}, before={}, ended=False):
                if isinstance(action, Append):
                    self._append(folder, action)

    def _send_all(self, folder: Folder, *, ended: bool) -> bool:
        """Whether there was something to send, or a file is being written."""
        if ended and not self._top(folder).is_dir():  # it was moved or deleted here; the studio keeps what has arrived
            folder.complete = True
            self._changed()
            return False
        found = [file for file in look(self._top(folder)) if not folder.guest or is_guests(file.path)]
        actions = decide(found, folder.arrived, before=folder.before, ended=ended)
        being_written = any(folder.before.get(file.path) != file for file in found)
        folder.before = {file.path: file for file in found}
        journal = folder.arrived.get(JOURNAL)
        for action in actions:
            if self.stop.is_set():
                return True
            try:
                self._carry_out(folder, action)
            except Rejected as refusal:
                path = action.file.path if isinstance(action, Replace) else action.path
                log.warning("a file of a run stays on this machine alone: %s run=%d path=%.200r", refusal, folder.run, path)
                folder.arrived |= {file.path: file for file in found if file.path == path}
        if actions:
            self._folders.save(folder)
        # What is behind the journal's last line is sent only when more of it has come, which it does not of a run that has ended.
        waits = any(not isinstance(action, Append) for action in actions) or folder.arrived.get(JOURNAL) != journal
        if ended and not waits:
            folder.complete = True
            self._changed()
        return waits or being_written

    def _carry_out(self, folder: Folder, action: Action) -> None:
        if isinstance(action, Append):
            self._append(folder, action)
        elif isinstance(action, Replace):
            self._replace(folder, action.file)
        elif isinstance(action, Remove):
            self._files.remove(folder.name, folder.term, action.path)
            folder.arrived.pop(action.path, None)

    def _append(self, folder: Folder, action: Append) -> None:
        """Of the journal whole lines only: what is behind the last one may be written anew. A piece in which no line ends is none of its
        writer's, and goes as it is."""
        begin = action.begin
        if not action.end:  # it was emptied, or nothing is in it yet
            folder.arrived[action.path] = File(action.path, self._files.append(folder.name, folder.term, action.path, b"", offset=0), 0)
            return
        with open(open_file(self._top(folder), action.path), "rb") as opened:
            while begin < action.end and not self.stop.is_set():
                opened.seek(begin)
                body = opened.read(min(PIECE_BYTES, action.end - begin))
                if action.path == JOURNAL and (len(body) < PIECE_BYTES or b"\n" in body):
                    body = body[: body.rfind(b"\n") + 1]
                if not body:
                    return
                try:
                    begin = self._files.append(folder.name, folder.term, action.path, body, offset=begin)
                except WrongOffset as wrong:
                    begin = min(wrong.size, action.end)
                folder.arrived[action.path] = File(action.path, begin, 0)
                self._changed()

    def _replace(self, folder: Folder, file: File) -> None:
        try:
            with open(open_file(self._top(folder), file.path), "rb") as opened:
                if self._files.replace(folder.name, folder.term, file, opened):
                    folder.arrived[file.path] = file
        except FileNotFoundError:
            folder.before.pop(file.path, None)  # gone in between

    def _top(self, folder: Folder) -> Path:
        return self._folders.path(folder.name)
