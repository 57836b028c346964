"""Files of a run whose machines share no folder, as they go over a line: what counts is what the head node has.

A worker elsewhere writes into its own machine's folder. What the engine wrote there arrives at the head node before what is said about it,
and before word of the worker's end: the last state and what its journal may lack (see `emergency_checkpoint`), models, the example for an
export. A worker that is to begin with the state on the disk finds the head node's there. What is on a machine from a time without a driver
counts no more: nobody at the head node may know the way to it.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

from training_runtime.elastic.comm.segment import Segment
from training_runtime.elastic.multinode.replication import HEAD_NODE
from training_runtime.elastic.multinode.wire import Wire
from training_runtime.elastic.processes import reports
from training_runtime.elastic.processes.commands import Command, Fork
from training_runtime.elastic.processes.reports import Report
from training_runtime.elastic.state import checkpoint, emergency_checkpoint, model_files
from training_runtime.errors import ProtocolError

_LONGEST_PATH = 1 << 12
_placing = threading.Lock()  # locks on files do not keep threads of one process apart


class TravellingFiles:
    """Of one line, at one of its ends; `here`: the number of this machine. Nothing travels unless the other machine has an `own_folder`:
    one of the two has a folder of its own."""

    def __init__(self, result_dir: Path, segment: Segment, wire: Wire, *, here: int, own_folder: bool = False) -> None:
        self.own_folder = own_folder
        self._top, self._segment, self._wire, self._here = result_dir, segment, wire, here
        self._there: dict[str, tuple[int, ...]] = {}  # path -> the file of this machine that the other end has too
        self._coming = ""

    # -- what goes

    def send_before(self, message: Command | Report) -> None:
        """All that has to be at the other end when it hears this. Raises OSError, EOFError where the line is cut."""
        if not self.own_folder:
            return
        if isinstance(message, Fork):
            if message.begin > 0:
                self._send_state(message.begin)
        elif self._here != HEAD_NODE:
            self._send_written(message.paths if isinstance(message, reports.Checkpoint | reports.Suspended) else ())

    def _send_written(self, paths: tuple[str, ...]) -> None:
        if raw := emergency_checkpoint.take_out(self._top, self._segment):
            self._wire.send("name", _name(emergency_checkpoint.path_of(self._top).relative_to(self._top)))
            self._wire.send("file", raw)
        for path in (checkpoint.engine_path(self._top), model_files.example_path(self._top)):
            self._send(str(path.relative_to(self._top)))
        for each in paths:
            self._send(each)

    def _send_state(self, position: int) -> None:
        for path in (checkpoint.engine_path, checkpoint.previous_path, checkpoint.inherited_path):
            if checkpoint.position_of(path(self._top)) == position:
                return self._send(str(path(self._top).relative_to(self._top)))
        return None

    def _send(self, path: str) -> None:
        """Unless there is no such file, or the other end has it."""
        try:
            file = os.open(self._top / path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        try:
            if self._there.get(path) != (mark := _mark(file)):
                self._wire.send("name", _name(path))
                self._wire.send_file("file", file, os.fstat(file).st_size)
                self._there[path] = mark
        finally:
            os.close(file)

    # -- what comes

    def expect(self, length: int) -> None:
        """The name of the next file."""
        if not self.own_folder or length > _LONGEST_PATH:
            raise ProtocolError("the other side sends a file that nobody expects")
        path = self._wire.data(length).decode()
        if path.startswith("/") or any(part in ("", ".", "..") for part in path.split("/")):
            raise ProtocolError(f"the other side sends a file {path[:80]!r}, which leads out of the run's folder")
        self._coming = path

    def receive_file(self, length: int) -> None:
        """The file itself, to its place, whole or not at all."""
        path, self._coming = self._coming, ""
        if not path:
            raise ProtocolError("the other side sends a file without a name")
        if self._top / path == emergency_checkpoint.path_of(self._top):
            raw = self._wire.data(length)
            with _placing:
                emergency_checkpoint.merge(self._top, self._segment, raw)
            return
        target = self._top / path
        target.parent.mkdir(parents=True, exist_ok=True)
        beside = target.with_name(f".{target.name}.{os.uname().nodename}.{os.getpid()}.{threading.get_ident()}")
        try:
            self._receive(beside, length)
            self._move_into_place(beside, target)
        finally:
            beside.unlink(missing_ok=True)

    def _receive(self, beside: Path, length: int) -> None:
        file = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            self._wire.into_file(file, length)
            os.fsync(file)
        finally:
            os.close(file)

    def _move_into_place(self, beside: Path, target: Path) -> None:
        with _placing:
            mark = _mark_of(beside)
            if self._here == HEAD_NODE and target == checkpoint.engine_path(self._top):
                emergency_checkpoint.install_checkpoint(self._top, self._segment, beside)
            else:
                beside.replace(target)
        self._there[str(target.relative_to(self._top))] = mark


def forget_written(result_dir: Path) -> None:
    """On a machine with a folder of its own, before its workers begin: what those before them wrote down, when they had no driver."""
    for path in (
        emergency_checkpoint.path_of(result_dir),
        checkpoint.engine_path(result_dir),
        checkpoint.previous_path(result_dir),
        model_files.example_path(result_dir),
    ):
        path.unlink(missing_ok=True)


def _name(path: str | Path) -> bytes:
    return str(path).encode()


def _mark(file: int) -> tuple[int, ...]:
    facts = os.fstat(file)
    return facts.st_ino, facts.st_size, facts.st_mtime_ns


def _mark_of(path: Path) -> tuple[int, ...]:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return _mark(file)
    finally:
        os.close(file)
