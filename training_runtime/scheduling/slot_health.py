"""Which slots workers keep dying on through no fault of their scripts: facts in, decision and reasons out. Pure, standard library only.

A death says nothing of a slot by itself: scripts crash, and one that crashes everywhere must never take slots out of service. What tells is
*where* the workers of one run die that has several slots. For each run two accounts of its deaths are compared: all of its slots kill alike
(then deaths are spread like the time that it held them), or this one kills TIMES_WORSE times as often. The logarithm of how much better the
second explains them is added up, a sequential probability ratio test (Wald, Annals of Mathematical Statistics 16, 1945). Deaths elsewhere
speak for the slot, so a script that crashes everywhere takes evidence away. No voice counts for more than VOICE_LIMIT, so that nobody is
believed alone: a voice is a person where there are several, for a script can choose where it dies, and a run where there is one person.

A death counts half after HALF_LIFE_S. The last slot of its kind that is in service is never taken out.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from training_runtime.protocol import Device

TIMES_WORSE = 20.0  # how much more often a slot that is out of order kills workers than another one
VOICE_LIMIT = 2.5  # powers of ten
ENOUGH = 4.0  # powers of ten: two voices at least
WELL_S = 60.0  # a run that had a slot for so long, and no death on it, did well there
HALF_LIFE_S = 12 * 3600.0
WINDOW_S = 4 * HALF_LIFE_S  # what is older is forgotten
LEAST_SHARE = 1e-3
MOST_TOGETHER = 4  # slots that are out of order at once
COUNTED_OF_A_RUN = 10.0  # deaths, where slots are put in order
ONE_LONG_AGO = 0.5  # a death that is older than HALF_LIFE_S


@dataclass(frozen=True)
class SlotCondition:
    """A slot: whether new work may be put on it now, and whether it is `out` already because it looked ill."""

    id: int
    node: str
    device: Device
    in_service: bool = True
    out: bool = False


@dataclass(frozen=True)
class Stay:
    """How a run of `person` has fared on a slot within the last WINDOW_S: held for `held_s` seconds, with `deaths` of workers, older ones
    counting less (`faded`). `worked`: the run made steps while it had the slot."""

    run: int
    person: str
    slot: int
    held_s: float
    deaths: float = 0.0
    worked: bool = True


@dataclass(frozen=True)
class Decision:
    """Slots to take out of service, and those that look ill but stay because they are the last of their kind; each with the reason."""

    out: Mapping[int, str]
    kept: Mapping[int, str]


@dataclass(frozen=True)
class _Evidence:
    """`score`: powers of ten by which the deaths are better explained by the slots; `unlimited`: without a limit of
    voices. `well`: on how many others the same runs did well."""

    score: float
    unlimited: float
    runs: int
    people: int
    well: int


def faded(deaths: float, age_s: float) -> float:
    """What so many deaths count after `age_s` seconds."""
    return float(deaths * 0.5 ** (max(0.0, age_s) / HALF_LIFE_S))


def judge(slots: Iterable[SlotCondition], stays: Iterable[Stay], *, several_people: bool) -> Decision:
    """Take the slot out against which most speaks, look again without what happened there, and so on."""
    known = {slot.id: slot for slot in slots}
    out: dict[int, str] = {}
    kept: dict[int, str] = {}
    left = [stay for stay in stays if stay.slot in known and not known[stay.slot].out]
    while found := _worst(known, left, several_people, passed=kept.keys() | out.keys()):
        where = "it" if found.node is None else f"the slots of {found.node}"
        for slot in sorted(found.slots):
            among = found.slots if found.node is not None else {slot}
            rest = [stay for stay in left if stay.slot in among or stay.slot not in found.slots]
            words = _words(_evidence(among, rest, several_people), where)
            if _is_last(known, slot, out):
                kept[slot] = f"{words} It stays in service because it is the last {known[slot].device.upper()} slot that is."
            else:
                out[slot] = words
        left = [stay for stay in left if stay.slot not in out]
    return Decision({slot: f"{reason}{_if_all(known, out, node=known[slot].node)}" for slot, reason in out.items()}, kept)


@dataclass(frozen=True)
class _Suspects:
    """Slots to be taken out together, as those of a machine where `node` is one."""

    slots: frozenset[int]
    node: str | None = None


def _worst(known: Mapping[int, SlotCondition], stays: Collection[Stay], several: bool, *, passed: Collection[int]) -> _Suspects | None:
    """The slot in service, none of those `passed`, against which most speaks, where that is enough. Else the machine whose slots all take
    part, or a few slots: such hide each other, for the deaths on one speak for the other. The more there are to choose these few from,
    the more has to speak against those that were chosen."""
    died: defaultdict[int, float] = defaultdict(float)
    for stay in stays:
        if stay.deaths > 0 and known[stay.slot].in_service and stay.slot not in passed:
            died[stay.slot] += min(stay.deaths, COUNTED_OF_A_RUN)
    order = sorted(died, key=lambda slot: (-died[slot], slot))
    scores = {slot: _evidence({slot}, stays, several).score for slot in order}
    worst = max(order, key=lambda slot: (scores[slot], -slot), default=None)
    if worst is not None and scores[worst] >= ENOUGH:
        return _Suspects(frozenset({worst}))
    for node in sorted({known[slot].node for slot in order}):
        members = frozenset(slot.id for slot in known.values() if slot.node == node and slot.in_service and slot.id not in passed)
        if len(members & died.keys()) > 1 and _all_take_part(members, stays, several, enough=ENOUGH):
            return _Suspects(members, node)
    there = len({stay.slot for stay in stays})
    for many in range(2, min(MOST_TOGETHER, len(order), there // 2) + 1):
        few = frozenset(order[:many])
        if _all_take_part(few, stays, several, enough=ENOUGH + math.log10(math.comb(there, many) / there)):
            return _Suspects(few)
    return None


def _all_take_part(slots: frozenset[int], stays: Collection[Stay], several: bool, *, enough: float) -> bool:
    """Whether so much speaks against them together, and not more without one of them."""
    found = _evidence(slots, stays, several)
    return found.score >= enough and all(_evidence(slots - {slot}, stays, several).unlimited <= found.unlimited for slot in slots)


def _evidence(where: Collection[int], stays: Iterable[Stay], several: bool) -> _Evidence:
    of_run: defaultdict[int, list[Stay]] = defaultdict(list)
    for stay in stays:
        of_run[stay.run].append(stay)
    voices: defaultdict[str | int, float] = defaultdict(float)
    runs, people, well = set[int](), set[str](), set[int]()
    for run, its in of_run.items():
        score = _score(where, its)
        if score is None:
            continue
        voices[its[0].person if several else run] += score
        if score > 0:
            runs.add(run)
            people.add(its[0].person)
            well |= {stay.slot for stay in its if stay.slot not in where and _did_well(stay)}
    total = sum(max(-VOICE_LIMIT, min(VOICE_LIMIT, score)) for score in voices.values())
    return _Evidence(total, sum(voices.values()), len(runs), len(people), len(well))


def _score(where: Collection[int], its: Collection[Stay]) -> float | None:
    """What one run says, in powers of ten; None where it says nothing, having had no death, or no other slot on which it did well."""
    here = sum(stay.deaths for stay in its if stay.slot in where)
    elsewhere = sum(stay.deaths for stay in its if stay.slot not in where)
    if not here + elsewhere or not any(_did_well(stay) for stay in its if stay.slot not in where):
        return None
    held_s = sum(stay.held_s for stay in its)
    share = sum(stay.held_s for stay in its if stay.slot in where) / held_s if held_s else 0.0
    share = min(max(share, LEAST_SHARE), 1 - LEAST_SHARE)
    ill = TIMES_WORSE * share / (TIMES_WORSE * share + 1 - share)  # the part of all deaths that would happen here
    return here * math.log10(ill / share) + elsewhere * math.log10((1 - ill) / (1 - share))


def _did_well(stay: Stay) -> bool:
    return stay.worked and stay.deaths < ONE_LONG_AGO and stay.held_s >= WELL_S


def _is_last(known: Mapping[int, SlotCondition], slot: int, out: Collection[int]) -> bool:
    """Whether without it none of its kind would be in service."""
    device = known[slot].device
    return not any(each.in_service and each.device == device and each.id != slot and each.id not in out for each in known.values())


def _if_all(known: Mapping[int, SlotCondition], out: Collection[int], *, node: str) -> str:
    """What is to be added where none of the several slots of a machine is left."""
    its = [slot for slot in known.values() if slot.node == node]
    all_of_it = len(its) > 1 and all(slot.out or slot.id in out for slot in its)
    return f" All slots of {node} look ill: look at the machine." if all_of_it else ""


def _words(evidence: _Evidence, where: str) -> str:
    runs = "1 run" if evidence.runs == 1 else f"{evidence.runs} runs"
    people = "one person" if evidence.people == 1 else f"{evidence.people} people"
    well = "1 other slot" if evidence.well == 1 else f"{evidence.well} other slots"
    return f"Workers of {runs} of {people} keep dying on {where}, and the same runs do well on {well}."
