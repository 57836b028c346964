"""A run as an application of the scheduler: its driver, its executors (a worker on each slot that it had), and what they use now."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from experiments.models import Grant, Slot, TrainingRun
from experiments.selectors import latest_utilization
from experiments.wmla.described import exec_id, group_id, stamp, state, submission

BATCH = "BATCH"


@dataclass(frozen=True)
class Executor:
    """`number` counts from 1, in the order in which the run got the slots. `held`: it holds the slot now."""

    number: int
    slot: Slot
    since: dt.datetime
    held: bool

    @property
    def id(self) -> str:
        """As the first generation has it: its number from 0, and a name."""
        return f"{self.number - 1}-{self.slot.node.name}-{self.slot.device}{self.slot.index}"

    @property
    def log(self) -> str:
        return f"worker-{self.slot.pk}"


def executors(run: TrainingRun) -> list[Executor]:
    grants = Grant.objects.filter(run=run).select_related("slot__node").order_by("granted_at", "pk")
    held = {grant.slot_id for grant in grants if grant.released_at is None}
    first: dict[int, Grant] = {}
    for grant in grants:
        first.setdefault(grant.slot_id, grant)
    return [Executor(number, grant.slot, grant.granted_at, grant.slot_id in held) for number, grant in enumerate(first.values(), 1)]


def application(run: TrainingRun, *, now: dt.datetime, here: str) -> dict[str, object]:
    """In the words of both generations. `run` comes with its experiment, version, submitter, head node and submission."""
    said, name = submission(run), exec_id(run)
    found = executors(run)
    use = latest_utilization.of_run(run, now=now) if run.is_live() else None
    held = [each.slot for each in found if each.held]
    gpus = [slot for slot in held if slot.device == Slot.Device.GPU]
    memory = (use.memory if use else None) or 0
    shares = [each.use.share for each in use.slots if each.use.share is not None] if use else []
    logs = f"{here}/platform/rest/deeplearning/v1/scheduler/applications/{name}"
    return {
        "sparkinstancegroupid": group_id(said.instance_group),
        "sigName": said.instance_group,
        "applicationid": name,
        "applicationname": run.name,
        "type": BATCH,
        "state": state(run),
        "driver": _driver(run, f"{logs}/driver/logs"),
        "executors": [_executor(each, f"{logs}/executor/{each.number}/logs") for each in found],
        "slots": len(held),
        "gpuslots": len(gpus),
        "cpuslots": len(held) - len(gpus),
        "demandslots": run.max_slots,
        "hosts": len({slot.node_id for slot in held}),
        "coresused": len(held) - len(gpus),
        "memused": memory,
        "gpumemused": {"total": str(memory >> 20 if gpus else 0)},
        "gpudevutil": {"total": round(100 * sum(shares), 1) if gpus else 0.0},
        "username": run.submitted_by.username,
        "driverexecutionuser": run.submitted_by.username,
        "executorexecutionuser": run.submitted_by.username,
        "timestamp": int(now.timestamp() * 1000),
        "submittedtime": stamp(run.submitted_at),
        "endtime": stamp(run.ended_at),
        "apprunduration": minutes(run, now),
        "masterUrl": here,
        "uiport": "",
        "scheduleName": "",
        "issharedapp": False,
        "priority": run.priority,
        "model": run.version.definition.name,
        "dataset": run.data_folder,
        "dltype": said.framework,
        "task0": [f"{name}-driver"],
        "task12n": [each.id for each in found if each.held],
    }


def engine_application(run: TrainingRun, *, now: dt.datetime) -> dict[str, object]:
    """As the engine behind the scheduler lists it."""
    held = [each.slot for each in executors(run) if each.held]
    gpus = sum(slot.device == Slot.Device.GPU for slot in held)
    use = latest_utilization.of_run(run, now=now) if run.is_live() else None
    return {
        "id": exec_id(run),
        "consumer": run.submitted_by.username,
        "submit_user": run.submitted_by.username,
        "name": run.name,
        "priority": run.priority,
        "type": "ELASTIC" if run.version.is_elastic else "PARALLEL",
        "state": state(run),
        "task12n_num": len(held),
        "task0_resreq": "ncpus=0,ngpus=0,mem=0",
        "task12n_resreq": f"ncpus={int(not gpus)},ngpus={int(bool(gpus))},mem=0",
        "used_gpu": gpus,
        "used_mem": (use.memory if use else None) or 0,
        "used_cpu": len(held) - gpus,
        "submit_time": stamp(run.submitted_at),
        "start_time": stamp(run.started_at),
        "end_time": stamp(run.ended_at),
        "tag": "",
        "is_packing": False,
        "pack_id": "",
        "kernels": [],
    }


def minutes(run: TrainingRun, now: dt.datetime) -> float:
    lasted = run.duration(now)
    return round(lasted.total_seconds() / 60, 4) if lasted else 0.0


def _driver(run: TrainingRun, logs: str) -> dict[str, object]:
    name = exec_id(run)
    host = run.head_node.name if run.head_node else ""
    facts = {"id": name, "containerid": f"{name}-driver", "state": state(run), "host": host, "coresused": 0, "memused": 0}
    return {**facts, "timestamp": stamp(run.submitted_at), "driverstdout": f"{logs}/stdout", "driverstderr": f"{logs}/stderr"}


def _executor(each: Executor, logs: str) -> dict[str, object]:
    facts = {"id": each.id, "containerid": each.log, "state": "RUNNING" if each.held else "EXITED", "host": each.slot.node.name}
    using = {"coresused": int(each.held and each.slot.device == Slot.Device.CPU), "memused": 0, "timestamp": stamp(each.since)}
    return {**facts, **using, "executorstdout": f"{logs}/stdout", "executorstderr": f"{logs}/stderr"}
