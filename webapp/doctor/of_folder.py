"""EDT_HOME: on what disk it is, how much room there is, and who may read what is in it."""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from webapp.doctor.findings import Finding, warning
from webapp.studio.checks import NEEDED_BYTES

# What others' machines serve: SQLite's locks and the broker's socket do not work there.
NETWORK = (
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "9p",
    "afs",
    "ceph",
    "glusterfs",
    "lustre",
    "beegfs",
    "gpfs",
    "fuse.sshfs",
    "fuse.glusterfs",
)
LITTLE = 0.1  # of the disk or of its files


@dataclass(frozen=True)
class FolderFacts:
    """file_system: its type, as `mount` says it. free, size: bytes; files_free, files_size: how many files, 0 where it has no bound.
    open_to_others: what is in it and others of this machine may read. owner, user: whose it is, and who asks."""

    path: Path
    file_system: str = "ext4"
    free: int = 1 << 40
    size: int = 1 << 40
    files_free: int = 0
    files_size: int = 0
    open_to_others: tuple[str, ...] = ()
    owner: str = "edt"
    user: str = "edt"


def look(home: Path) -> FolderFacts:
    room = os.statvfs(home)
    private = [home / "db.sqlite3", home / "secrets", *sorted((home / "secrets").glob("*"))]
    return FolderFacts(
        home,
        file_system=_file_system(home),
        free=room.f_bavail * room.f_frsize,
        size=room.f_blocks * room.f_frsize,
        files_free=room.f_favail,
        files_size=room.f_files,
        open_to_others=tuple(str(path) for path in private if path.exists() and stat.S_IMODE(path.stat().st_mode) & 0o077),
        owner=_name(home.stat().st_uid),
        user=_name(os.geteuid()),
    )


def check(facts: FolderFacts) -> Iterator[Finding]:
    if facts.file_system in NETWORK:
        yield Finding(
            f"{facts.path} is on a network file system ({facts.file_system}): move EDT_HOME to a local disk; data may stay there."
        )
    if facts.free < NEEDED_BYTES:
        yield Finding(f"The disk of {facts.path} has {facts.free >> 20} MiB left: make room.")
    elif facts.free < LITTLE * facts.size:
        yield warning(f"The disk of {facts.path} has {facts.free >> 30} of {facts.size >> 30} GiB left.")
    if facts.files_size and facts.files_free < LITTLE * facts.files_size:
        yield warning(f"The disk of {facts.path} can take {facts.files_free} more files, of {facts.files_size}.")
    for path in facts.open_to_others:
        yield Finding(f"Others on this machine may read {path}: chmod go= {path}")
    if facts.owner != facts.user:
        yield warning(
            f"{facts.path} belongs to {facts.owner}, and this was asked by {facts.user}: files that it makes may be closed to the studio."
        )


def _file_system(path: Path) -> str:
    mounts = [each for each in psutil.disk_partitions(all=True) if path.is_relative_to(each.mountpoint)]
    return max(mounts, key=lambda each: len(each.mountpoint)).fstype if mounts else ""


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
