"""A host that builds environments, with nothing built: told of wishes, and asked what came of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.host.conftest import HostUnderTest, _bases, until
from tests.index import Index, serving
from training_runtime.environments import requirements
from training_runtime.host import client, processes
from training_runtime.protocol import Apply, EnvironmentSeen, WantedEnvironment

SHOW = """
import importlib.metadata, json, os, subprocess, sys
import torch, tiny
inner = subprocess.run([sys.executable, "-c", "import tiny, torch, sys; print(tiny.VERSION, torch.__version__, sys.prefix)"],
    capture_output=True, text=True)
command = subprocess.run(["tiny-says"], capture_output=True, text=True)
print(json.dumps({"tiny": tiny.VERSION, "version": importlib.metadata.version("tiny"), "prefix": sys.prefix, "torch": torch.__version__,
    "inner": inner.stdout.split(), "problem": inner.stderr + command.stderr, "command": command.stdout.strip(), "env": sorted(os.environ),
    "mine": os.access(sys.prefix, os.W_OK)}))
"""


@pytest.fixture(scope="module")
def served() -> Iterator[Index]:
    with serving() as index:
        yield index


@pytest.fixture
def index(served: Index) -> Index:
    """uv's cache outlives a test as the host does: what a test is to see downloaded has a name of its own."""
    served.gate.set()
    scripts = {"tiny-says": "tiny:say"}
    code = {"tiny.py": "VERSION = '1.2'\ndef say():\n    print('tiny ' + VERSION)\n"}
    served.add("tiny", "1.0")
    served.add("tiny", "1.2", code, requires=("other>=1",), scripts=scripts)
    served.add("other", "1.1")
    served.asked.clear()
    return served


@pytest.fixture(scope="module")
def one_host(served: Index, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostUnderTest]:
    home = tmp_path_factory.mktemp("host")
    home.chmod(0o755)
    host = HostUnderTest(home, next(_bases))
    try:
        host.start(environment=told_of(served))
        yield host
    finally:
        host.clean_up()


@pytest.fixture
def host(one_host: HostUnderTest, index: Index) -> HostUnderTest:
    """With nothing built."""
    one_host.wanted.clear()
    tell(one_host)
    until(lambda: one_host.look().runs == (), what="every run of the test before has ended")
    tell(one_host, drop=one_host.look().folders or ())
    assert one_host.look().folders == ()
    return one_host


def told_of(index: Index) -> dict[str, str]:
    return {"UV_INDEX_URL": index.url, "PIP_CONFIG_FILE": "/dev/null"}


def wish(text: str, **given: object) -> WantedEnvironment:
    lines = requirements.read("requirements.txt", {"requirements.txt": text.encode()}.__getitem__)
    return WantedEnvironment(key=requirements.key(lines), requirements=requirements.to_text(lines), run=7, **given)  # type: ignore[arg-type]


def tell(host: HostUnderTest, *wishes: WantedEnvironment, drop: tuple[str, ...] = ()) -> None:
    host.revision += 1
    client.apply(host.home, host.node, Apply(host.revision, tuple(host.wanted.values()), environments=wishes, drop=drop))


def until_seen(host: HostUnderTest, key: str, *states: str) -> EnvironmentSeen:
    def found() -> EnvironmentSeen | None:
        return next((each for each in host.look().environments or () if each.key == key and each.state in states), None)

    return until(found, what=f"{states}\n{host.log()}\n{host.look().environments}", deadline_s=60)


def built(host: HostUnderTest, text: str) -> EnvironmentSeen:
    seen = built_from(host, text)
    assert seen.state == "ready", f"{seen.problem}\n{seen.log}"
    return seen


def built_from(host: HostUnderTest, text: str) -> EnvironmentSeen:
    asked = wish(text)
    tell(host, asked)
    return until_seen(host, asked.key, "ready", "failed")


def builders(host: HostUnderTest) -> list[int]:
    found = processes.table()
    mine = processes.descendants({host.process.pid}, found)
    return [pid for pid in mine if b"training_runtime.host.environments.builder" in command(pid)]


def left_over(host: HostUnderTest) -> list[Path]:
    """Folders of builds that have ended."""
    building = host.folder / "environments" / ".building"
    return [*building.glob("*/*-*"), *building.glob("run-*")]


def command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
