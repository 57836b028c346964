"""How fast the API and its command are: `python -m benchmarks.api [--quick]`.

A whole studio in a folder of its own, warm and idle. `first_metric_s`: from typing `edt run .` in a fresh folder to the first metric of its
run on the standard output, the start of the command included; `edt_s`: of which the command itself takes to start and say its help.
`requests_s`: answers a second to `GET /api/v1/runs?limit=20` with a token over one connection, one after the other, beside `page_s`, the
same of the page that shows them. `schemathesis_failures`: tests of the API against its description that fail.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import httpx

from benchmarks.handover import SCRIPT
from benchmarks.report import finish, table
from benchmarks.studio import Browser, studio

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = "from edt_client.cli.main import main; import sys; sys.exit(main())"
EDT = [sys.executable, "-c", PROGRAM]


@contextlib.contextmanager
def removed(folder: Path) -> Iterator[None]:
    try:
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def first_metric(folder: Path, environment: dict[str, str]) -> float:
    """Seconds until it is printed. The run is stopped then."""
    began = time.perf_counter()
    process = subprocess.Popen([*EDT, "run", ".", "--json"], cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    run = 0
    for line in process.stdout:
        said = json.loads(line)
        run = said.get("run", run)
        if said["event"] == "metrics":
            took = time.perf_counter() - began
            subprocess.run([*EDT, "stop", str(run)], env=environment, check=True, capture_output=True)
            process.communicate(timeout=60)
            return took
    raise AssertionError("the run ended without a metric")


def in_turn(rounds: int, url: str, headers: dict[str, str]) -> float:
    """Answers a second."""
    with httpx.Client(headers=headers, timeout=60) as client:
        client.get(url).raise_for_status()
        began = time.perf_counter()
        for _ in range(rounds):
            assert client.get(url).status_code == 200
        return rounds / (time.perf_counter() - began)


def failures() -> int:
    """Of the tests that hold the API to its description."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "tests/web/test_api_described.py",
            f"--junitxml={report}",
            f"--basetemp={folder}/tmp",
        ]
        environment = {
            name: value for name, value in os.environ.items() if name not in ("EDT_HOME", "DJANGO_SETTINGS_MODULE", "DATABASE_URL")
        }
        subprocess.run(command, cwd=ROOT, env=environment, check=False, capture_output=True)
        suites = ET.parse(report).getroot()
        return sum(int(suite.get("failures", 0)) + int(suite.get("errors", 0)) for suite in suites)


def made() -> Path:
    home = Path(tempfile.mkdtemp(prefix="edt-api-"))
    home.chmod(0o755)  # runs' own users must reach their folders in it
    return home


def fresh(folder: Path) -> Path:
    folder.mkdir()
    (folder / "main.py").write_text(SCRIPT)
    return folder


def starts(environment: dict[str, str]) -> float:
    """How long the command takes to say what it can do."""
    began = time.perf_counter()
    subprocess.run([*EDT, "--help"], env=environment, check=True, capture_output=True)
    return time.perf_counter() - began


def logged_in(address: str, password: str) -> Browser:
    browser = Browser(address)
    browser.get("/login/")
    browser.post("/login/", username="alice", password=password)
    return browser


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.api", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    rounds, requests = (3, 100) if quick else (11, 1000)
    home = made()
    os.environ |= {"EDT_HOME": str(home), "DJANGO_SETTINGS_MODULE": "webapp.settings"}
    with tempfile.TemporaryDirectory() as aside, removed(home), studio(home) as (address, *_):
        import django

        django.setup()
        logging.getLogger("httpx").setLevel(logging.WARNING)
        from django.utils import timezone

        from experiments import services
        from experiments.accounts.passwords import give_password
        from experiments.models import ClusterRules, User

        ClusterRules.objects.update_or_create(pk=1, defaults={"people_trust_each_other": True})  # it is measured in weak boxes too
        password = give_password("alice")
        alice = User.objects.get(username="alice")
        _, token = services.create_token(by=alice, name="benchmark", scope="write", days=1, now=timezone.now())
        environment = {**os.environ, "EDT_STUDIO": address, "EDT_TOKEN": token, "XDG_CONFIG_HOME": aside}
        took = [first_metric(fresh(Path(aside, f"fresh-{place}")), environment) for place in range(rounds + 1)]  # first in a cold studio
        edt = starts(environment)
        browser = logged_in(address, password)
        by_api = in_turn(requests, f"{address}/api/v1/runs?limit=20", {"Authorization": f"Bearer {token}"})
        jobs = f"{address}/projects/{alice.memberships.first().project_id}/jobs/?part=table"
        by_page = in_turn(requests // 5, jobs, {"Cookie": browser.header()})
    figures = {
        "first_metric_s": round(median(took[1:]), 3),
        "first_metric_cold_s": round(took[0], 3),
        "edt_s": round(edt, 3),
        "requests_s": round(by_api, 1),
        "page_s": round(by_page, 1),
        "schemathesis_failures": failures(),
    }
    table("The API and its command", ("figure", "value"), list(figures.items()))
    finish("api", figures)


if __name__ == "__main__":
    main()
