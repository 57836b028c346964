"""How many machines to hold of an engine that lends them (Slurm, Ray, Kubernetes): facts in, decision and reasons out. Pure, standard
library only.

A *pilot* is an allocation of that engine in which `edt-node join` runs, so that it is a machine like any other while it lasts. How many
more would help is no rule of thumb: the planner itself is asked what it would do with so many machines more (`needed`), so quotas, kinds,
smallest sizes and what cannot be spread count as they will. `decide` then says how many to ask for, which to leave alone so that they can
be given back, and which to give back, within what an administrator set (`Policy`).

It does not flap: what is idle goes only after a while, never in a moment in which more would help, and where pilots stood idle although
runs waited, or failed to start, the next attempt waits longer each time (`pause_s`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from training_runtime.protocol import Device
from training_runtime.scheduling.facts import Rules, RunFacts, SlotFacts
from training_runtime.scheduling.plan import allocate

Phase = Literal["waiting", "starting", "here", "leaving", "ending"]
FIRST_PAUSE_S = 15.0
LONGEST_PAUSE_S = 3600.0
SETTLED_S = 20.0  # for which a pilot may be here without slots in use before it counts as one that nobody can use
WORDS_RUNS = 4  # named in a sentence


@dataclass(frozen=True)
class Policy:
    """`least`, `most`: pilots. `idle_s`: how long one is kept that nobody uses. `notice_s`: so long before an allocation ends its pilot
    takes nothing new. `engine`: what lends them, in words."""

    least: int
    most: int
    idle_s: float
    notice_s: float
    engine: str = "Slurm"


@dataclass(frozen=True)
class Pilot:
    """`phase`: `waiting` in the engine's queue, `starting` (it runs and has not joined yet), `here`, `leaving` (it takes nothing new),
    `ending` (given back, and not gone yet). `granted`: slots of it that runs hold or have yet to leave. `building`: an
    environment is built there, so runs will come. `idle_since`: since when nobody
    needs it. `left_s`: until its allocation ends, where that is known. `since`: when it was asked for."""

    name: str
    phase: Phase
    granted: int = 0
    building: bool = False
    idle_since: float | None = None
    left_s: float | None = None
    since: float = 0.0


@dataclass(frozen=True)
class Shape:
    """What a pilot brings. `kind`: of machine (`SlotFacts.kind`); empty where none has been here yet, which is taken for any."""

    slots: int
    device: Device
    kind: str = ""


@dataclass(frozen=True)
class Need:
    """`pilots`: how many beside those that are here would help, those that are on their way counted in. `runs`: the names of those that
    would begin or grow with them."""

    pilots: int = 0
    runs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Trouble:
    """Attempts in a row that came to nothing, when the last one did, and why in the engine's own words."""

    failures: int = 0
    failed_at: float = 0.0
    words: str = ""


@dataclass(frozen=True)
class Decision:
    """`start`: how many to ask for. `leave`: which take nothing new from now on, `release`: which are given back now; each with the reason.
    `idle`: nobody needs these. `in_vain`: of those that leave, the ones that stood idle although runs waited. `words`: all in sentences."""

    start: int = 0
    leave: Mapping[str, str] = field(default_factory=dict)
    release: Mapping[str, str] = field(default_factory=dict)
    idle: frozenset[str] = frozenset()
    in_vain: frozenset[str] = frozenset()
    words: tuple[str, ...] = ()


def pause_s(failures: int) -> float:
    """How long to wait after so many attempts in a row that came to nothing."""
    return 0.0 if failures <= 0 else float(min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(failures - 1, 20)))


def with_machines(
    slots: Sequence[SlotFacts], runs: Sequence[RunFacts], shape: Shape, names: Sequence[str]
) -> tuple[list[SlotFacts], list[RunFacts]]:
    """The facts as they would be with machines of these names there: their slots have numbers below all that there are, and they build
    every environment and keep people apart."""
    first = min((0, *(slot.id for slot in slots))) - 1
    more = [
        SlotFacts(id=first - machine * shape.slots - index, node=name, device=shape.device, kind=shape.kind)
        for machine, name in enumerate(names)
        for index in range(shape.slots)
    ]
    return [*slots, *more], [_could_use(run, frozenset(names)) for run in runs]


