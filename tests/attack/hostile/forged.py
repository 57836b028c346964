"""What the host and the studio believe of a run: said by the run itself, and false."""

from __future__ import annotations

import gc
import json
import os
import time
from pathlib import Path
from typing import Any

FLOOD_BYTES = 1 << 20


def speak_to_the_host(targets: dict[str, Any]) -> None:
    """Processes of others on slots of others, told on the connection that the run's own driver has."""
    from training_runtime.elastic.driver.host_link import HostLink
    from training_runtime.protocol import Grown, Holding, Worker, encode

    (link,) = (each for each in gc.get_objects() if type(each) is HostLink)
    others = tuple(Worker(slot, pid, ticks) for slot, (_, pid, ticks) in enumerate(targets["processes"], 1))
    link._send(encode(Holding((*link._holding, *others), revision=1 << 60)))
    link._send(encode(Grown(1 << 62)))


def write_in_the_journal(path: Path, targets: dict[str, Any]) -> None:
    """Lines that its driver has not written: of another run, of an end that has not come, of files that are none of its own; very many."""
    own, other, now = int(os.environ["TRAINING_ID"]), {"run": targets["victim"]}, time.time()
    place, far = {"step": 1, "epoch": 1}, 1 << 50
    step = {"kind": "train", **place, "samples": 1, "workers": 1, "step_s": 1e-9}
    end = {"kind": "finished", **place, "elapsed_s": -1.0}
    slots = [{"rank": slot, "slot": slot, "pid": 1} for slot in range(200)]
    hostile = "<script>alert(1)</script>\x1b[2J=1+1\n" + "x" * 5000
    change = {"kind": "generation", **place, "generation": 1, "members": slots, "workers_before": 0, "pause_ms": -1.0, "redone": 1 << 62}
    lines: list[dict[str, Any]] = [
        {**other, "seq": far, **step, "step": far, "metrics": {"loss": 666.0}},
        {**other, "seq": far + 1, **end, "outcome": "failed", "metrics": {}},
        {"seq": 1000, **step, "metrics": {hostile[:200]: 666.0, "=1+1": 1.0}},
        {"seq": 1001, "kind": "warning", "message": hostile},
        {"seq": 1002, "kind": "checkpoint", **place, "role": "model", "paths": ["../../db.sqlite3"] * 100, "size_bytes": 1},
        {"seq": 1003, **change, "reason": hostile},
        {"seq": 1004, "kind": "trained", **place},
        {"seq": 1005, **end, "outcome": "completed", "metrics": {hostile[:200]: 1.0}},
    ]
    with open(path, "ab") as journal:
        for line in lines:
            journal.write(json.dumps({"v": 1, "run": own, "t": now, **line}).encode() + b"\n")
        number = 2000
        while journal.tell() < FLOOD_BYTES:
            number += 1
            record = {"v": 1, "run": own, "t": now, **step, "seq": number, "step": number, "metrics": {f"flood {number % 50}": 0.5}}
            journal.write(json.dumps(record).encode() + b"\n")
        journal.write(b"\xff" * 1000 + b"[" * 100_000)
