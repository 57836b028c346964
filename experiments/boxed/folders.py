"""Has archives unpacked by a boxed child, which is handed the folder to write to, and looks at what lies there then before anybody uses
it."""

from __future__ import annotations

import dataclasses
import os
import stat
import tempfile
from pathlib import Path
from typing import BinaryIO

from experiments.boxed import pool, strict
from experiments.files import tarcheck, zipcheck
from experiments.files.zipcheck import BundleRefused, Limits
from training_runtime.errors import ProtocolError

MEMORY_BYTES = 2 << 30  # of addresses; a table of contents has up to 64 MiB
LONGEST_SENTENCE = 4000
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_STRANGE = "{} could not be read: " + pool.BROKEN + ". Try again, or tell an administrator."


class NoRoom(Exception):
    """What the zip says that it unpacks to does not fit into the room that there is."""

    def __init__(self, needed_bytes: int) -> None:
        super().__init__(f"{needed_bytes} bytes")
        self.needed_bytes = needed_bytes


def limits_for(packed_bytes: int, *, file_bytes: int, entries: int) -> tuple[pool.Limits, float]:
    """What unpacking so much may take, and for how long: far more than it does on a slow machine, and not for ever."""
    cpu_s = 60 + packed_bytes // (2 << 20) + entries // 500
    return pool.Limits(cpu_s=cpu_s, memory_bytes=MEMORY_BYTES, file_bytes=file_bytes), 60.0 + 2 * cpu_s


def unpack(zipped: Path, *, into: Path, name: str, limits: Limits, is_code: bool = False, room: int | None = None) -> list[str]:
    """The paths of the files that now lie in the empty folder `into`, all of them the studio's, files 0644 and folders 0755. `is_code`: it
    must be what a run can be made of; `room`: bytes. Raises BundleRefused with what to do, NoRoom, OSError."""
    room = limits.unpacked_bytes if room is None else room
    said = {"name": name, "limits": dataclasses.asdict(limits), "is_code": is_code, "room": room}
    with open(zipped, "rb") as file:
        allowed, wall_s = limits_for(os.fstat(file.fileno()).st_size, file_bytes=limits.unpacked_bytes, entries=limits.entries)
        at = os.open(into, _FOLDER)
        try:
            owner = os.fstat(at)
            if (uid := pool.walls().uid) is not None:
                os.fchown(at, uid, -1)
            answer = pool.ask(
                "unpack", said, limits=allowed, wall_s=wall_s, lane=pool.UPLOADS, files=(file.fileno(),), folder=(at, "write")
            )
            _refuse(answer)
            return _check_returned(at, owner, limits)
        except pool.Unreadable as problem:
            raise BundleRefused(f"{name} could not be read: {problem}. Pack less into one, or try again.") from None
        except (ProtocolError, RecursionError):
            raise BundleRefused(_STRANGE.format(name)) from None
        finally:
            os.close(at)


def repack(tarred: Path, *, into: BinaryIO, name: str, limits: Limits) -> None:
    """A tar, plain or gzipped, as a zip. Raises BundleRefused with what to do, OSError."""
    said = {"name": name, "limits": dataclasses.asdict(limits)}
    most = limits.unpacked_bytes + (limits.entries + 2) * 4 * tarcheck.BLOCK_BYTES + (64 << 20)
    with open(tarred, "rb") as file, tempfile.TemporaryFile(dir=tarred.parent) as scratch:
        allowed, wall_s = limits_for(os.fstat(file.fileno()).st_size, file_bytes=most, entries=limits.entries)
        try:
            files = (file.fileno(), into.fileno(), scratch.fileno())
            _refuse(pool.ask("tar_as_zip", said, limits=allowed, wall_s=wall_s, lane=pool.UPLOADS, files=files))
        except pool.Unreadable as problem:
            raise BundleRefused(f"{name} could not be read: {problem}. Pack less into one, or try again.") from None
        except ProtocolError:
            raise BundleRefused(_STRANGE.format(name)) from None


def with_line(zipped: Path, path: str, line: str, *, into: BinaryIO, most_bytes: int) -> None:
    """A zip with a line more in one of its text files. Raises BundleRefused, OSError."""
    with open(zipped, "rb") as file:
        allowed, wall_s = limits_for(os.fstat(file.fileno()).st_size, file_bytes=most_bytes, entries=0)
        files = (file.fileno(), into.fileno())
        try:
            pool.ask("with_line", {"path": path, "line": line}, limits=allowed, wall_s=wall_s, lane=pool.UPLOADS, files=files)
        except pool.Unreadable as problem:
            raise BundleRefused(f"The code could not be read: {problem}.") from None


def _refuse(answer: object) -> None:
    said = answer if isinstance(answer, dict) else {}
    if refusal := strict.text(said.get("refused"), most=LONGEST_SENTENCE):
        raise BundleRefused(refusal)
    if needed := strict.whole(said.get("needs", 0)):
        raise NoRoom(needed)


def _check_returned(at: int, owner: os.stat_result, limits: Limits) -> list[str]:
    """Whoever has written there is gone, and may have been anybody: what is no plain file or folder, or has a name that no upload may have,
    or is too much, is not taken."""
    found: list[str] = []
    left = limits.unpacked_bytes
    for folder, folders, names, inside in os.fwalk(".", dir_fd=at, follow_symlinks=False):
        _own(inside, owner, 0o755)
        for name in folders:
            if not stat.S_ISDIR(os.stat(name, dir_fd=inside, follow_symlinks=False).st_mode):
                raise ProtocolError("there is something else than a folder")
        for name in names:
            path = f"{folder}/{name}".removeprefix("./")
            zipcheck.checked_paths([path])
            handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=inside)
            try:
                facts = os.fstat(handle)
                left -= facts.st_size
                if not stat.S_ISREG(facts.st_mode) or facts.st_nlink != 1 or left < 0:
                    raise ProtocolError("there is something else than a file, or too much")
                _own(handle, owner, 0o644)
            finally:
                os.close(handle)
            found.append(path)
        if len(found) > limits.entries:
            raise ProtocolError("there are too many files")
    return found


def _own(handle: int, owner: os.stat_result, mode: int) -> None:
    facts = os.fstat(handle)
    if (facts.st_uid, facts.st_gid) != (owner.st_uid, owner.st_gid):
        os.fchown(handle, owner.st_uid, owner.st_gid)
    if stat.S_IMODE(facts.st_mode) != mode:
        os.fchmod(handle, mode)