def _could_use(run: RunFacts, nodes: frozenset[str]) -> RunFacts:
    if run.ready_in is None and run.isolated_in is None:
        return run
    ready = run.ready_in | nodes if run.ready_in is not None else None
    return dataclasses.replace(run, ready_in=ready, isolated_in=run.isolated_in | nodes if run.isolated_in is not None else None)


def needed(slots: Sequence[SlotFacts], runs: Sequence[RunFacts], *, now: float, rules: Rules, shape: Shape, most: int, grow: bool) -> Need:
    """With how many machines of this shape more, `most` at most, as many runs as possible have slots; with `grow`, as many slots as runs
    can use are used."""
    if most <= 0 or not runs:
        return Need()
    found: dict[int, Mapping[int, frozenset[int]]] = {}

    def score(count: int) -> tuple[int, int]:
        there, able = with_machines(slots, runs, shape, [f"\x7f{number}" for number in range(count)])
        found[count], _ = allocate(there, able, now=now, rules=rules)
        sizes = [len(held) for held in found[count].values()]
        return sum(size > 0 for size in sizes), sum(sizes) if grow else 0

    best, low, high = score(most), 0, most
    if score(0) >= best:
        return Need()
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if score(middle) >= best else (middle, high)
    gain = [run.name for run in runs if len(found[high].get(run.id, ())) > len(found[0].get(run.id, ()))]
    return Need(high, tuple(gain))


def decide(policy: Policy, pilots: Collection[Pilot], *, need: Need, trouble: Trouble = Trouble(), now: float) -> Decision:
    """What to do now. Asked again with its own answer carried out, and nothing else changed, it does nothing until time passes."""
    ends = {each.name: f"its allocation ends in {_time(each.left_s)}" for each in _stay(pilots) if _is_ending(each, policy)}
    ends |= _too_many(policy, [each for each in _stay(pilots) if each.name not in ends])
    stay = [each for each in _stay(pilots) if each.name not in ends]
    coming = [each for each in stay if each.phase in ("waiting", "starting")]
    idle = _idle(stay, coming, need)
    spare = max(0, len(stay) - policy.least)
    leave, in_vain = _too_long(policy, stay, idle, need, spare, now=now)
    useless = [each for each in stay if _is_useless(each, now)]
    wanted = max(need.pilots - len(coming) if not useless else 0, policy.least - len(stay), 0)
    free = max(0, policy.most - len(pilots))
    wait_s = max(0.0, trouble.failed_at + pause_s(trouble.failures) - now) if trouble.failures else 0.0
    start = 0 if wait_s or leave else min(wanted, free)
    release = {each.name: "no run is on it" for each in pilots if each.phase == "leaving" and not each.granted}
    words = (
        _standing(policy, pilots),
        *_why_start(policy, start, wanted, need, wait_s, trouble),
        *([f"{useless[0].name} is here and nobody can use it, so another one would not help."] if useless and need.pilots else []),
        *(f"{name} is given back: {why}." for name, why in sorted({**ends, **leave}.items())),
        *(f"{each.name} is given back once its runs have moved: {each.granted} of its slots are held." for each in _moving(pilots)),
    )
    return Decision(start, {**ends, **leave}, release, idle, in_vain, words)


def _stay(pilots: Collection[Pilot]) -> list[Pilot]:
    return sorted((each for each in pilots if each.phase in ("waiting", "starting", "here")), key=lambda each: (each.since, each.name))


def _moving(pilots: Collection[Pilot]) -> list[Pilot]:
    return sorted((each for each in pilots if each.phase == "leaving" and each.granted), key=lambda each: each.name)


def _is_ending(pilot: Pilot, policy: Policy) -> bool:
    return pilot.phase != "waiting" and pilot.left_s is not None and pilot.left_s < policy.notice_s


