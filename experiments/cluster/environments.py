"""Environments of runs: which are needed on which machine, what machines report about their builds, and when one is deleted. The only
writer of Environment and EnvironmentBuild.

A run is planned only for machines where its environment is ready (`readiness.decide`), so it holds no slot while one is built. Rows are
written under the lock of the rules row, as plans are: what a plan relies on is not collected at the same time.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from django.conf import settings
from django.db import transaction
from django.db.models import F, Q, QuerySet

from experiments.cluster import isolation
from experiments.live import notify
from experiments.models import ClusterRules, DefinitionVersion, Environment, EnvironmentBuild, NamedVersion, Node, RunState, TrainingRun
from experiments.models.runs import LIVE
from experiments.runs import states
from training_runtime.environments import base
from training_runtime.environments.readiness import Build, Verdict, decide
from training_runtime.protocol import EnvironmentSeen, WantedEnvironment

log = logging.getLogger(__name__)
State = EnvironmentBuild.State
LAST_LINES = 60
USED_AGAIN = dt.timedelta(hours=1)  # how exact `used_at` is
NO_RUN = 0  # what is built in advance waits for none; runs are numbered from 1
NOT_READY = "-"  # the folder of an environment that is not there: the host waits for it


# --- what runs wait for
# -------------------------------------------------------------------------------------------------------------------------


def want(*, nodes: Iterable[Node], now: dt.datetime) -> None:
    """Create the builds that live runs need on these machines (those that are online), and fail runs whose environment cannot be built.
    Called in the transaction of a plan, before it."""
    runs = _needy()
    if not runs:
        return
    there = [node for node in nodes if node.base]
    alike: defaultdict[tuple[str, int], list[TrainingRun]] = defaultdict(list)
    for run in runs:
        for node in _candidates_for(run, there):
            alike[run.version.requirements_key, node.pk].append(run)
    by_id = {node.pk: node for node in there}
    for (_, pk), some in alike.items():
        _want_one(some, by_id[pk], now=now)
    found = verdicts(nodes=there)
    for run in runs:
        if run.head_node_id is None and run.state == RunState.QUEUED and run.pk in found and found[run.pk].fails:
            _fail(run, found[run.pk].fails, now=now)


def _want_one(runs: list[TrainingRun], node: Node, *, now: dt.datetime) -> None:
    """Runs with the same requirements, on one machine."""
    version = runs[0].version
    build, made = _build_on(node, version.requirements_key, version.requirements, now=now)
    if made or _ask_again(build, max(run.submitted_at for run in runs), now):
        notify.nudge_node(node.name)
    elif build.state == State.READY and (build.used_at is None or now - build.used_at > USED_AGAIN):
        EnvironmentBuild.objects.filter(pk=build.pk).update(used_at=now)


def _build_on(node: Node, key: str, text: str, *, now: dt.datetime) -> tuple[EnvironmentBuild, bool]:
    """The row of it, and whether it is new."""
    environment, _ = Environment.objects.get_or_create(
        requirements_key=key,
        base_key=node.base,
        defaults={"requirements": text, "base_words": node.base_words, "created_at": now},
    )
    return EnvironmentBuild.objects.get_or_create(environment=environment, node=node, defaults={"asked_at": now})


def build_now(named: NamedVersion, *, now: dt.datetime) -> int:
    """Have the environment built, ahead of any run, on each machine that does not have it. Returns on how many."""
    asked = 0
    with transaction.atomic():
        _lock()
        for node in Node.objects.filter(removed_at=None).exclude(base="").order_by("pk"):
            build, made = _build_on(node, named.requirements_key, named.requirements, now=now)
            if made or _ask_again(build, now, now) or build.state in (State.WANTED, State.BUILDING):
                EnvironmentBuild.objects.filter(pk=build.pk).update(in_advance=True)
                notify.nudge_node(node.name)
                asked += 1
    return asked


def _ask_again(build: EnvironmentBuild, submitted_at: dt.datetime, now: dt.datetime) -> bool:
    """A build that failed before the newest run was asked for is tried once more; one that is being deleted is built anew."""
    if build.state == State.DROPPED:
        pass
    elif build.state != State.FAILED or build.ended_at is None or submitted_at <= build.ended_at:
        return False
    build.state, build.attempt, build.asked_at, build.problem, build.detail = State.WANTED, build.attempt + 1, now, "", ""
    build.in_advance = False
    build.save(update_fields=["state", "attempt", "asked_at", "problem", "detail", "in_advance"])
    return True


def _fail(run: TrainingRun, why: str, *, now: dt.datetime) -> None:
    build = _builds_of(run).filter(state=State.FAILED).order_by("-ended_at").first()
    last = "\n".join(build.log.splitlines()[-LAST_LINES:]) if build else ""
    if states.transition(run, RunState.FAILED, reason=why, now=now):
        TrainingRun.objects.filter(pk=run.pk).update(error_message=why, error_traceback=last)


def verdicts(*, nodes: Iterable[Node]) -> dict[int, Verdict]:
    """For each live run with requirements: on which of these machines its environment is ready, or why it is on none. Reads only."""
    runs = _needy()
    if not runs:
        return {}
    there = {node.pk: node for node in nodes if node.base}
    builds: defaultdict[str, dict[int, Build]] = defaultdict(dict)
    keys = {run.version.requirements_key for run in runs}
    for each in EnvironmentBuild.objects.filter(environment__requirements_key__in=keys, node__in=there).select_related("environment"):
        if each.environment.base_key == there[each.node_id].base:
            state = "wanted" if each.state == State.DROPPED else each.state
            builds[each.environment.requirements_key][each.node_id] = Build(state, each.detail, each.problem)  # type: ignore[arg-type]
    wanted = Build("wanted")
    return {
        run.pk: decide(
            {node.name: builds[run.version.requirements_key].get(node.pk, wanted) for node in _candidates_for(run, there.values())}
        )
        for run in runs
    }


def _needy() -> list[TrainingRun]:
    found = TrainingRun.objects.filter(state__in=LIVE, stop_requested_at=None).exclude(version__requirements_key="")
    return list(found.select_related("version", "experiment").order_by("pk"))


def _candidates_for(run: TrainingRun, nodes: Iterable[Node]) -> list[Node]:
    """The machines that could run it, by the devices they have."""
    device = run.version.device
    return [node for node in nodes if node.pk == run.head_node_id or device not in ("cpu", "gpu") or (device == "gpu") == bool(node.gpus)]


def _builds_of(run: TrainingRun) -> QuerySet[EnvironmentBuild]:
    return EnvironmentBuild.objects.filter(environment__requirements_key=run.version.requirements_key)


# --- machines
# ------------------------------------------------------------------------------------------------------------------------------------


def folder_of(run: TrainingRun, node: Node) -> str:
    """What the node calls the environment of the run; empty where it needs none."""
    if not run.version.requirements_key:
        return ""
    build = _builds_of(run).filter(node=node, environment__base_key=node.base, state=State.READY).first()
    return build.folder if build is not None and build.folder else NOT_READY


def desired(node: Node, doors: isolation.Doors) -> tuple[tuple[WantedEnvironment, ...], tuple[str, ...]]:
    """What the node is to build or to keep in readiness for live runs, or to build in advance, and which folders it is to delete."""
    waiting: dict[str, int] = {}
    for run in _needy():
        waiting.setdefault(run.version.requirements_key, run.pk)
    rows = EnvironmentBuild.objects.filter(node=node).select_related("environment")
    asked = Q(environment__requirements_key__in=waiting) | Q(in_advance=True, state__in=(State.WANTED, State.BUILDING))
    needed = rows.filter(asked, environment__base_key=node.base).exclude(state=State.DROPPED)
    if not doors.of(node).may_run:  # building runs code of packages that people choose; administrators answer for theirs
        needed = needed.filter(Q(state=State.READY) | Q(in_advance=True))
    found = tuple(_wish(build, waiting.get(build.environment.requirements_key, NO_RUN)) for build in needed)
    kept = {folder for folder in rows.exclude(state=State.DROPPED).values_list("folder", flat=True) if folder}
    drop = {folder for folder in rows.filter(state=State.DROPPED).values_list("folder", flat=True) if folder} - kept
    return found, tuple(sorted(drop))


def _wish(build: EnvironmentBuild, run: int) -> WantedEnvironment:
    environment = build.environment
    prefer = ""
    if not environment.lock:
        others = Environment.objects.filter(requirements_key=environment.requirements_key).exclude(lock="")
        prefer = others.order_by("-resolved_at").values_list("lock", flat=True).first() or ""
    return WantedEnvironment(
        key=environment.key,
        requirements=environment.requirements,
        lock=environment.lock,
        prefer=prefer,
        attempt=build.attempt,
        run=run,
        known=build.state in (State.READY, State.FAILED),
    )


def take_in(node: Node, seen: Iterable[EnvironmentSeen] | None, folders: Collection[str] | None, *, now: dt.datetime) -> None:
    """Record what the node reports about its environments."""
    if seen is None or folders is None:
        return
    rows = EnvironmentBuild.objects.filter(node=node).select_related("environment")
    by_key = {build.environment.key: build for build in rows} if rows else {}
    news = False
    for each in seen:
        build = by_key.get(each.key)
        if build is not None and each.attempt >= build.attempt and build.state != State.DROPPED:
            news |= _note(build, each, now=now)
    gone = [build.pk for build in by_key.values() if build.state == State.DROPPED and build.folder not in folders]
    if gone:  # compared once more: a run may have asked for it at this moment
        EnvironmentBuild.objects.filter(pk__in=gone, state=State.DROPPED).delete()
    if news:
        notify.nudge_schedule()
        notify.changed("cluster", "jobs", "environments")


def forget(node: Node) -> None:
    """Delete the rows of all builds on a machine that is gone."""
    EnvironmentBuild.objects.filter(node=node).delete()


def _note(build: EnvironmentBuild, seen: EnvironmentSeen, *, now: dt.datetime) -> bool:
    # Compared and swapped: meanwhile a plan may ask for it again, or it may be collected, and then what was said of before is old.
    now_so = EnvironmentBuild.objects.filter(pk=build.pk, attempt=build.attempt, state=build.state)
    if seen.state == "ready" and seen.lock and not _keep_lock(build.environment, seen.lock, now=now):
        # Another machine with this base was a moment faster, and what it chose counts: this one builds that.
        again = now_so.update(state=State.WANTED, attempt=build.attempt + 1, detail="another machine has resolved it")
        return bool(again)
    said: dict[str, object] = {"state": seen.state, "detail": seen.detail[:200], "folder": seen.folder, "problem": seen.problem}
    if said == {name: getattr(build, name) for name in said}:
        return False
    if seen.state in ("ready", "failed"):
        said |= {"size_bytes": seen.size_bytes, "seconds": seen.seconds, "ended_at": now, "log": seen.log or build.log}
    if not now_so.update(**said):
        return False
    words = seen.problem or seen.detail or seen.folder
    log.info("Environment %s on node %d is %s: %s", build.environment.key[:12], build.node_id, seen.state, words)
    return True


def _keep_lock(environment: Environment, lock: str, *, now: dt.datetime) -> bool:
    """Whether this is the environment's lock. The first lock reported becomes it."""
    if environment.lock:
        return environment.lock == lock
    packages = [list(each) for each in base.packages(lock)]
    kept = Environment.objects.filter(pk=environment.pk, lock="").update(lock=lock, packages=packages, resolved_at=now)
    environment.refresh_from_db()
    return bool(kept) or environment.lock == lock


