"""`pip install edt-studio`: the command and the client, with what they need; and, with `[node]`, all that a machine needs that joins."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
from packaging.requirements import Requirement

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGES = ("edt_client", "training_runtime")
NEEDED = {"httpx", "click", "rich", "pathspec", "pyyaml"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the sources alone: what was built here before must not get into it."""
    sources, out = tmp_path_factory.mktemp("sources"), tmp_path_factory.mktemp("wheel")
    for name in PACKAGES:
        shutil.copytree(REPOSITORY / name, sources / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, sources)
    offline = ["--no-deps", "--no-build-isolation", "--no-index"]
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", *offline, "-w", str(out), str(sources)]
    subprocess.run(command, check=True, capture_output=True)
    (found,) = out.glob("edt_studio-*.whl")
    return found


def test_it_holds_the_client_the_runtime_and_nothing_of_the_studio(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == set(PACKAGES)
    wanted = {path.relative_to(REPOSITORY).as_posix() for package in PACKAGES for path in (REPOSITORY / package).rglob("*.py")}
    assert wanted == {name for name in names if ".dist-info" not in name}
    described = Parser().parsestr(zipfile.ZipFile(wheel).read(next(name for name in names if name.endswith("METADATA"))).decode())
    required = [Requirement(each) for each in described.get_all("Requires-Dist") or []]
    assert {each.name for each in required if each.marker is None} == NEEDED
    points = zipfile.ZipFile(wheel).read(next(name for name in names if name.endswith("entry_points.txt"))).decode()
    assert "edt = edt_client.cli.main:main" in points
    assert "edt-node = training_runtime.node.__main__:main" in points


def test_the_command_starts_from_it_without_django_and_torch(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)
    code = (
        f"import sys; sys.path[:0] = [{str(tmp_path)!r}]; sys.path.append({sysconfig.get_path('purelib')!r})\n"
        "from edt_client.cli.main import main\n"
        "assert main(['--help']) == 0 and main(['run', '--help']) == 0\n"
        "import edt_client; assert edt_client.__file__.startswith(sys.path[0]), edt_client.__file__\n"
        "edt_client.Studio, edt_client.AsyncStudio\n"
        "assert not {'django', 'torch', 'numpy', 'pandas', 'training_runtime'} & set(sys.modules)\n"
        "from training_runtime.elastic.script_logs import wandb_logs\n"  # for `edt import wandb`
        "assert not {'django', 'torch', 'numpy'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "edt login https://studio.example.org" in done.stdout


def test_a_machine_joins_from_it_without_the_studio(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)
    code = (
        f"import sys; sys.path[:0] = [{str(tmp_path)!r}]; sys.path.append({sysconfig.get_path('purelib')!r})\n"
        "import importlib, pkgutil, training_runtime\n"
        "assert training_runtime.__file__.startswith(sys.path[0]), training_runtime.__file__\n"
        "for room in ('node', 'host', 'elastic', 'environments'):\n"
        "    package = importlib.import_module('training_runtime.' + room)\n"
        "    for each in pkgutil.walk_packages(package.__path__, package.__name__ + '.'):\n"
        "        if not each.name.startswith('training_runtime.elastic.keras'):\n"
        "            importlib.import_module(each.name)\n"
        "assert not {'django', 'celery', 'channels', 'experiments', 'webapp'} & set(sys.modules)\n"
        "from training_runtime.node.__main__ import main\n"
        "sys.argv = ['edt-node', 'join', '--help']; main()\n"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--token" in done.stdout
