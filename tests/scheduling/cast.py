"""Short ways to write down slots, runs and what a plan makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from training_runtime.protocol import Device
from training_runtime.scheduling.facts import Plan, Rules, RunFacts, SlotFacts
from training_runtime.scheduling.plan import plan

FAIR = Rules(policy="fair_share")
PRIORITY = Rules(policy="priority")


def machine(count: int, *, node: str = "n1", device: Device = "gpu", first: int = 1, **more: Any) -> list[SlotFacts]:
    return [SlotFacts(id=first + index, node=node, device=device, **more) for index in range(count)]


def a_run(number: int, person: str, **more: Any) -> RunFacts:
    """Run `number`, submitted at second `number` unless said otherwise; up to 100 slots."""
    facts: dict[str, Any] = {"name": f"run-{number}", "project": "digits", "submitted_at": float(number), "max_slots": 100}
    return RunFacts(id=number, person=person, **(facts | more))


def decide(slots: Sequence[SlotFacts], runs: Sequence[RunFacts], rules: Rules = FAIR) -> Plan:
    return plan(slots, runs, now=1000.0, rules=rules)


def sizes(made: Plan) -> dict[int, int]:
    return {run: len(granted) for run, granted in sorted(made.grants.items())}


def applied(made: Plan, slots: Sequence[SlotFacts], runs: Sequence[RunFacts]) -> tuple[list[SlotFacts], list[RunFacts]]:
    """The facts after the plan has been carried out and every handover has ended."""
    owner = {slot: run for run, granted in made.grants.items() for slot in granted}
    node = {slot.id: slot.node for slot in slots}
    return (
        [replace(slot, holder=owner.get(slot.id)) for slot in slots],
        [replace(run, held=made.grants[run.id], node=node.get(min(made.grants[run.id], default=0), run.node)) for run in runs],
    )
