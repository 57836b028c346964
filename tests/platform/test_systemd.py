"""The units for systemd: systemd finds nothing wrong with them, and their commands are those that docs/operations.md prints."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from webapp.studio.programs import HOST_STOP_S, HOST_WRITES_S

REPOSITORY = Path(__file__).resolve().parents[2]
UNITS = sorted((REPOSITORY / "deploy" / "systemd").glob("*.service"))
CLONE = "/opt/edt-studio"


def settings(unit: Path, name: str) -> list[str]:
    return re.findall(rf"^{name}=(.*)$", unit.read_text(), re.MULTILINE)


def command(unit: Path) -> str:
    """As one would type it in the clone."""
    (line,) = settings(unit, "ExecStart")
    return re.sub(r"\$\{(\w+)\}", r"$\1", line.removeprefix(f"{CLONE}/").replace("%%", "%"))


def printed() -> set[str]:
    """The lines of docs/operations.md that are to be typed, without quotes and the variables before them."""
    lines = (REPOSITORY / "docs" / "operations.md").read_text().splitlines()
    typed = (line.strip().replace('"', "") for line in lines if line.startswith("    "))
    return {re.sub(r"^(\w+=\S+ )+", "", line) for line in typed}


def test_there_is_a_unit_for_the_studio_and_one_for_a_machine_that_joins() -> None:
    assert [unit.name for unit in UNITS] == ["edt-node.service", "edt-studio.service"]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_units_command_is_one_that_the_documents_print(unit: Path) -> None:
    assert command(unit) in printed()
    assert settings(unit, "WorkingDirectory") == [CLONE]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_is_installed_as_the_documents_say(unit: Path) -> None:
    text = (REPOSITORY / "docs" / "operations.md").read_text().split("## With systemd", 1)[1].split("\n## ", 1)[0]
    assert unit.name in text
    for file in settings(unit, "EnvironmentFile"):
        assert file.removeprefix("-") in text, file


def test_a_machine_that_joins_gets_no_password() -> None:
    (node,) = [unit for unit in UNITS if unit.stem == "edt-node"]
    assert not settings(node, "EnvironmentFile")
    assert not settings(node, "Environment")


@pytest.mark.parametrize("name", ["edt-studio", "edt-node"])
def test_a_stop_waits_for_runs_that_write_their_state_and_kills_no_training(name: str) -> None:
    (unit,) = [unit for unit in UNITS if unit.stem == name]
    assert float(settings(unit, "TimeoutStopSec")[0]) >= HOST_STOP_S + HOST_WRITES_S + 10
    assert settings(unit, "KillMode") == ["process"]


def test_systemd_finds_nothing_wrong_with_them(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not here: Debian's package is called systemd")
    for unit in UNITS:  # with an interpreter and a folder that are there
        text = unit.read_text().replace(f"{CLONE}/.venv/bin/python", sys.executable).replace(CLONE, str(REPOSITORY))
        (tmp_path / unit.name).write_text(text)
    files = [str(tmp_path / unit.name) for unit in UNITS]
    done = subprocess.run([analyze, "verify", "--man=no", *files], capture_output=True, text=True, check=False, timeout=60)
    ours = [line for line in done.stderr.splitlines() if "edt-" in line]
    assert (done.returncode, ours) == (0, []), done.stderr
