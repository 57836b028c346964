"""Files of runs that arrive from machines that have joined: the studio's copy of a folder that is written elsewhere.

Every path is walked as `runfiles` does, without following a link, since user code may have written in the folder here before it went
there. A file that is sent whole arrives beside its place, and is in it by one rename.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat

from experiments.files import runfiles
from experiments.models import TrainingRun

_OPEN = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_ARRIVING = "tmp/.arriving-"  # no listing shows it


class WrongOffset(Exception):
    """A piece does not begin where what has arrived ends, or before; `size` is where that is."""

    def __init__(self, size: int) -> None:
        super().__init__(f"The file has {size} bytes so far.")
        self.size = size


def append(run: TrainingRun, path: str, body: bytes, *, offset: int) -> int:
    """Write at `offset` of a file that grows; what was behind it goes. The size after it. Raises WrongOffset, FileNotFoundError."""
    _check(path)
    with contextlib.ExitStack() as cleanup:
        file = _opened(run, path, cleanup)
        size = os.fstat(file).st_size
        if offset > size:
            raise WrongOffset(size)
        _write(file, body, offset)
        os.ftruncate(file, offset + len(body))
        return offset + len(body)


def receive(run: TrainingRun, path: str, body: bytes, *, offset: int, size: int, mtime_ns: int) -> int:
    """A piece of a file that is sent whole, `size` bytes, last changed at `mtime_ns`; it is in its place when the last one has come. How
    much has arrived. Raises WrongOffset, FileNotFoundError."""
    _check(path)
    of_path, of_content = (_short(said) for said in (path, f"{path}\0{size}\0{mtime_ns}"))
    mark = f"{of_path}-{of_content}"
    with contextlib.ExitStack() as cleanup:
        file = _opened(run, f"{_ARRIVING}{mark}", cleanup)
        there = os.fstat(file).st_size
        if offset != there or offset + len(body) > size:
            raise WrongOffset(there if there <= size else 0)
        if not there and len(body) < size:
            _give_up(run, f"{_ARRIVING}{of_path}-", but=f"{_ARRIVING}{mark}", cleanup=cleanup)
        _write(file, body, offset)
        if offset + len(body) == size:
            os.utime(file, ns=(mtime_ns, mtime_ns))
            at, name = runfiles.parent_of(run, path, cleanup, owned=True)
            beside, part = runfiles.parent_of(run, f"{_ARRIVING}{mark}", cleanup)
            try:
                os.rename(part, name, src_dir_fd=beside, dst_dir_fd=at)
            except IsADirectoryError:
                raise FileNotFoundError(path) from None
        return offset + len(body)


def _short(said: str) -> str:
    return hashlib.sha256(said.encode()).hexdigest()[:32]


def _give_up(run: TrainingRun, begin: str, *, but: str, cleanup: contextlib.ExitStack) -> None:
    """What has arrived of earlier contents of a file: it was written anew before all of them had come, which may be every minute."""
    at, mine = runfiles.parent_of(run, but, cleanup)
    start = begin.rpartition("/")[2]
    with os.scandir(at) as entries:
        old = [entry.name for entry in entries if entry.name.startswith(start) and entry.name != mine]
    for name in old:
        with contextlib.suppress(FileNotFoundError, IsADirectoryError):
            os.unlink(name, dir_fd=at)


def remove(run: TrainingRun, path: str) -> None:
    """It is not there any more on the machine that writes the folder. Harmless where it is gone here too."""
    _check(path)
    with contextlib.ExitStack() as cleanup, contextlib.suppress(FileNotFoundError, IsADirectoryError):
        at, name = runfiles.parent_of(run, path, cleanup)
        os.unlink(name, dir_fd=at)


def _check(path: str) -> None:
    runfiles.checked(path)
    if runfiles.is_engines(path):
        raise FileNotFoundError(path)


def _opened(run: TrainingRun, path: str, cleanup: contextlib.ExitStack) -> int:
    at, name = runfiles.parent_of(run, path, cleanup, owned=True)
    try:
        file = os.open(name, _OPEN, 0o644, dir_fd=at)
    except OSError as error:
        if isinstance(error, IsADirectoryError) or error.errno in runfiles.NO_FILE:
            raise FileNotFoundError(path) from None
        raise
    cleanup.callback(os.close, file)
    facts = os.fstat(file)
    if not stat.S_ISREG(facts.st_mode):
        raise FileNotFoundError(path)
    owner = os.fstat(at)
    if os.geteuid() == 0 and facts.st_uid != owner.st_uid:
        os.fchown(file, owner.st_uid, owner.st_gid)
    return file


def _write(file: int, body: bytes, offset: int) -> None:
    view = memoryview(body)
    while view:
        written = os.pwrite(file, view, offset)
        view, offset = view[written:], offset + written
