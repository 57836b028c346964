"""Holds as many pilots as was decided: the only writer of Pilot, and of what PilotPool says of how things are.

A row is made before the engine is asked, and the allocation has a name that the row tells: so a studio that ends in between finds it again
and asks for none twice. What the engine says of an allocation is the truth about it: once that has ended, nothing of its machine is left.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Collection, Mapping, Sequence

from django.db import transaction

from experiments.cluster import environments, fleet, joining, leases, machine_pools, slot_health, snapshot
from experiments.cluster.pilot_facts import LIVE, PROVIDERS, decided, need, notice_s, used
from experiments.cluster.providers import EngineProblem, Lease, Order, Provider, named
from experiments.live import notify
from experiments.models import Installation, Node, Pilot, PilotPool, Slot
from training_runtime.scheduling.capacity import Decision

log = logging.getLogger(__name__)
UNSURE = dt.timedelta(seconds=90)  # for which an allocation may have been asked for, with nothing heard of it
ARRIVES = dt.timedelta(minutes=5)  # within which a pilot joins once its allocation has begun
LEAVES = dt.timedelta(seconds=90)  # for one that was told to end, before it is ended
TOKEN_WAITS = dt.timedelta(days=30)  # in the engine's queue
KEPT = 200  # ended pilots of a pool, for its history
Phase = Pilot.Phase


def look(now: dt.datetime) -> None:
    """See how all pilots are, and ask for more or give some back."""
    for name, provider in PROVIDERS.items():
        pools = list(PilotPool.objects.filter(provider=name))
        if pools:
            _look(pools, provider, now)


def _look(pools: Sequence[PilotPool], provider: Provider, now: dt.datetime) -> None:
    rows = list(Pilot.objects.filter(pool__in=pools, phase__in=LIVE).select_related("pool"))
    try:
        found = provider.leases()  # after the rows: whatever they name is known to it
    except EngineProblem as problem:
        for pool in pools:
            _say(pool, [f"{pool.get_provider_display()} does not answer, so nothing is decided: {problem}"], now)
        return
    for row in rows:
        _follow(row, found, provider, now)
    _cancel_strangers(found, provider)
    for pool in pools:
        decision = _decide(pool, now)
        for row in Pilot.objects.filter(pool=pool, phase=Phase.LEAVING, node_name__in=decision.release):
            _release(row, provider, now)


# --- how they are -------------------------------------------------------------------------------------------------------------------------


def _follow(row: Pilot, found: Mapping[str, Lease], provider: Provider, now: dt.datetime) -> None:
    """Take in what the engine says of it."""
    lease = found.get(row.job) if row.job else named(list(found.values()), name_of(row))
    if lease is None and not row.job:
        if now - row.made_at > UNSURE:
            _end(row, "It was never asked for.", now=now, failed=True)
        return
    if lease is None or lease.standing == "ended":
        _has_ended(row, lease, provider, now)
        return
    before = row.phase, row.words, row.job
    row.job, row.words = lease.id, lease.words[:1000]
    if lease.standing == "running":
        row.began_at = row.began_at or now
        row.ends_at = _end_of(row.began_at, lease, now) or row.ends_at
    if row.phase in (Phase.ASKED, Phase.WAITING, Phase.STARTING):
        row.phase = _phase(row, lease, now)
    if lease.standing == "ending":
        row.phase = Phase.ENDING
    found_so = {name: getattr(row, name) for name in ("phase", "words", "job", "ends_at", "began_at", "joined_at")}
    if not Pilot.objects.filter(pk=row.pk, phase=before[0]).update(**found_so):
        return  # something was decided meanwhile
    _hurry(row, provider, now)
    if before != (row.phase, row.words, row.job):
        notify.changed("cluster", "pilots")


def _end_of(began_at: dt.datetime, lease: Lease, now: dt.datetime) -> dt.datetime | None:
    if lease.left_s is not None:
        return now + dt.timedelta(seconds=lease.left_s)
    return began_at + dt.timedelta(seconds=lease.lasts_s) if lease.lasts_s is not None else None


def _phase(row: Pilot, lease: Lease, now: dt.datetime) -> Phase:
    if lease.standing == "waiting":
        return Phase.WAITING
    node = Node.objects.filter(name=row.node_name, joined=True).first()
    if node is None or node.last_seen_at is None or node.last_seen_at < row.made_at or snapshot.is_silent(node, now):
        return Phase.STARTING
    row.joined_at = now
    PilotPool.objects.filter(pk=row.pool_id).update(kind=machine_pools.kind(node)[:1000])
    return Phase.HERE


def _hurry(row: Pilot, provider: Provider, now: dt.datetime) -> None:
    """One that does not join, or that does not end, is ended."""
    late = row.phase == Phase.STARTING and row.began_at is not None and now - row.began_at > ARRIVES
    stays = row.phase == Phase.ENDING and row.released_at is not None and now - row.released_at > LEAVES
    if late:
        Pilot.objects.filter(pk=row.pk).update(phase=Phase.ENDING, leave_reason="it did not join", released_at=now)
        minutes = ARRIVES.total_seconds() / 60
        _note_failure(row.pool, f"job {row.job} ({row.words}) has run for {minutes:.0f} min and has not called {row.pool.studio}", now)
    if late or stays:
        _ask_back(row, provider, hurry=True)


def _has_ended(row: Pilot, lease: Lease | None, provider: Provider, now: dt.datetime) -> None:
    """Its allocation is over, so none of its processes is left: its runs need wait for nothing."""
    words = provider.ending(row.job) or (lease.words if lease is not None else "")
    said = f"{row.pool.get_provider_display()} says: {words}" if words else f"{row.pool.get_provider_display()} knows no more of it."
    unserved = lease is not None and lease.unserved
    _end(row, said, now=now, failed=row.joined_at is None and row.released_at is None and not unserved)


def _end(row: Pilot, words: str, *, now: dt.datetime, failed: bool) -> None:
    there = Pilot.objects.filter(pk=row.pk).exclude(phase=Phase.ENDED)
    if not there.exists():  # another process has said so
        return
    forget_machine(row.node_name, now=now, reason=f"The allocation of {row.node_name} has ended.")
    if not there.update(phase=Phase.ENDED, ended_at=now, words=words[:1000]):
        return
    if failed:
        _note_failure(row.pool, words, now)
    log.info("Pilot %s of pool %s has ended: %s", row.node_name, row.pool.name, words)
    kept = Pilot.objects.filter(pool=row.pool_id, phase=Phase.ENDED).order_by("-pk").values_list("pk", flat=True)[:KEPT]
    Pilot.objects.filter(pool=row.pool_id, phase=Phase.ENDED).exclude(pk__in=list(kept)).delete()
    notify.changed("cluster", "pilots", "nodes")


def forget_machine(name: str, *, now: dt.datetime, reason: str) -> None:
    """The machine of that name is no more, its token neither; the next of this name is another one."""
    joining.end(name)
    node = Node.objects.filter(name=name, joined=True).first()
    if node is None:
        return
    leases.take_leave(name, now=now, reason=reason)
    environments.forget(node)
    for slot in Slot.objects.filter(node=node):
        slot_health.put_back(slot, now=now)
    fleet.drain_node(node, draining=False)
    fleet.remove_node(node, now=now)


# --- what is done about it ----------------------------------------------------------------------------------------------------------------


def _decide(pool: PilotPool, now: dt.datetime) -> Decision:
    """Decide, and write it down: in one transaction that no plan overlaps, so that nothing is granted of what is to be given back."""
    more = need(pool, now=now)
    with transaction.atomic():
        snapshot.lock_rules()
        pool = PilotPool.objects.select_for_update().get(pk=pool.pk)
        rows = list(Pilot.objects.filter(pool=pool, phase__in=LIVE))
        _note_use(pool, rows)
        decision = decided(pool, rows, more, now=now)
        for row in rows:
            _apply(row, decision, now)
        if decision.in_vain:
            _note_failure(pool, "pilots stood idle although runs waited.", now)
        _say(pool, decision.words, now)
        reason = decision.words[1] if len(decision.words) > 1 else ""
        fresh = [_new_row(pool, reason, now) for _ in range(decision.start)]
    for row in fresh:
        _ask_for(row, PROVIDERS[pool.provider], now)
    return decision


def _note_use(pool: PilotPool, rows: Collection[Pilot]) -> None:
    """Those of which a run has slots are good for something, and so are the next."""
    in_use = used(rows)
    for row in rows:
        if in_use[row.node_name] and not row.useful:
            row.useful = True
            row.save(update_fields=["useful"])
            pool.failures, pool.failed_at, pool.problem = 0, None, ""
            pool.save(update_fields=["failures", "failed_at", "problem"])


def _apply(row: Pilot, decision: Decision, now: dt.datetime) -> None:
    idle = row.node_name in decision.idle
    row.idle_since = (row.idle_since or now) if idle else None
    Pilot.objects.filter(pk=row.pk).update(idle_since=row.idle_since)
    if row.node_name in decision.leave:
        leaving = {"phase": Phase.LEAVING, "leave_reason": decision.leave[row.node_name][:500]}
        Pilot.objects.filter(pk=row.pk).exclude(phase__in=(Phase.ENDING, Phase.ENDED)).update(**leaving)
        node = Node.objects.filter(name=row.node_name, joined=True, removed_at=None).first()
        if node is not None:
            fleet.drain_node(node, draining=True)
        notify.nudge_schedule()


def _new_row(pool: PilotPool, reason: str, now: dt.datetime) -> Pilot:
    return Pilot.objects.create(pool=pool, node_name=_free_name(pool), made_at=now, reason=reason[:500])


def _free_name(pool: PilotPool) -> str:
    """Names are used again, so that machines which have been are as many as pilots that there may be at once, and no more."""
    live = set(Pilot.objects.filter(phase__in=LIVE).values_list("node_name", flat=True))
    own = set(Pilot.objects.filter(pool=pool).values_list("node_name", flat=True))
    taken = live | set(Node.objects.exclude(name__in=own).values_list("name", flat=True))
    number = 1
    while f"{pool.name}-{number}" in taken:
        number += 1
    return f"{pool.name}-{number}"


def _ask_for(row: Pilot, provider: Provider, now: dt.datetime) -> None:
    pool = row.pool
    _, token = joining.make(row.node_name, slots=pool.slots, by=None, now=now, waits=TOKEN_WAITS)
    try:
        order = Order(
            name=name_of(row),
            node=row.node_name,
            studio=pool.studio,
            token=token,
            walltime_minutes=pool.walltime_minutes,
            notice_s=max(10, notice_s(pool) // 2),
            slots=pool.slots,
            options=provider.check(pool.options),
        )
        job = provider.hold(order)
    except (EngineProblem, ValueError) as problem:
        _end(row, f"{pool.get_provider_display()} refused: {problem}", now=now, failed=True)
        return
    Pilot.objects.filter(pk=row.pk).update(job=job[:128], phase=Phase.WAITING)
    log.info("Pilot %s of pool %s was asked for: job %s. %s", row.node_name, pool.name, job, row.reason)


def _release(row: Pilot, provider: Provider, now: dt.datetime) -> None:
    Pilot.objects.filter(pk=row.pk).update(phase=Phase.ENDING, released_at=now)
    _ask_back(row, provider, hurry=False)


def _ask_back(row: Pilot, provider: Provider, *, hurry: bool) -> None:
    try:
        provider.release(row.job, begun=row.began_at is not None, hurry=hurry)
    except EngineProblem as problem:  # it is tried again
        log.warning("Pilot %s cannot be given back now: %s", row.node_name, problem)


def _cancel_strangers(found: Mapping[str, Lease], provider: Provider) -> None:
    """Allocations with a name of this studio's which it knows nothing of: its database was put back from a copy, or a pool is gone."""
    prefix = _prefix()
    known = {f"{prefix}{node}-{pk}" for node, pk in Pilot.objects.filter(phase__in=LIVE).values_list("node_name", "pk")}
    for lease in found.values():
        if lease.name.startswith(prefix) and lease.name not in known and lease.standing in ("waiting", "running"):
            log.warning("Job %s (%s) is a pilot that this studio knows nothing of: it is ended.", lease.id, lease.name)
            try:
                provider.release(lease.id, begun=lease.standing == "running", hurry=False)
            except EngineProblem as problem:  # it is tried again
                log.warning("Job %s cannot be ended now: %s", lease.id, problem)


def name_of(row: Pilot) -> str:
    """Of its allocation: another studio's have other names, and so have earlier ones of the same machine."""
    return f"{_prefix()}{row.node_name}-{row.pk}"


def _prefix() -> str:
    key = Installation.objects.values_list("key", flat=True).first()
    return f"edt-{str(key)[:8]}-"


def _note_failure(pool: PilotPool, words: str, now: dt.datetime) -> None:
    pool.refresh_from_db(fields=["failures"])
    pool.failures, pool.failed_at, pool.problem = pool.failures + 1, now, words[:1000]
    pool.save(update_fields=["failures", "failed_at", "problem"])
    log.warning("Pool %s: %s", pool.name, words)


def _say(pool: PilotPool, words: Sequence[str], now: dt.datetime) -> None:
    news = list(words) != pool.words
    pool.words, pool.looked_at = list(words), now
    pool.save(update_fields=["words", "looked_at"])
    if news:
        notify.changed("cluster", "pilots")
