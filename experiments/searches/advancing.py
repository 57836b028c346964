"""Takes searches on: sees what has ended, begins what comes next, and closes those that are over. Level-triggered: it may be called any
number of times, and by several processes at once."""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Sequence

from django.core.exceptions import PermissionDenied
from django.db import IntegrityError
from django.db.models import Q
from django.http import Http404

from experiments import access
from experiments.errors import DomainError
from experiments.models import Search, SearchTrial, User
from experiments.models.runs import RunState
from experiments.searches import choosing, results, specs
from experiments.searches.choosing import Tried
from experiments.searches.falling_behind import LEAST_ENDED, Course, behind
from experiments.searches.wishes import Wishes
from experiments.services import searches as verbs

log = logging.getLogger(__name__)
NOT_ANY_MORE = "{0} may not run experiments of this project any more."
DONE = "All of its trials have ended."
MOST_A_TURN = 20  # trials that are begun before other work has its turn
HOPELESS = 5  # trials that ended, and none came to a result
NO_SUCH_CURVE = 2  # trials that completed without the curve that is asked for
ALL_FAILED = "Its first {0} trials failed, so no more are begun: the last one, {1}, says why."
ALL_IN_VAIN = "Its first {0} trials came to no result, so no more are begun."
BEHIND = "it fell behind in its search: after {0} its best {1} is {2:.4g}, and half of the trials before it had {4:.4g} or {3} by then"
TIME_UP = "Its time of {0} minutes (maxRunTime) is up."


def advance_all(now: dt.datetime) -> None:
    """All that are not over, and those that somebody stopped, until their last trials have ended."""
    going = Q(ended_at=None) | Q(pk__in=SearchTrial.objects.filter(settled=False).values("search"))
    for search in Search.objects.filter(going).select_related("experiment__created_by").order_by("pk"):
        try:
            advance(search, now)
        except IntegrityError:
            log.info("search %s is taken on by another process", search.pk)
        except Exception:  # one that breaks must not hold up the others
            log.exception("search %s broke down", search.pk)


def advance(search: Search, now: dt.datetime) -> None:
    wanted, by = specs.parse(search.spec), search.experiment.created_by
    trials = list(search.trials.select_related("run__experiment", "run__version__definition", "run__version__bundle"))
    for trial in trials:
        if not trial.settled and not trial.run.is_live():
            course = results.course(trial.run, wanted) if wanted.early_stop and trial.run.state == RunState.COMPLETED else None
            verbs.settle_trial(trial, result=_result(trial, wanted), course=course)
    if search.ended_at is not None:
        return
    if wanted.early_stop:
        _end_early(trials, wanted, by=by, now=now)
    if wanted.minutes is not None and now >= search.created_at + dt.timedelta(minutes=wanted.minutes):
        verbs.stop_trials(search, by=by, why="the time of its search is up", now=now)
        over, why = True, TIME_UP.format(wanted.minutes)
    else:
        over, why = _begin(search, wanted, trials, by=by, now=now)
    if over and all(trial.settled for trial in trials):
        came = any(trial.result is not None for trial in trials)
        state = Search.State.FINISHED if came else Search.State.FAILED
        none = "" if came or not trials else f" {results.why_none(trials[-1].run, wanted)}"
        verbs.close_search(search, state=state, reason=f"{why}{none}", now=now)


def _begin(search: Search, wanted: Wishes, trials: list[SearchTrial], *, by: User, now: dt.datetime) -> tuple[bool, str]:
    """Begin as many as may run at once; whether there is nothing more to begin, and why."""
    if hopeless := _hopeless(trials, wanted):
        return True, hopeless
    for _ in range(MOST_A_TURN):
        running = sum(not trial.settled for trial in trials)
        if running >= wanted.at_once:
            break
        choice = choosing.choose(wanted, tried(trials), search.seed)
        if choice.values is None or not trials:
            return choice.over or not trials, DONE
        try:
            _check_person(search, by)
            trial = verbs.begin_trial(search, trials[-1].run, by=by, place=trials[-1].place + 1, choice=choice, now=now)
        except (Http404, PermissionDenied):
            return True, NOT_ANY_MORE.format(by.username)
        except DomainError as refused:
            return not running, str(refused)  # while others run there may be room for it later
        trials.append(trial)
    return False, ""


def _end_early(trials: Sequence[SearchTrial], wanted: Wishes, *, by: User, now: dt.datetime) -> None:
    """Those that train and have fallen behind."""
    completed = [Course(trial.course["by_epoch"], tuple(trial.course["best"])) for trial in trials if trial.course.get("best")]
    if len(completed) < LEAST_ENDED:
        return
    by_epoch = completed[0].by_epoch
    for trial in trials:
        if not trial.settled and not trial.ended_early and trial.run.state == RunState.RUNNING:
            course = results.course(trial.run, wanted, by_epoch=by_epoch)
            if (found := behind(course, completed, maximize=wanted.maximize)) is not None:
                points = f"{found.points} {'epochs' if by_epoch else 'values'}"
                side = "more" if wanted.maximize else "less"
                why = BEHIND.format(points, wanted.metric, found.value, side, found.median)
                verbs.end_early(trial, by=by, why=why, now=now)


def _check_person(search: Search, by: User) -> None:
    """That whoever began it may still run it. Raises Http404 or PermissionDenied."""
    if not by.is_active:
        raise PermissionDenied
    access.experiment(by, search.experiment_id, need="write")


def _hopeless(trials: Sequence[SearchTrial], wanted: Wishes) -> str:
    """Why no more are begun where the code is broken, or tells nothing of the metric, whatever values it gets; else ""."""
    ended = [trial for trial in trials if trial.settled]
    if any(trial.result is not None for trial in ended):
        return ""
    completed = [trial.run for trial in ended if trial.run.state == RunState.COMPLETED]
    if wanted.from_curves and len(completed) >= NO_SUCH_CURVE and not any(results.curve(run, wanted) for run in completed):
        return ALL_IN_VAIN.format(len(ended))
    if len(ended) < HOPELESS:
        return ""
    if all(trial.run.state == RunState.FAILED for trial in ended):
        return ALL_FAILED.format(len(trials), f"#{trials[-1].run_id}")
    return ALL_IN_VAIN.format(len(ended))


def _result(trial: SearchTrial, wanted: Wishes) -> float | None:
    if trial.run.state != RunState.COMPLETED and not (trial.ended_early and trial.run.state == RunState.STOPPED):
        return None
    return results.result(trial.run, wanted)


def tried(trials: Sequence[SearchTrial]) -> list[Tried]:
    """By their places; one whose run was deleted came to nothing."""
    there = {trial.place: Tried(trial.values, trial.settled, trial.result) for trial in trials}
    return [there.get(place, Tried({}, True)) for place in range(max(there, default=-1) + 1)]
