"""The work behind an archive that has arrived, one at a time in the whole studio: unpack and check it, make the project, read its journals.

An attempt may be killed anywhere. Before the project is there for people nothing counts, and the next attempt begins anew; from then on
it goes on with the next journal. What is refused leaves a sentence and no file.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import errno
import fcntl
import logging
from collections.abc import Callable, Iterator

from django.conf import settings
from django.db import InterfaceError, OperationalError, transaction

from experiments.errors import DomainError
from experiments.files import datastore, tombstones
from experiments.live import notify
from experiments.metrics import ingest
from experiments.models import ProjectImport, TrainingRun
from experiments.transfer import facts, files, making, model_facts, pieces, reading
from experiments.transfer.format import Data, Manifest, Model, Run, TransferRefused
from training_runtime.noted import Noted

log = logging.getLogger(__name__)
MOST_ATTEMPTS = 3
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
BROKE = "Something broke while it was taken in; the error is in the studio's log. Tell an administrator, or try again."
KILLED = f"It was begun {MOST_ATTEMPTS} times and never came to its end: is it too large for this machine? Tell an administrator."
EVERY = dt.timedelta(seconds=1)
State = ProjectImport.State
Clock = Callable[[], dt.datetime]


def go_on(clock: Clock) -> int:
    """Take in all that wait, oldest first; how many. Nothing where somebody else is at it."""
    tried = set[int]()
    with _alone() as mine:
        while mine and (order := _next(tried)) is not None:
            tried.add(order.pk)
            _take_in(order, clock)
    return len(tried)


def _next(tried: set[int]) -> ProjectImport | None:
    waiting = ProjectImport.objects.filter(state__in=(State.WAITING, State.CHECKING, State.READING)).exclude(pk__in=tried)
    return waiting.select_related("created_by").order_by("pk").first()


@contextlib.contextmanager
def _alone() -> Iterator[bool]:
    """By a lock that ends with its process, however that ends."""
    with open(settings.EDT_HOME / "uploads" / ".lock", "wb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True


def _take_in(order: ProjectImport, clock: Clock) -> None:
    attempt = {"attempts": order.attempts + 1, "state": State.READING if order.state == State.READING else State.CHECKING}
    if not ProjectImport.objects.filter(pk=order.pk, state=order.state).update(**attempt):  # given up meanwhile
        return
    order.attempts, order.state = attempt["attempts"], attempt["state"]
    try:
        if order.state == State.CHECKING:
            _make(order, clock)
        _read_journals(order, clock)
        _end(order, State.DONE, "", now=clock())
    except (OperationalError, InterfaceError):  # the database is away: another attempt goes on
        raise
    except Exception as error:  # an archive that breaks must not hold up the others
        says = _in_words(order, error)
        if order.state == State.CHECKING:
            _end(order, State.REFUSED, says, now=clock())
        elif order.attempts >= MOST_ATTEMPTS:
            _end(order, State.DONE, f"Not all metrics of its runs could be read. {says}", now=clock())


def _in_words(order: ProjectImport, error: Exception) -> str:
    if isinstance(error, TransferRefused):
        return str(error)
    if isinstance(error, DomainError):
        return str(error)
    if isinstance(error, OSError) and error.errno in FULL:
        log.warning("import %s: %s", order.pk, error)
        return datastore.no_room(0)
    log.error("import %s broke down", order.pk, exc_info=error)
    return BROKE


def _make(order: ProjectImport, clock: Clock) -> None:
    """The project, or nothing."""
    draft, found = datastore.draft(order.key), None
    pieces.unmake(order)  # of an attempt that was killed
    if order.attempts > MOST_ATTEMPTS:
        with contextlib.suppress(TransferRefused, OSError):  # of an attempt that was killed before it had unpacked all there is nothing
            files.take_back(reading.manifest(draft / reading.UNPACKED), key=order.key)
        raise TransferRefused(KILLED)
    say = _Teller(order, clock)
    say("It is unpacked.")
    try:
        top = reading.unpack(0, draft, name=order.file_name)
        found = reading.manifest(top)
        facts.check(found, now=clock())
        reading.verify(top, found, check=_checker(found, clock()), seen=lambda done, count: say(f"{done} of {count} lists are checked."))
        made = making.project(order, top, found, now=clock())
    except BaseException:
        if found is not None:
            pieces.unmake(order)
            with contextlib.suppress(OSError):
                files.take_back(found, key=order.key)
        raise
    notify.changed(f"project-{made.pk}", "project")


class _Teller:
    """Says how far it is, once a second: pages look again each time."""

    def __init__(self, order: ProjectImport, clock: Clock) -> None:
        self._order, self._clock, self._next = order, clock, clock()

    def __call__(self, says: str, *more: str) -> None:
        if (now := self._clock()) >= self._next:
            self._next = now + EVERY
            _say(self._order, says, *more)
        elif more:
            self._order.save(update_fields=more)


def _checker(found: Manifest, now: dt.datetime) -> Callable[[Data | Run | Model], None]:
    there, sets = facts.known(found, now=now), facts.DataSets()

    def check(one: Data | Run | Model) -> None:
        if isinstance(one, Run):
            facts.of_run(one, there)
        elif isinstance(one, Model):
            model_facts.check(one, now=now)
        else:
            facts.of_data(one, now=now)
            facts.last_version(one)
            sets.check(one)

    return check


def _read_journals(order: ProjectImport, clock: Clock) -> None:
    """From the run on that comes next. What its script has logged by name is as it was in the end, whatever the journal says of before."""
    top = datastore.draft(order.key) / reading.UNPACKED
    by_folder = {files.folder_of_run(order.key, each.number): each for each in reading.manifest(top).runs}
    runs = TrainingRun.objects.filter(experiment__project=order.project_id, pk__gt=order.run, cursor__lines_of__isnull=False)
    numbers, say = list(runs.order_by("pk").values_list("pk", "folder")), _Teller(order, clock)
    for done, (number, folder) in enumerate(numbers, start=1):
        ingest.catch_up(number, now=clock(), final=True)
        _note(number, reading.run(top, by_folder[folder]))
        order.run = number
        say(f"The metrics of {done} of {len(numbers)} runs are read.", "run")


def _note(number: int, said: Run) -> None:
    run = TrainingRun.objects.select_related("logged_facts").filter(pk=number).first()
    if run is None:  # deleted meanwhile
        return
    facts_now = getattr(run, "logged_facts", None)
    before = set(facts_now.tags) if facts_now is not None else set()
    if said.parameters or said.tagged or before:
        ingest.note(run, Noted(said.parameters, said.tagged, tuple(before - set(said.tagged))))


def _say(order: ProjectImport, says: str, *more: str) -> None:
    order.says = says
    with transaction.atomic():
        order.save(update_fields=["says", *more])
        notify.changed(f"user-{order.created_by_id}", "imports")


def _end(order: ProjectImport, state: str, says: str, *, now: dt.datetime) -> None:
    """With nothing left of the archive."""
    order.state, order.ended_at = state, now
    with transaction.atomic():
        tombstones.of_uploads([order.key], by=order.created_by, now=now)
        _say(order, says, "state", "ended_at")