def _too_many(policy: Policy, stay: Sequence[Pilot]) -> dict[str, str]:
    """Those that are more than an administrator allows now: such as hold no work first, and of these the youngest."""
    order = sorted(stay, key=lambda each: (each.granted, each.phase == "here", -each.since, each.name))
    return {each.name: f"at most {policy.most} are to be held" for each in order[: max(0, len(stay) - policy.most)]}


def _is_used(pilot: Pilot) -> bool:
    return bool(pilot.granted or pilot.building)


def _is_useless(pilot: Pilot, now: float) -> bool:
    return pilot.phase == "here" and not _is_used(pilot) and pilot.idle_since is not None and now - pilot.idle_since >= SETTLED_S


def _idle(stay: Sequence[Pilot], coming: Sequence[Pilot], need: Need) -> frozenset[str]:
    """Those that hold nobody's work, and of those in the queue the youngest that are more than would help."""
    queued = [each for each in coming if each.phase == "waiting"]
    over = max(0, len(coming) - need.pilots)
    unneeded = queued[len(queued) - min(over, len(queued)) :]
    return frozenset(each.name for each in (*unneeded, *(each for each in stay if each.phase == "here" and not _is_used(each))))


def _too_long(
    policy: Policy, stay: Sequence[Pilot], idle: frozenset[str], need: Need, spare: int, *, now: float
) -> tuple[dict[str, str], frozenset[str]]:
    """Which have been idle for too long, the youngest first, `spare` at most; and which of them although runs wait."""
    over = [each for each in stay if each.name in idle and each.idle_since is not None and now - each.idle_since >= policy.idle_s]
    if need.pilots:  # what is in the queue may help soon, and what is here and used by nobody evidently does not
        over = [each for each in over if _is_useless(each, now)]
    over = over[len(over) - min(spare, len(over)) :]
    for_s = {each.name: now - (each.idle_since or now) for each in over}
    vain = frozenset(each.name for each in over) if need.pilots else frozenset()
    return {
        name: f"nobody could use it for {_time(seconds)}" if name in vain else f"nobody has needed it for {_time(seconds)}"
        for name, seconds in for_s.items()
    }, vain


def _standing(policy: Policy, pilots: Collection[Pilot]) -> str:
    words = {"waiting": "waiting in its queue", "starting": "starting", "here": "here", "leaving": "being emptied", "ending": "ending"}
    counts = {phase: sum(each.phase == phase for each in pilots) for phase in words}
    parts = ", ".join(f"{count} {words[phase]}" for phase, count in counts.items() if count)
    asked = f"{_pilots(len(pilots))} ({parts})" if parts else _pilots(len(pilots))
    return f"{policy.engine} was asked for {asked}; at least {policy.least}, at most {policy.most}."


def _why_start(policy: Policy, start: int, wanted: int, need: Need, wait_s: float, trouble: Trouble) -> tuple[str, ...]:
    why = (
        f"with {_pilots(need.pilots)} more {_named(need.runs)} would begin or grow" if need.pilots else f"at least {policy.least} are held"
    )
    if not wanted:
        return (f"Those on their way will do: {why}.",) if need.pilots else ("No run would begin or grow with another one.",)
    if wait_s:
        again = f"after {trouble.failures} attempt{'s' if trouble.failures > 1 else ''} that came to nothing, again in {_time(wait_s)}"
        return (f"Would ask for {wanted} more, {again}: {trouble.words or 'no reason was given'}",)
    if start < wanted:
        return (f"Asks for {start} more, of {wanted} that would help: {policy.most} is the most.",)
    return (f"Asks for {start} more: {why}.",)


def _named(runs: Sequence[str]) -> str:
    if len(runs) > WORDS_RUNS:
        return f"{len(runs)} runs"
    return ", ".join(runs) if runs else "runs"


def _pilots(count: int) -> str:
    return "1 pilot" if count == 1 else f"{count} pilots"


def _time(seconds: float | None) -> str:
    seconds = max(0.0, seconds or 0.0)
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"
