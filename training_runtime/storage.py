"""Storage that takes nothing more: a full disk, a quota, a file system that is away or read-only. What says so, and how much room there is.

Such an error is nobody's fault and does not last: whoever meets it keeps what it has to write and waits. Standard library only.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

EXIT_CODE = 75  # EX_TEMPFAIL: of a driver that cannot go on for want of room, and may be started again
LOW_BYTES = 256 << 20  # below it a disk counts as full, unless EDT_DISK_LOW_BYTES says otherwise
RETRY_S = 1.0
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
UNAVAILABLE = FULL | {errno.EIO, errno.ESTALE, errno.EROFS}
T = TypeVar("T")


def cause(error: BaseException | None) -> OSError | None:
    """The error of the storage that `error` is, or that it comes from: torch.save, say, wraps it into one of its own."""
    return next((each for each in _chain(error) if isinstance(each, OSError) and each.errno in UNAVAILABLE), None)


def lacks_room(error: BaseException, folder: Path) -> bool:
    """Whether a script failed since the disk of `folder`, its result folder, is full. It may have failed over another disk, or over a file
    that is larger than all there is: that is its own affair."""
    no_room = any(_says_full(each) for each in _chain(error))
    free = free_bytes(folder)
    return no_room and free is not None and free < low_bytes()


def free_bytes(folder: Path) -> int | None:
    """What is left for people without special rights; None where the file system does not say."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize


def low_bytes() -> int:
    """The setting of this process's environment."""
    value = os.environ.get("EDT_DISK_LOW_BYTES", "")
    return int(float(value)) if value else LOW_BYTES


def patiently(action: Callable[[], T], *, say: Callable[[str], None] = lambda _: None) -> T:
    """The result of `action`, tried again for as long as the storage does not take what it writes. `say` is told once."""
    said = False
    while True:
        try:
            return action()
        except OSError as error:
            if error.errno not in UNAVAILABLE:
                raise
            if not said:
                say(f"nothing can be written, waiting: {error}")
            said = True
        time.sleep(RETRY_S)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _says_full(error: BaseException) -> bool:
    if isinstance(error, OSError):
        return error.errno in FULL
    # torch.save to a path writes in C++, where the number of the error is lost.
    return isinstance(error, RuntimeError) and ("unexpected pos" in str(error) or "file write failed" in str(error))
