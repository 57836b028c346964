"""A script that brings a requirements.txt: resolving, building, its first and its second start, beside `uv venv` and `uv pip install` by
hand. `python -m benchmarks.environments [--quick]`. Packages come from the index that this machine is set up with.

First start: from the order to the first step, with nothing built and no cache. Second start: the same with the environment built. By hand:
a virtual environment with the same packages, with no cache either; torch is left out, which the studio does not fetch.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from benchmarks import report
from benchmarks.models import fabric_script
from tests.host.conftest import HostUnderTest, until
from training_runtime.environments import network, requirements
from training_runtime.host import client
from training_runtime.host.settings import DRIVER
from training_runtime.protocol import Apply, EnvironmentSeen, WantedEnvironment

PACKAGES = ("tqdm", "rich", "pandas")
IMPORTS = "import tqdm, rich, pandas\n"
DEADLINE_S = 300.0


class Studio:
    """What the studio would tell the host of one machine."""

    def __init__(self, folder: Path) -> None:
        folder.chmod(0o755)
        self.host = HostUnderTest(folder, 1_500_000_000)
        lines = requirements.read("requirements.txt", lambda _: "\n".join(("torch>=2", *PACKAGES)).encode())
        self.wish = WantedEnvironment(requirements.key(lines), requirements.to_text(lines), run=1)
        self.phases: list[tuple[float, str]] = []
        packages = network.settings(os.environ, prefix=sys.prefix)
        self.host.start(
            environment={**packages, "HOME": os.environ.get("HOME", "")}, preload="torch,torch.distributed,numpy", driver=DRIVER
        )

    def tell(self) -> None:
        self.host.revision += 1
        client.apply(self.host.home, self.host.node, Apply(self.host.revision, tuple(self.host.wanted.values()), environments=(self.wish,)))

    def built(self) -> EnvironmentSeen:
        def look() -> EnvironmentSeen | None:
            (seen,) = self.host.look().environments or ()
            if not self.phases or self.phases[-1][1] != (seen.detail or seen.state):
                self.phases.append((time.monotonic(), seen.detail or seen.state))
            return seen if seen.state in ("ready", "failed") else None

        self.tell()
        seen = until(look, deadline_s=DEADLINE_S, what="the environment is built")
        assert seen.state == "ready", seen.problem
        return seen

    def first_step(self, number: int) -> float:
        """When the run's first step was done, by the journal."""
        host = self.host
        spec = host.spec(number, "main.py", "5", "1", code={"main.py": IMPORTS + fabric_script("conv")})
        spec = dataclasses.replace(spec, environment=self.built().folder)
        host.want(spec, 1)
        self.tell()
        path = host.result(number) / "journal.jsonl"

        def line() -> float | None:
            rows = [json.loads(row) for row in path.read_text().splitlines(keepends=True) if row.endswith("\n")] if path.exists() else []
            return next((float(row["t"]) for row in rows if row["kind"] == "train"), None)

        at = until(line, deadline_s=DEADLINE_S, what=f"run {number} has done a step\n{host.console(number)}\n{host.log()}")
        host.want(spec, stop=True)
        self.tell()
        host.until_run(number, lambda run: run.exit_code is not None, deadline_s=DEADLINE_S)
        del host.wanted[number]
        return at

    def phase_s(self, begins: str, ends: str) -> float:
        at = {name.split()[0]: when for when, name in self.phases}
        return at[ends] - at[begins]


def by_hand(folder: Path) -> float:
    """Seconds for a virtual environment with these packages."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "UV_CACHE_DIR": str(folder / "cache")}
    environment |= network.settings(os.environ, prefix=sys.prefix)
    uv, began = str(Path(sys.prefix, "bin", "uv")), time.monotonic()
    for words in (
        ("venv", "--python", sys.executable, "env"),
        ("pip", "install", "--python", "env/bin/python", "--compile-bytecode", *PACKAGES),
    ):
        subprocess.run([uv, *words], cwd=folder, env=environment, check=True, capture_output=True)
    return time.monotonic() - began


def main(arguments: list[str]) -> None:
    rounds = 2 if "--quick" in arguments else 7
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as hand:
        hand_s = by_hand(Path(hand))
        studio = Studio(Path(folder))
        try:
            began = time.time()
            first = studio.first_step(1) - began
            again = []
            for number in range(2, 2 + rounds):
                began = time.time()
                again.append(studio.first_step(number) - began)
            resolve_s, build_s = studio.phase_s("resolving", "installing"), studio.phase_s("installing", "ready")
        finally:
            studio.host.clean_up()
    rows = [
        ("resolve", 1, resolve_s),
        ("build", 1, build_s),
        ("first start, to the first step", 1, first),
        ("second start, to the first step", len(again), median(again)),
        ("uv venv and uv pip install by hand", 1, hand_s),
    ]
    report.table(f"A script with {', '.join(PACKAGES)} in its requirements.txt", ("what", "times", "p50 s"), rows)
    figures = {"first_start_s": round(first, 2), "second_start_s": round(median(again), 3), "uv_by_hand_s": round(hand_s, 2)}
    report.finish("environments", figures, {"resolve_s": round(resolve_s, 2), "build_s": round(build_s, 2)})


if __name__ == "__main__":
    main(sys.argv[1:])
