"""The box of a process that looks into people's files for the studio, entered as its children enter it, by code that then tries to get
out."""

from __future__ import annotations

import itertools
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.host.box import needs_box
from tests.host.conftest import REPOSITORY, has_landlock, is_root
from training_runtime.host.sandbox import levels

_bases = itertools.count(3_000_000 + os.getpid() % 1000 * 1_000_000, 50_000)

# Forked as the fork server forks. Its own `attempt`s are said on standard output, which it has from before.
PROGRAM = """
import dataclasses, json, os, pathlib, resource, socket, sys, sysconfig
from pathlib import Path
from training_runtime.host.sandbox import file_box
from training_runtime.host.sandbox.file_box import Limits, Walls
home, base, box, folder, may = sys.argv[1:6]
libraries = tuple(dict.fromkeys((sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))))
secret = b"what the process that it was forked from knows"
parent = os.getpid()
walls = file_box.prepare(home=Path(home), environment={"EDT_UID_BASE": base}, libraries=libraries) if box == "best" else Walls()
given = os.open(Path(home, "given"), os.O_RDONLY) if box != "best" else int(sys.argv[6])
at = int(sys.argv[7]) if box == "best" else os.open(folder, os.O_RDONLY)
findings = {"walls": dataclasses.asdict(walls)}
def attempt(action):
    try:
        return ["done", repr(action())[:300]]
    except BaseException as error:
        return [type(error).__name__, str(error)[:300]]
if os.fork() == 0:
    os.fchdir(at)
    ruleset = file_box.rules(libraries, folder=may) if walls.closed else None
    file_box.enter(walls, Limits(cpu_s=5, memory_bytes=1 << 30, file_bytes=1 << 20), ruleset=ruleset, parent=parent)
    exec(sys.stdin.read())
    os.write(1, json.dumps(findings).encode())
    os._exit(0)
os.wait()
"""
INSIDE = """
findings["given"] = attempt(lambda: os.read(given, 100))
findings["library"] = attempt(lambda: len(Path(json.__file__).read_bytes()) > 0)
findings["late import"] = attempt(lambda: __import__("colorsys").__name__)
"""
OUTSIDE = """
for path in (home + "/db.sqlite3", home + "/open", "/etc/passwd", "/proc/self/environ"):
    findings["read " + path] = attempt(lambda: Path(path).read_bytes())
findings["list home"] = attempt(lambda: os.listdir(home))
findings["list root"] = attempt(lambda: os.listdir("/"))
for name in (home + "/runs", home, "/tmp", "/dev/shm", "/var/tmp"):
    findings["write " + name] = attempt(lambda: Path(name, "intruder").write_text("x"))
findings["tcp"] = attempt(lambda: socket.create_connection(("127.0.0.1", PORT), timeout=5))
findings["udp"] = attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", PORT)))
def unix():
    socket.socket(socket.AF_UNIX).connect(home + "/socket")
findings["unix socket"] = attempt(unix)
findings["fork"] = attempt(lambda: os.fork() or os._exit(0))
findings["exec"] = attempt(lambda: os.execv("/bin/true", ["true"]))
findings["signal the fork server"] = attempt(lambda: os.kill(parent, 0))
findings["signal the studio"] = attempt(lambda: os.kill(STUDIO, 0))
findings["signal all"] = attempt(lambda: os.kill(-1, 0))
findings["memory of the fork server"] = attempt(lambda: open(f"/proc/{parent}/mem", "rb").read(1))
findings["pidfd"] = attempt(lambda: os.pidfd_open(parent))
findings["link"] = attempt(lambda: os.symlink("/etc/passwd", "link"))
findings["pipe"] = attempt(lambda: os.mkfifo("pipe"))
findings["hard link"] = attempt(lambda: os.link("/etc/passwd", "hard"))
findings["other limits"] = attempt(lambda: resource.prlimit(parent, resource.RLIMIT_CPU, (1, 1)))
findings["be root"] = attempt(lambda: os.setuid(0) if os.getuid() else os.chroot("."))
"""
WRITING = """
findings["make a file"] = attempt(lambda: Path("new").write_bytes(b"x" * 1000))
findings["make a folder"] = attempt(lambda: (Path("a/b").mkdir(parents=True), Path("a/b/c").write_text("x")))
findings["leave it"] = attempt(lambda: Path("../beside").write_text("x"))
findings["too long a file"] = attempt(lambda: Path("long").write_bytes(bytes(2 << 20)))
"""
GREEDY = """
findings["memory"] = attempt(lambda: len(bytearray(4 << 30)))
findings["files"] = attempt(lambda: [os.dup(given) for _ in range(1000)])
"""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A studio's folder with secrets in it, and what listens there."""
    for name in ("db.sqlite3", "open", "given"):
        (tmp_path / name).write_text(f"the {name}")
        (tmp_path / name).chmod(0o600 if name == "db.sqlite3" else 0o644)
    for name in ("runs", "folder"):
        (tmp_path / name).mkdir()
    tmp_path.chmod(0o755)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        listening.listen()
        yield tmp_path