# --- collecting
# ----------------------------------------------------------------------------------------------------------------------------------


def collect(now: dt.datetime) -> int:
    """Mark what no live run needs and nothing has used for EDT_ENVIRONMENT_DAYS, or what is over EDT_ENVIRONMENT_BYTES of a machine, the
    longest unused first; how many. The machines delete it when they hear of it."""
    with transaction.atomic():
        _lock()
        marked = 0
        for builds in _by_machine().values():
            marked += drop(_too_many(builds, now))
        live = TrainingRun.objects.filter(state__in=LIVE).values("version__requirements_key")
        cancelled = EnvironmentBuild.objects.filter(state__in=(State.WANTED, State.BUILDING), folder="")
        in_advance = Q(in_advance=True, environment__base_key=F("node__base"))
        cancelled.exclude(in_advance).exclude(environment__requirements_key__in=live).delete()
        asked_for = DefinitionVersion.objects.exclude(requirements_key="").values("requirements_key")
        offered = NamedVersion.objects.values("requirements_key")
        Environment.objects.filter(builds=None).exclude(requirements_key__in=asked_for).exclude(requirements_key__in=offered).delete()
    return marked


def drop(builds: Iterable[EnvironmentBuild]) -> int:
    """Mark these for deletion, but for those that a live run needs. Under the lock of the rules row: no run is planned with one of them at
    this moment, and from here on each of them counts as not ready."""
    used = _used_folders()
    found = [build.pk for build in builds if (build.node_id, build.folder) not in used and build.folder]
    done = EnvironmentBuild.objects.filter(pk__in=found, state=State.READY).update(state=State.DROPPED)
    for name in set(Node.objects.filter(environments__in=found).values_list("name", flat=True)) if done else ():
        notify.nudge_node(name)
    return done


