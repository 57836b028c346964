"""POSIX semaphores in shared memory, by which processes of a run wake each other: nobody polls, and every wait has a deadline.

A semaphore carries no message. Who is woken looks at the words in shared memory again; an extra ring costs one more look. Linux with glibc.
"""

from __future__ import annotations

import ctypes
import errno
import time
from functools import lru_cache

SEM_BYTES = 64  # sizeof(sem_t) is 32 with glibc; a cache line each
_CLOCK_MONOTONIC = 1


class _Timespec(ctypes.Structure):
    _fields_ = [("tv_sec", ctypes.c_long), ("tv_nsec", ctypes.c_long)]


@lru_cache(maxsize=1)
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    for name in ("sem_post", "sem_trywait"):
        getattr(libc, name).argtypes = [ctypes.c_void_p]
    libc.sem_init.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_uint]
    libc.sem_clockwait.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p]
    return libc


class Semaphore:
    """The semaphore at `address` (of this process's mapping of memory that others map too)."""

    def __init__(self, address: int) -> None:
        self._address = ctypes.c_void_p(address)
        libc = _libc()
        self._post, self._trywait, self._clockwait = libc.sem_post, libc.sem_trywait, libc.sem_clockwait

    def create(self) -> None:
        if _libc().sem_init(self._address, 1, 0) != 0:
            raise OSError(ctypes.get_errno(), "sem_init")

    def ring(self) -> None:
        self._post(self._address)

    def drain(self) -> None:
        """Forget rings so far. Look at the words after it, never before."""
        while self._trywait(self._address) == 0:
            pass

    def wait(self, timeout_s: float) -> bool:
        """Sleep until it rings; False after `timeout_s`."""
        end = time.monotonic() + timeout_s
        until = _Timespec(int(end), int(end % 1 * 1e9))
        while self._clockwait(self._address, _CLOCK_MONOTONIC, ctypes.byref(until)) != 0:
            code = ctypes.get_errno()
            if code == errno.ETIMEDOUT:
                return False
            if code != errno.EINTR:
                raise OSError(code, "sem_clockwait")
        return True
