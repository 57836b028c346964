"""What a run may take of its machine's disk, when to measure it, and the sentence for one that took more: pure, numbers in and words
out.

The kernel does not hold a run to this: the host measures, from time to time, and ends the run. So there is always some room between a
limit and the mark below which everybody is suspended (`room.Marks`).
"""

from __future__ import annotations

from dataclasses import dataclass

GIB = 1 << 30
LEAST_BYTES = 1 << 20
LEAST_FILES = 100
LEAST_LOG = 4 << 20
NO_HOG = (
    10  # a run that takes less than such a part of the file system is none, however little room there is: it is suspended with the others
)
SELDOM_S = 10.0  # so long a run is left alone that writes nothing, as far as the free space tells
OFTEN_S = 0.25
COST = 4  # measuring one takes a fifth of a processor at most,
SELDOM_COST = 30  # and a thirtieth where the free space says that nothing is written


@dataclass(frozen=True)
class Limits:
    """Settings of an administrator. `disk`: of one run, in bytes, or up to 1 a share of the file system; 0: none of its own; None: nine
    tenths of the room that there was when the run was first measured. `files`: files and folders together, each name counts; 0: no
    limit. `log`: bytes of each of its logs, see `log_cut`; 0: no limit."""

    disk: float | None = None
    files: int = 1_000_000
    log: int = 256 << 20


@dataclass(frozen=True)
class Disk:
    """The file system that runs are on, in bytes and in files. `free` is what people may use; `free_files` None where it does not say."""

    total_bytes: int
    free_bytes: int
    free_files: int | None = None


@dataclass(frozen=True)
class Use:
    """What a run was found to take. `whole`: all of it was looked at; else it is that at least. `deep`: folders are nested in such a way
    that they cannot be counted."""

    bytes: int = 0
    files: int = 0
    whole: bool = True
    deep: bool = False


@dataclass(frozen=True)
class Basis:
    """From which a run's share of the room is taken: what it took when first measured, and the most that it and the free space together
    have been since. Room that others take later does not make a run's limit smaller, and room that somebody makes raises it."""

    first_bytes: int
    most_bytes: int


def basis(before: Basis | None, use: Use, disk: Disk, *, enough_bytes: int) -> Basis:
    """`enough_bytes`: what is to stay free, see `room.Marks`."""
    together = use.bytes + max(0, disk.free_bytes - enough_bytes)
    return Basis(before.first_bytes, max(before.most_bytes, together)) if before else Basis(use.bytes, together)


@dataclass(frozen=True)
class Most:
    """What a run may take; None: as much as there is. `own`: an administrator has set it, else it is what the disk has room for."""

    bytes: int | None
    files: int | None
    own: bool = True


def most(limits: Limits, disk: Disk, given: Basis) -> Most:
    """A tenth of the room stays, and at least 1 GiB or half of a small room: so a run that writes without end meets its own limit, and the
    disk is not full then. Where others have left little room a run of usual size is not ended for it: it waits as everybody does until
    there is some. What an administrator has set counts where it is less."""
    files = limits.files or None
    if limits.disk == 0:
        return Most(None, files)
    room = given.most_bytes - given.first_bytes
    usual = given.first_bytes + max(disk.total_bytes // NO_HOG, room - min(max(room // 10, GIB), room // 2))
    own = usual if limits.disk is None else _set(limits.disk, disk)
    return Most(min(usual, own), files, own=own < usual)


def _set(limit: float, disk: Disk) -> int:
    return int(limit * disk.total_bytes) if limit <= 1 else int(limit)


def is_due(*, age_s: float, took_s: float, before: Disk, now: Disk, use: Use, may: Most) -> bool:
    """Whether a run is to be measured again. `age_s`: since it was, which took `took_s`; `before`: the disk at that time.

    All that has gone since may be what this run took: it is looked at again before that can be more than half of what it lacked of a limit.
    """
    if age_s < max(OFTEN_S, COST * took_s):
        return False
    gone = before.free_bytes - now.free_bytes
    if age_s >= max(SELDOM_S, SELDOM_COST * took_s) or (may.bytes is not None and gone > (may.bytes - use.bytes) // 2):
        return True
    if may.files is None or before.free_files is None or now.free_files is None:
        return False
    return before.free_files - now.free_files > (may.files - use.files) // 2


def judge(use: Use, may: Most) -> str:
    """Why this run has to end, for people; empty where it need not."""
    if may.bytes is not None and use.bytes > may.bytes:
        took = size(use.bytes) if use.whole else f"at least {size(use.bytes)}"
        whose = "" if may.own else ", which leaves others some of what the disk had room for"
        return (
            f"The run was ended: its files take {took} of the disk, and its limit on this machine is {size(may.bytes)}{whose}. "
            f"{_KEPT} Delete results that nobody needs and run it again, or ask an administrator for more (EDT_RUN_DISK)."
        )
    if may.files is not None and use.files > may.files:
        return (
            f"The run was ended: it has more than {may.files:,} files and folders, its limit on this machine. {_KEPT} Let it keep its data "
            "in fewer and larger files, or ask an administrator for more (EDT_RUN_FILES)."
        )
    if use.deep:
        return f"The run was ended: its folders lie so deep inside each other that what is in them cannot be counted. {_KEPT}"
    return ""


_KEPT = "What it has written is kept until somebody deletes it."


def words(limits: Limits, disk: Disk) -> str:
    """For people, what a run may have; empty where nothing is limited."""
    parts = []
    if limits.disk is None:
        parts.append("nine tenths of the room on the disk")
    elif limits.disk:
        parts.append(f"{size(_set(limits.disk, disk))} of the disk")
    if limits.files:
        parts.append(f"{limits.files:,} files and folders")
    return f"a run may have {' and '.join(parts)}" if parts else ""


def size(count: int) -> str:
    if count >= GIB:
        return f"{count / GIB:.3g} GiB" if count < 1000 * GIB else f"{count / GIB:,.0f} GiB"
    return f"{count / (1 << 20):.3g} MiB" if count < 1000 << 20 else f"{count >> 20} MiB"
