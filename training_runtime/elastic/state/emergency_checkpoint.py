"""What workers do when their driver is gone, or the fork server that it commands them through: they finish the step, write down what
they know, and go. The next driver continues with the very next step, and its journal gets every line that the last one could not write.

There is no leader and no agreement, because any of them may die as well: whoever is further than what is written writes, one after the
other. So the most advanced state wins, as it does after any death.

Two files: the engine checkpoint, and `checkpoint/.unwritten.json` with the finished steps and reports that may not be in the journal. The
latter is written with every engine checkpoint, before it: a state must never be further than what is known of the way to it. Giving a
journal the same step twice does no harm, the recorder takes it once.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from training_runtime import journal
from training_runtime.elastic.comm.segment import ORPHANED, RING, RING_GENERATION, RING_READ, RING_WRITTEN, Segment
from training_runtime.elastic.data.sampler import RunPlan
from training_runtime.elastic.job import Job
from training_runtime.elastic.processes import process_handles, reports
from training_runtime.elastic.processes.reports import Journaled, Once, Report
from training_runtime.elastic.state import checkpoint, durable
from training_runtime.elastic.state.snapshot import Snapshot

Row = list[float]
T = TypeVar("T")
_KEPT = 100  # reports of others
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)


class Orphaned(Exception):
    """Nobody leads the run any more: write down what there is and go."""


def declare(segment: Segment) -> None:
    """Tell every worker. By whoever notices first: the fork server, the driver that lost its fork server, or a worker."""
    segment.say(ORPHANED)


def check(segment: Segment) -> None:
    """Raises Orphaned when somebody has declared it."""
    if segment.words[ORPHANED]:
        raise Orphaned


def look(segment: Segment, driver: int) -> None:
    """The same, and whether the process of the pidfd `driver` has ended: the fork server may have died with it. Two microseconds."""
    check(segment)
    if process_handles.has_ended(driver):
        declare(segment)
        raise Orphaned


@dataclass(frozen=True)
class Unwritten:
    """What a journal may lack: rows of finished steps (see `segment`), reports in the order in which they were made, and of each generation
    that did those steps what was left word of."""

    rows: tuple[Row, ...] = ()
    reports: tuple[Journaled, ...] = ()
    generations: tuple[dict[str, Any], ...] = ()


def path_of(result_dir: Path) -> Path:
    return result_dir / "checkpoint" / ".unwritten.json"


def read(result_dir: Path) -> Unwritten:
    """Nothing where there is no such file."""
    try:
        return _parsed(path_of(result_dir).read_bytes())
    except (OSError, ValueError):
        return Unwritten()


def _parsed(text: bytes) -> Unwritten:
    """Raises ValueError for what nobody wrote down."""
    raw = json.loads(text)
    return Unwritten(tuple(raw["rows"]), _journaled(reports.read(each) for each in raw["reports"]), tuple(raw["generations"]))


def _journaled(found: Iterable[Report]) -> tuple[Journaled, ...]:
    return tuple(report for report in found if isinstance(report, Journaled))


def forget(result_dir: Path) -> None:
    """All of it is in the journal."""
    path_of(result_dir).unlink(missing_ok=True)


def save(job: Job, shape: RunPlan, segment: Segment, position: int, recent: Iterable[Once]) -> tuple[tuple[str, ...], int]:
    """The engine checkpoint of `position`, and before it what the journal may lack; its path and size. By a worker that is led; `recent`:
    what it has reported lately."""
    return _save_after_journal(job.result_dir, segment, recent, lambda: checkpoint.save_engine(job, shape, position))


def save_snapshot(result_dir: Path, segment: Segment, found: Snapshot, recent: Iterable[Once]) -> tuple[tuple[str, ...], int]:
    """The same of a snapshot, while the training goes on."""
    order = found.order
    return _save_after_journal(
        result_dir, segment, recent, lambda: checkpoint.write_snapshot(result_dir, order.position, order.shape, found.state)
    )


def _save_after_journal(result_dir: Path, segment: Segment, recent: Iterable[Once], save_state: Callable[[], T]) -> T:
    with one_at_a_time(result_dir, segment.fd):
        recent = list(recent)
        kept = [report for report in read(result_dir).reports if report not in recent]
        _write(result_dir, segment, [], [*kept[-_KEPT:], *recent])
        _sync_journal(result_dir)
        return save_state()


def load(job: Job, shape: RunPlan, segment: Segment, position: int, warn: Callable[[str], None]) -> bool:
    """Restore the engine checkpoint of `position`; see `checkpoint.load_engine`. While nobody writes one: what is damaged is set aside."""
    with one_at_a_time(job.result_dir, segment.fd):
        return checkpoint.load_engine(job, shape, position, warn)


def write_down(
    job: Job, shape: RunPlan, segment: Segment, position: int, *, row: Row | None, unread: Callable[[], Iterable[Report]]
) -> None:
    """The last thing that a worker does: what it knows, and its state at `position` unless a further one is written already. -1: it holds
    no state. `row`: of a finished step that is not in the ring. `unread` takes out the reports that no driver will read any more."""
    with one_at_a_time(
        job.result_dir, segment.fd
    ):  # also for taking the reports out: of two who did at once, each would get a part of them
        known = (*read(job.result_dir).reports, *_journaled(unread()))
        _write(job.result_dir, segment, [row] if row else [], known)
        if position > (checkpoint.peek(job, shape) or 0):
            _sync_journal(job.result_dir)
            checkpoint.save_engine(job, shape, position)


def add(result_dir: Path, segment: Segment, unread: Iterable[Report]) -> None:
    """What was said and not heard, when the workers are gone. By the remote agent of a machine that has lost its driver."""
    if found := _journaled(unread):
        with one_at_a_time(result_dir, segment.fd):
            _write(result_dir, segment, [], [*read(result_dir).reports, *found])


def take_out(result_dir: Path, segment: Segment) -> bytes:
    """What is written down on a machine with a folder of its own, for the one where the driver is; empty: nothing."""
    path = path_of(result_dir)
    if not path.exists():
        return b""
    with one_at_a_time(result_dir, segment.fd):
        found = path.read_bytes()
        path.unlink()
    return found


def merge(result_dir: Path, segment: Segment, found: bytes) -> None:
    """The same where the driver is, beside what is written down there."""
    more = _parsed(found)
    with one_at_a_time(result_dir, segment.fd):
        before = read(result_dir)
        known = [*before.reports, *(report for report in more.reports if report not in before.reports)]
        _save(result_dir, segment, (*before.rows, *more.rows), known, (*before.generations, *more.generations))


def install_checkpoint(result_dir: Path, segment: Segment, arrived: Path) -> None:
    """The engine checkpoint of another machine, which has `arrived` beside this one's, and to which the way is known; unless there is a
    further one here."""
    path = checkpoint.engine_path(result_dir)
    with one_at_a_time(result_dir, segment.fd):
        position = checkpoint.position_of(arrived)
        if position is not None and position >= (checkpoint.position_of(path) or 0):
            _sync_journal(result_dir)
            checkpoint.keep_previous(result_dir)
            arrived.replace(path)


def _write(result_dir: Path, segment: Segment, found: Sequence[Row], known: Sequence[Journaled]) -> None:
    """What the journal lacks: rows in the ring, those `found`, and those that somebody who was further has written already."""
    before = read(result_dir)
    first, last = segment.words[RING_READ] + 1, segment.words[RING_WRITTEN]
    ring = [segment.ring[step % RING].tolist() for step in range(first, last + 1)]
    numbers = {int(row[RING_GENERATION]) for row in (*before.rows, *found, *ring) if row[0] >= first}
    words = [json.loads(word) for word in map(segment.noted, sorted(numbers)) if word]
    _save(result_dir, segment, (*before.rows, *found, *ring), known, (*before.generations, *words))


def _save(result_dir: Path, segment: Segment, found: Sequence[Row], known: Sequence[Journaled], words: Sequence[dict[str, Any]]) -> None:
    first = segment.words[RING_READ] + 1
    rows = {int(row[0]): row for row in found if row[0] >= first}
    generations = {each["generation"]: each for each in words}
    content = {
        "rows": [rows[step] for step in sorted(rows)],
        "reports": [reports.plain(report) for report in known],
        "generations": list(generations.values()),
    }
    durable.write(path_of(result_dir), lambda file: file.write(json.dumps(content).encode()))


def _sync_journal(result_dir: Path) -> None:
    """What left the ring was handed to the file by then, but a power loss would still take it, and its steps would never be done again.
    Any process can have it written to the disk; where the driver is on another machine, that is the file server's."""
    with suppress(FileNotFoundError):
        file = os.open(result_dir / journal.FILE_NAME, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            os.fsync(file)
        finally:
            os.close(file)


def has_locks(result_dir: Path) -> bool:
    """Whether the file system of the run's folder has locks. Without them two machines could lose what the other has written down."""
    file = _open_lock(result_dir)
    try:
        return _lock(file)
    finally:
        os.close(file)


def _open_lock(result_dir: Path) -> int:
    path = result_dir / "checkpoint" / ".lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)


def _lock(file: int) -> bool:
    """Waits for the lock; False where there are none."""
    try:
        fcntl.lockf(file, fcntl.LOCK_EX, 1, 0)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        return False
    return True


@contextmanager
def one_at_a_time(result_dir: Path, fd: int | None = None) -> Iterator[None]:
    """A record lock on a file that all machines of the run see, and on the shared memory `fd` for where the file system knows no locks
    (then the run is on one machine, see `has_locks`). Both go with their holder, however that ends. OSError where one cannot be had now."""
    file = _open_lock(result_dir)
    try:
        for held in (file,) if fd is None else (fd, file):
            _lock(held)
        yield
    finally:
        if fd is not None:
            with suppress(OSError):
                fcntl.lockf(fd, fcntl.LOCK_UN, 1, 0)
        os.close(file)
