"""A script that brings a requirements.txt: resolving, building, its first and its second start, beside `uv venv` and `uv pip install` by
hand. `python -m benchmarks.environments [--quick]`. Packages come from the index that this machine is set up with.

First start: from the order to the first step, with nothing built and no cache. Second start: the same with the environment built, and a
spare process of the run before it ready, for which is waited as long as it takes. Forked: the same with EDT_SPARES=0, where each run
imports its packages itself. By hand: a virtual environment with the same packages, with no cache either; torch is left out, which the
studio does not fetch. The strangers' scripts are those of `tests/e2e`, as they are there.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
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
from training_runtime.protocol import Apply, EnvironmentSeen, RunSpec, WantedEnvironment

PACKAGES = ("tqdm", "rich", "pandas")
IMPORTS = "import tqdm, rich, pandas\n"
DEADLINE_S = 300.0
STRANGERS = Path(__file__).parents[1] / "tests" / "e2e" / "strangers"
HEAVY = ("yaml_trainer", "lightning", "transformers")
FIRST_STEP = """import os, time
from pathlib import Path
from torch.optim.optimizer import register_optimizer_step_post_hook
_first = Path(os.environ["RESULT_DIR"], "first-step")
register_optimizer_step_post_hook(lambda *_: _first.exists() or _first.write_text(str(time.time())))
"""
READY, GIVEN = "a spare process is ready", "a run is started in a spare process"


class Studio:
    """What the studio would tell the host of one machine."""

    def __init__(self, folder: Path, packages_of: tuple[str, ...] = PACKAGES, *, spares: int = 2) -> None:
        folder.chmod(0o755)
        self.host, self.spares = HostUnderTest(folder, 1_500_000_000), spares
        lines = requirements.read("requirements.txt", lambda _: "\n".join(("torch>=2", *packages_of)).encode())
        self.wish = WantedEnvironment(requirements.key(lines), requirements.to_text(lines), run=1)
        self.phases: list[tuple[float, str]] = []
        packages = network.settings(os.environ, prefix=sys.prefix)
        own = {**packages, "HOME": os.environ.get("HOME", ""), "EDT_SPARES": str(spares)}
        self.host.start(environment=own, preload="torch,torch.distributed,numpy", driver=DRIVER)

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
        spec = self.like_the_others(spec)
        made = host.log().count(READY)
        host.want(spec, 1)
        self.tell()
        path = host.result(number) / "journal.jsonl"

        def line() -> float | None:
            rows = [json.loads(row) for row in path.read_text().splitlines(keepends=True) if row.endswith("\n")] if path.exists() else []
            return next((float(row["t"]) for row in rows if row["kind"] == "train"), None)

        at: float = until(line, deadline_s=DEADLINE_S, what=f"run {number} has done a step\n{host.console(number)}\n{host.log()}")
        host.want(spec, stop=True)
        self.tell()
        host.until_run(number, lambda run: run.exit_code is not None, deadline_s=DEADLINE_S)
        del host.wanted[number]
        if self.spares:
            until(lambda: host.log().count(READY) > made, deadline_s=60.0, what=f"a spare process is ready\n{host.log()}")
        return at

    def like_the_others(self, spec: RunSpec) -> RunSpec:
        """As a studio has them, which keeps code by its content."""
        return dataclasses.replace(spec, name="a script", code_dir=str(self.host.home / "code" / "1"), environment=self.built().folder)

    def strangers_first_step(self, number: int, script: Path) -> float:
        """The same of the script in this folder, which runs as a single process, on one slot, to its end."""
        host = self.host
        shutil.copytree(script, host.home / "code" / str(number), dirs_exist_ok=True)
        code = {"train.py": FIRST_STEP + (script / "train.py").read_text()}
        spec = self.like_the_others(host.spec(number, "train.py", code=code))
        host.want(dataclasses.replace(spec, elastic=False, max_slots=1), 1)
        made = host.log().count(READY)
        began = time.time()
        self.tell()
        host.until_run(number, lambda run: run.exit_code is not None, deadline_s=DEADLINE_S)
        del host.wanted[number]
        if self.spares:
            until(lambda: host.log().count(READY) > made, deadline_s=60.0, what=f"a spare process is ready\n{host.log()}")
        return float((host.result(number) / "first-step").read_text()) - began

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


def second_starts(name: str, rounds: int, *, spares: int) -> list[float]:
    """Seconds to the first step of a stranger's script, with all built."""
    packages = tuple((STRANGERS / name / "requirements.txt").read_text().split())
    with tempfile.TemporaryDirectory() as folder:
        studio = Studio(Path(folder), packages, spares=spares)
        try:
            _, *again = [studio.strangers_first_step(number, STRANGERS / name) for number in range(1, 2 + rounds)]
            given = studio.host.log().count(GIVEN)
            assert given == (rounds if spares else 0), studio.host.log()
        finally:
            studio.host.clean_up()
    return again


def heavy(rounds: int) -> tuple[list[tuple[str, int, float]], dict[str, float]]:
    """Rows of the table, and figures."""
    rows, figures = [], {}
    for name in HEAVY:
        for how, spares in (("second start", 1), ("second start, forked", 0)):
            again = second_starts(name, rounds, spares=spares)
            rows.append((f"{name}: {how}, to the first step", len(again), median(again)))
            figures[f"{name}_{'second_start' if spares else 'forked'}_s"] = round(median(again), 3)
    return rows, figures


def main(arguments: list[str]) -> None:
    rounds = 2 if report.asked_quick(__doc__, arguments) else 7
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
            assert studio.host.log().count(GIVEN) == rounds, studio.host.log()
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
    more, heavy_figures = heavy(rounds)
    report.table(f"A script with {', '.join(PACKAGES)} in its requirements.txt", ("what", "times", "p50 s"), [*rows, *more])
    figures = {"first_start_s": round(first, 2), "second_start_s": round(median(again), 3), "uv_by_hand_s": round(hand_s, 2)}
    figures |= heavy_figures
    report.finish("environments", figures, {"resolve_s": round(resolve_s, 2), "build_s": round(build_s, 2)})


if __name__ == "__main__":
    main(sys.argv[1:])
