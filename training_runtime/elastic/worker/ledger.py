"""The sample ledger: who wants proof that each sample was used exactly once an epoch sets EDT_LEDGER=1 and gets `ledger/` in the result
folder.

Every worker writes, for each engine that it computed, the step, the engine, the indices that its loader really took from the dataset, and,
once the step has been committed, that it was. Anyone can replay it: `python -m training_runtime.elastic.worker.ledger RESULT_DIR`. A step
that was dropped after a death appears without its commit; of one that several workers committed the parts must agree.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO


class Ledger:
    """One worker's pages: `ledger/PID.jsonl`. Lines are written at once, so a killed worker leaves what it did."""

    def __init__(self, result_dir: Path) -> None:
        folder = result_dir / "ledger"
        folder.mkdir(exist_ok=True)
        self._file: TextIO = open(folder / f"{os.getpid()}.jsonl", "a", buffering=1)  # noqa: SIM115 - open as long as the process

    def engine(self, step: int, epoch: int, engine: int, indices: Sequence[int]) -> None:
        self._file.write(json.dumps({"step": step, "epoch": epoch, "engine": engine, "indices": list(indices)}) + "\n")

    def committed(self, step: int) -> None:
        self._file.write(json.dumps({"committed": step}) + "\n")


@dataclass(frozen=True)
class Replay:
    """What the ledger proves. `samples` of an epoch; `problems` in plain words, none where all is well."""

    epochs: int
    steps: int
    samples: int
    problems: tuple[str, ...]


def replay(result_dir: Path) -> Replay:
    """Read all pages and check that every committed step was computed from the same samples by whoever computed it, and every epoch
    used each of its samples once."""
    parts: dict[int, dict[int, tuple[int, ...]]] = defaultdict(dict)  # step -> engine -> indices
    epochs: dict[int, int] = {}
    committed: set[int] = set()
    problems: list[str] = []
    for page in sorted((result_dir / "ledger").glob("*.jsonl")):
        for line in page.read_text().splitlines():
            try:
                row = json.loads(line)
            except ValueError:  # its writer was killed inside the line
                continue
            if "committed" in row:
                committed.add(row["committed"])
                continue
            indices = tuple(row["indices"])
            if parts[row["step"]].setdefault(row["engine"], indices) != indices:
                problems.append(f"engine {row['engine']} of step {row['step']} was computed from different samples")
            epochs[row["step"]] = row["epoch"]
    return _check(parts, epochs, committed, problems)


def _check(parts: dict[int, dict[int, tuple[int, ...]]], epochs: dict[int, int], committed: set[int], problems: list[str]) -> Replay:
    used: dict[int, Counter[int]] = defaultdict(Counter)
    for step in sorted(committed):
        for indices in parts[step].values():
            used[epochs[step]].update(indices)
    if committed and sorted(committed) != list(range(1, max(committed) + 1)):
        problems.append("steps are missing")
    samples = max((max(counts) + 1 for counts in used.values()), default=0)
    last = max(used, default=0)
    for epoch, counts in sorted(used.items()):
        twice = [i for i, n in counts.items() if n > 1]
        missing = samples - len(counts) if epoch != last else 0  # the last epoch may be under way
        if twice or missing:
            problems.append(f"epoch {epoch}: {len(twice)} samples more than once, {missing} not at all")
    return Replay(len(used), len(committed), samples, tuple(problems))


def main(arguments: list[str]) -> int:
    found = replay(Path(arguments[0]))
    for problem in found.problems:
        print(problem)  # noqa: T201
    print(f"{found.steps} steps, {found.epochs} epochs of {found.samples} samples: {'NOT ' * bool(found.problems)}each once")  # noqa: T201
    return bool(found.problems)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
