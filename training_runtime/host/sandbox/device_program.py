"""Programs of control groups of version 2 that say which devices may be opened: bpf(2), by ctypes. Thin wrappers that raise OSError.

Several programs of one group hold all at once. A program is taken away by its number, so what an earlier host has attached can be too.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import struct
from collections.abc import Iterator
from pathlib import Path

_NUMBERS = {"x86_64": 321, "aarch64": 280}
_LOAD, _ATTACH, _DETACH, _BY_NUMBER, _QUERY = 5, 8, 9, 13, 16
_OF_DEVICES, _TO_DEVICES = 15, 6  # BPF_PROG_TYPE_CGROUP_DEVICE, BPF_CGROUP_DEVICE
_BESIDE_OTHERS = 2  # BPF_F_ALLOW_MULTI
_MOST = 64
_INSTRUCTION_BYTES = 8


def replace(group: Path, program: bytes) -> None:
    """The new one is there before the earlier ones go: what both refuse is refused at every moment."""
    with _opened(group) as folder:
        earlier = _attached(folder)
        loaded = _load(program)
        try:
            _bpf(_ATTACH, struct.pack("=IIII", folder, loaded, _TO_DEVICES, _BESIDE_OTHERS))
        finally:
            os.close(loaded)
        _detach(folder, earlier)


def remove(group: Path) -> None:
    """All of them."""
    with _opened(group) as folder:
        _detach(folder, _attached(folder))


def is_there(group: Path) -> bool:
    with _opened(group) as folder:
        return bool(_attached(folder))


@contextlib.contextmanager
def _opened(group: Path) -> Iterator[int]:
    folder = os.open(group, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield folder
    except OSError as error:
        raise OSError(error.errno, error.strerror, f"bpf of {group}") from None
    finally:
        os.close(folder)


def _load(program: bytes) -> int:
    code, licence = ctypes.create_string_buffer(program, len(program)), ctypes.create_string_buffer(b"GPL")
    count = len(program) // _INSTRUCTION_BYTES
    return _bpf(_LOAD, struct.pack("=IIQQIIQII", _OF_DEVICES, count, ctypes.addressof(code), ctypes.addressof(licence), 0, 0, 0, 0, 0))


def _attached(folder: int) -> tuple[int, ...]:
    """The numbers of those that this very group has, not of those around it."""
    numbers = (ctypes.c_uint32 * _MOST)()
    given = ctypes.create_string_buffer(struct.pack("=IIIIQI", folder, _TO_DEVICES, 0, 0, ctypes.addressof(numbers), _MOST))
    _call(_QUERY, given, 28)
    count = struct.unpack_from("=I", given, 24)[0]
    return tuple(numbers[:count])


def _detach(folder: int, numbers: tuple[int, ...]) -> None:
    for number in numbers:
        program = _bpf(_BY_NUMBER, struct.pack("=III", number, 0, 0))
        try:
            _bpf(_DETACH, struct.pack("=III", folder, program, _TO_DEVICES))
        finally:
            os.close(program)


def _bpf(command: int, given: bytes) -> int:
    return _call(command, ctypes.create_string_buffer(given, len(given)), len(given))


def _call(command: int, given: ctypes.Array[ctypes.c_char], size: int) -> int:
    number = _NUMBERS.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    result: int = ctypes.CDLL(None, use_errno=True).syscall(ctypes.c_long(number), ctypes.c_long(command), given, ctypes.c_long(size))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result
