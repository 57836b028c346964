"""Writes a run's journal (`journal`): appended to by the run's driver alone, and gone on with after a crash. Standard library only."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from training_runtime.crashes import Died as Died
from training_runtime.errors import JournalError
from training_runtime.journal import MAX_LINE_BYTES, Event, format_line, parse, read
from training_runtime.media import Media as Media
from training_runtime.noted import Noted as Noted
from training_runtime.noted import Setup as Setup
from training_runtime.progress import Progress as Progress


@dataclass
class Writer:
    """Appends events. `write` buffers, `flush` hands the lines to the file in one write and returns its size in bytes.

    Lines that the storage does not take are kept: the next `flush` goes on with the very next byte. What a power loss left at the end, a
    torn line or zeros, is cut off on opening; the sequence goes on from the last whole line. One writer per journal; any thread may use it.
    """

    path: Path
    run: int
    seq: int = 0
    _fd: int = -1
    _unwritten: bytearray = field(default_factory=bytearray)
    _size: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        self._size, self.seq = _end(self.path, self._fd)
        os.ftruncate(self._fd, self._size)

    def write(self, event: Event, *, t: float | None = None) -> None:
        with self._lock:
            self.seq += 1
            self._unwritten += format_line(self.run, self.seq, time.time() if t is None else t, event)

    def flush(self, *, durable: bool = False) -> int:
        """Bytes in the file after the write. `durable` waits for the disk. OSError where not all could be written."""
        with self._lock:
            while self._unwritten:
                written = os.write(self._fd, self._unwritten)
                del self._unwritten[:written]
                self._size += written
            if durable:
                os.fsync(self._fd)
            return self._size

    def close(self) -> None:
        self.flush(durable=True)
        os.close(self._fd)


def _end(path: Path, fd: int) -> tuple[int, int]:
    """Size up to and with the last whole line, and its number. Reads the end of the file, so a long journal costs nothing."""
    size = os.fstat(fd).st_size
    begin = max(0, size - 4 * MAX_LINE_BYTES)
    *lines, torn = os.pread(fd, size - begin, begin).split(b"\n")
    end, kept = size - len(torn), False
    for raw in reversed(lines[1 if begin else 0 :]):
        try:
            return end, parse(raw).seq
        except JournalError:
            kept = kept or b"\0" not in raw  # what is no line of ours stays for whoever reads it, zeros go
            end -= 0 if kept else len(raw) + 1
    return _end_by_reading(path)


def _end_by_reading(path: Path) -> tuple[int, int]:
    """The same of a file whose end has no line of ours."""
    offset = seq = 0
    while (batch := read(path, offset)).end_offset > offset:
        seq = batch.lines[-1].seq if batch.lines else seq
        offset = batch.end_offset
    return offset, seq