def tried(body: str, home: Path, *, base: int = 0, box: str = "best", may: str = "write") -> dict[str, list[str]]:
    """What became of what a child tried, handed the file `given` and the folder `folder`."""
    folder = home / "folder"
    with open(home / "given", "rb") as given, socket.create_server(("127.0.0.1", 0)) as server:
        at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        if base:
            os.fchown(at, base + levels.READER, -1)
        body = body.replace("PORT", str(server.getsockname()[1])).replace("STUDIO", str(os.getpid()))
        command = [sys.executable, "-c", PROGRAM, str(home), str(base), box, str(folder), may, str(given.fileno()), str(at)]
        try:
            done = subprocess.run(
                command, input=body.encode(), capture_output=True, timeout=60, cwd=REPOSITORY, pass_fds=(given.fileno(), at), check=False
            )
        finally:
            os.close(at)
    assert done.stdout, done.stderr.decode()
    found: dict[str, list[str]] = json.loads(done.stdout)
    return found


def done(findings: dict[str, list[str]]) -> dict[str, list[str]]:
    return {name: finding for name, finding in findings.items() if name != "walls" and finding[0] == "done"}


@pytest.fixture(params=["own user", "one user"])
def base(request: pytest.FixtureRequest) -> int:
    """From where on users are the studio's; 0: there are none."""
    if request.param == "one user":
        return 0
    return next(_bases) if is_root else pytest.skip("only root can be another user")


@needs_box
def test_it_reads_what_it_is_given_and_the_libraries_and_nothing_else(base: int, home: Path) -> None:
    found = tried(INSIDE + OUTSIDE, home, base=base, may="")
    assert found["walls"]["uid"] == (base + levels.READER if base else None)  # type: ignore[call-overload]
    assert set(done(found)) == {"given", "library", "late import"}
    assert found["given"][1] == repr(b"the given")
    assert sorted(path.name for path in home.iterdir()) == ["db.sqlite3", "folder", "given", "open", "runs", "socket"]


@needs_box
def test_it_writes_to_the_folder_that_it_is_handed_and_no_further(base: int, home: Path) -> None:
    found = tried(WRITING + OUTSIDE, home, base=base)
    assert set(done(found)) == {"make a file", "make a folder"}
    assert found["too long a file"][0] == "OSError"
    assert not (home / "beside").exists()
    assert sorted(path.name for path in (home / "folder").iterdir()) == ["a", "long", "new"]
    assert (home / "folder" / "long").stat().st_size <= 1 << 20


@pytest.mark.skipif(not has_landlock, reason="the kernel has no Landlock")
def test_a_folder_that_is_there_to_be_read_cannot_be_written_to(home: Path) -> None:
    (home / "folder" / "requirements.txt").write_text("numpy")
    body = 'findings["read"] = attempt(lambda: Path("requirements.txt").read_text())\n' + WRITING
    assert set(done(tried(body, home, may="read"))) == {"read"}
    assert sorted(path.name for path in (home / "folder").iterdir()) == ["requirements.txt"]


@pytest.mark.parametrize("box", ["best", "none"])
def test_what_it_takes_is_limited_also_where_nothing_closes_it_in(box: str, home: Path) -> None:
    found = tried(WRITING + GREEDY, home, box=box)
    assert (found["memory"][0], found["files"][0], found["too long a file"][0]) == ("MemoryError", "OSError", "OSError")
    assert found["make a file"][0] == "done"