def drop_environment(environment: Environment) -> int:
    """Mark the environment for deletion on every machine. Returns how many builds that are."""
    with transaction.atomic():
        _lock()
        return drop(environment.builds.filter(state=State.READY))


def _too_many(builds: list[EnvironmentBuild], now: dt.datetime) -> list[EnvironmentBuild]:
    """The builds to delete on one machine, the longest unused first."""
    old = now - dt.timedelta(days=settings.EDT_ENVIRONMENT_DAYS)
    sizes = {build.folder: build.size_bytes for build in builds}
    total, found, used = sum(sizes.values()), [], _used_folders()
    for build in sorted(builds, key=_last_use):
        if (build.node_id, build.folder) in used:
            continue
        if _last_use(build) < old or total > settings.EDT_ENVIRONMENT_BYTES:
            found.append(build)
            total -= sizes.pop(build.folder, 0)
    return found


def _last_use(build: EnvironmentBuild) -> dt.datetime:
    return max(filter(None, (build.used_at, build.ended_at, build.asked_at)))


def _by_machine() -> Mapping[int, list[EnvironmentBuild]]:
    found: defaultdict[int, list[EnvironmentBuild]] = defaultdict(list)
    for build in EnvironmentBuild.objects.filter(state=State.READY):
        found[build.node_id].append(build)
    return found


def _used_folders() -> set[tuple[int, str]]:
    """(machine, folder) of what live runs need, whichever of the environments with that lock they name."""
    keys = TrainingRun.objects.filter(state__in=LIVE).exclude(version__requirements_key="").values("version__requirements_key")
    found = EnvironmentBuild.objects.filter(environment__requirements_key__in=keys)
    return set(found.values_list("node_id", "folder"))


def _lock() -> None:
    ClusterRules.current()
    ClusterRules.objects.select_for_update().get(pk=1)
