"""Measures what runs take of the disk: `python -m training_runtime.host.meter.disk_use`, a child of the node host with low priority. One
line of JSON on its standard input asks for one run, one on its standard output answers; it ends when the input is closed.

User code owns what is walked here, and may change it meanwhile. So each folder is opened from the one above it (openat, O_NOFOLLOW),
nothing else is opened at all, and what is held in memory and in descriptors does not grow with what there is to find: only files with
several names are remembered, up to the number of files that a run may have. Files that are deleted and still open are found in /proc, in
all processes of the run, as far as this machine lets us look there.

Promise: what is found is there, each file once, by its blocks. Not promised: that all is found of a run that moves its files about
meanwhile, or hands them on in messages; it is measured again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import stat
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from training_runtime.host import processes
from training_runtime.host.meter.disk_values import Use
from training_runtime.host.processes import Traces
from training_runtime.host.runs import log_cut
from training_runtime.host.sandbox import kernel
from training_runtime.records import build

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_BLOCK = 512  # of st_blocks, see stat(2)
_LEVELS = 200  # that many folders, one inside the other, are open at once, each with two descriptors
_LATER = 200  # folders below those that wait for their turn
_LOOK_AT_CLOCK = 1000
_NICE = 10


@dataclass(frozen=True)
class MeasureRequest:
    """`most_files`: it need not be counted any further, 0: all of it; nor for longer than `limit_s`. `most_log`: its logs are cut to so
    many bytes before that, 0: they are not."""

    folder: str
    traces: Traces
    most_files: int
    limit_s: float
    most_log: int = 0


@dataclass
class _Count:
    """So far. `links`: files with several names that were seen under one of them."""

    most_files: int
    deadline: float
    bytes: int = 0
    files: int = 0
    whole: bool = True
    deep: bool = False
    links: set[int] = field(default_factory=set)

    def add(self, found: os.stat_result) -> bool:
        """False when nothing more need be counted."""
        self.files += 1
        self.add_blocks(found)
        enough = bool(self.most_files) and self.files > self.most_files
        self.whole = not enough and (self.files % _LOOK_AT_CLOCK != 0 or time.monotonic() <= self.deadline)
        return self.whole

    def add_blocks(self, found: os.stat_result) -> None:
        if not stat.S_ISDIR(found.st_mode) and found.st_nlink != 1:
            key = found.st_dev << 64 | found.st_ino
            if key in self.links:
                return
            self.links.add(key)
        self.bytes += found.st_blocks * _BLOCK

    def use(self) -> Use:
        return Use(self.bytes, self.files, whole=self.whole, deep=self.deep)


def measure(request: MeasureRequest) -> Use:
    """What the run takes now. Raises OSError where its folder cannot be opened."""
    count = _Count(request.most_files, time.monotonic() + request.limit_s)
    top = os.open(request.folder, _FOLDER)
    if request.most_log:
        log_cut.cut(top, request.most_log)
    device = os.fstat(top).st_dev
    count.add(os.fstat(top))
    _walk(top, count)
    for found in _deleted(request.traces, device):
        count.add_blocks(found)
    return count.use()


def _walk(top: int, count: _Count) -> None:
    """Closes `top`. A folder `_LEVELS` below it waits, open, until those above it are done: then it is a top itself."""
    tops, levels = [top], list[_Level]()
    try:
        while (tops or levels) and count.whole:
            if not levels:
                levels.append(_Level(tops.pop()))
            found = levels[-1].next_folder(count)
            if found is None:
                levels.pop().close()
            elif len(levels) < _LEVELS:
                levels.append(_Level(found))
            elif len(tops) < _LATER:
                tops.append(found)
            else:
                os.close(found)
                count.whole, count.deep = False, True
    finally:
        for level in levels:
            level.close()
        for each in tops:
            os.close(each)


class _Level:
    """A folder that is being looked through."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._entries = os.scandir(descriptor)

    def next_folder(self, count: _Count) -> int | None:
        """Counts what comes up to the next folder in it, and opens that; None where there is none, or nothing more need be counted."""
        for entry in self._entries:
            with contextlib.suppress(OSError):  # gone in between
                found = os.stat(entry.name, dir_fd=self._descriptor, follow_symlinks=False)
                if not count.add(found):
                    return None
                if stat.S_ISDIR(found.st_mode):
                    return _open(entry.name, self._descriptor)
        return None

    def close(self) -> None:
        self._entries.close()
        os.close(self._descriptor)


def _open(name: str, parent: int) -> int:
    """A folder. One that the run has closed to itself is opened again where we have no more rights than the run: else it could hide there
    what it takes."""
    try:
        return os.open(name, _FOLDER, dir_fd=parent)
    except PermissionError:
        found = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
        try:
            here = f"/proc/self/fd/{found}"  # this very folder, whatever bears its name now
            Path(here).chmod(stat.S_IMODE(os.fstat(found).st_mode) | stat.S_IRWXU)
            return os.open(here, _FOLDER & ~os.O_NOFOLLOW)
        finally:
            os.close(found)


def _deleted(traces: Traces, device: int) -> Iterator[os.stat_result]:
    """Files on this device that have no name any more, each as often as it is found."""
    for process in processes.of_run(traces, processes.table()):
        for path in _opened_by(process.pid):
            with contextlib.suppress(OSError):  # closed in between, or we may not look
                found = path.stat()
                if found.st_dev == device and found.st_nlink == 0 and stat.S_ISREG(found.st_mode):
                    yield found


def _opened_by(pid: int) -> Iterator[Path]:
    """What leads to the open files of a process, and to those mapped into its memory whose name is gone."""
    own = Path("/proc", str(pid))
    with contextlib.suppress(OSError):
        yield from (own / "fd").iterdir()
    with contextlib.suppress(OSError), open(own / "maps", "rb") as lines:
        for line in lines:
            if line.endswith(b" (deleted)\n"):
                yield own / "map_files" / line.split(b" ", 1)[0].decode()


def main() -> int:
    kernel.die_with_the_parent()
    os.nice(_NICE)
    for line in sys.stdin.buffer:
        began = time.monotonic()
        try:
            answer = dataclasses.asdict(measure(build(MeasureRequest, json.loads(line))))
        except OSError as error:
            answer = {"problem": str(error)}
        sys.stdout.write(json.dumps(answer | {"took_s": time.monotonic() - began}) + "\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
