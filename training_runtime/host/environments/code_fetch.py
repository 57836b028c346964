"""Fetches code by git: `python -m training_runtime.host.environments.code_fetch`, started by the web side for one fetch. Its arguments come
on its standard input, a line of JSON; its standard output says what came of it; the zip lies in the folder that they name.

What git brings was made by strangers, so git runs in a box, as a user without privileges, with limits of time and size. This program stays
outside of it, believes nothing that is written in there, and kills all that is left. When its input is closed it ends at once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pwd
import select
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from training_runtime.environments import network
from training_runtime.errors import SandboxRefused
from training_runtime.host import processes, settings
from training_runtime.host.environments import built_files, git_steps
from training_runtime.host.environments.git_steps import HOSTS, KEY, ZIP, Failed, GitSource
from training_runtime.host.sandbox import enter, kernel, levels
from training_runtime.host.sandbox.levels import Box
from training_runtime.host.sandbox.probe import strongest
from training_runtime.records import build

OPEN = "/var/tmp"  # noqa: S108
OWN_USER = ("user+landlock", "user")
_LOOK_S = 0.2
_MOST_SAID = 64 << 10
_MOST_HOSTS = 16 << 10


@dataclass(frozen=True)
class FetchSpec:
    """`work`: an empty folder, where the zip is put."""

    home: str
    work: str
    limit_s: float
    limit_bytes: int
    wanted: GitSource


def main() -> int:
    spec = build(FetchSpec, json.loads(sys.stdin.buffer.readline()))
    kernel.become_subreaper()
    os.umask(0o077)
    try:
        said = _fetch(spec)
    except (Failed, SandboxRefused) as failure:
        said = {"problem": str(failure)}
    except OSError as error:
        said = {"problem": f"The code could not be fetched on this machine: {error}."}
    finally:
        _kill_all()
    sys.stdout.write(json.dumps(said) + "\n")
    return 0


def _fetch(spec: FetchSpec) -> dict[str, str]:
    if shutil.which("git", path="/usr/local/bin:/usr/bin:/bin") is None:
        raise Failed("git is not installed on the studio's machine: an administrator installs it, or upload the code as a zip.")
    if spec.wanted.scheme == "ssh" and shutil.which("ssh", path="/usr/local/bin:/usr/bin:/bin") is None:
        raise Failed("ssh is not installed on the studio's machine: give the https:// address, or upload the code as a zip.")
    own = network.settings(os.environ, prefix=sys.prefix)
    policy = settings.sandbox_policy(os.environ, home=Path(spec.home))
    abilities = strongest(Path(spec.work).parent, policy)
    with contextlib.ExitStack() as cleanup:
        work = Path(spec.work)
        if abilities.level in OWN_USER:
            # git asks whether it may read (access(2)), which no capability answers: it works where nobody closes the way to other users.
            work = Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="edt-git-", dir=OPEN, ignore_cleanup_errors=True)))
        cleanup.callback(_kill_all)
        box = levels.box_for_building(str(work), abilities, policy=policy, read=network.folders(own))
        if spec.wanted.scheme == "ssh" and box.uid is not None:  # ssh wants its user to have a name
            box = dataclasses.replace(box, uid=pwd.getpwnam("nobody").pw_uid)
        box = levels.with_servers(box, spec.wanted.pinned or network.servers(own))
        said = _in_box(spec, dataclasses.replace(box, max_file_bytes=spec.limit_bytes), work, own)
        if work != Path(spec.work) and "commit" in said:
            _hand_on(work / ZIP, Path(spec.work, ZIP), most=spec.limit_bytes)
    return said


def _in_box(spec: FetchSpec, box: Box, work: Path, own: dict[str, str]) -> dict[str, str]:
    (work / "home").mkdir()
    (work / KEY).write_text(spec.wanted.key.rstrip() + "\n")
    (work / HOSTS).write_text(spec.wanted.host_key)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        _become(spec, box, work, own, writer)
    os.close(writer)
    said = _follow(reader, spec, work)
    _kill_all()
    found = json.loads(said) if said else {"problem": "git ended without a word: the code is too large, or there is no memory left."}
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise Failed("git was replaced while it was at work.")
    return {**found, "host_key": _read(work / HOSTS) if spec.wanted.scheme == "ssh" else ""}


def _hand_on(made: Path, to: Path, *, most: int) -> None:
    """A plain file, whatever was made of it meanwhile."""
    with open(os.open(made, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file, open(to, "xb") as copy:
        left = most
        while left > 0 and (piece := file.read(min(left, 1 << 20))):
            copy.write(piece)
            left -= len(piece)


def _become(spec: FetchSpec, box: Box, work: Path, own: dict[str, str], output: int) -> None:
    """In the child. Never returns."""
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        os.dup2(output, 3)
        os.closerange(4, os.sysconf("SC_OPEN_MAX"))
        enter.enter(box)
        kernel.die_with_the_parent()
        os.chdir(work)
        try:
            said = {"commit": git_steps.fetch(spec.wanted, work, own)}
        except Failed as failure:
            said = {"problem": str(failure)}
        os.write(3, json.dumps(said).encode())
    except BaseException as error:
        os.write(3, json.dumps({"problem": f"The code could not be fetched: {error}."}).encode())
    finally:
        os._exit(0)


def _follow(reader: int, spec: FetchSpec, work: Path) -> bytes:
    """What the child says, until it has closed the pipe. Raises Failed where it takes too long, or too much room."""
    said, deadline = b"", time.monotonic() + spec.limit_s
    while True:
        ready, _, _ = select.select([reader, 0], [], [], _LOOK_S)
        if 0 in ready and not os.read(0, 4096):
            _kill_all()
            shutil.rmtree(work, ignore_errors=True)
            os._exit(1)  # nobody waits for it
        if reader in ready:
            if not (piece := os.read(reader, 1 << 16)) or len(said) > _MOST_SAID:
                return said
            said += piece
        if time.monotonic() > deadline:
            advice = "name a branch or a tag, or leave data sets out of the repository"
            raise Failed(f"The code had not come within {spec.limit_s:g} s: {advice}.")
        if built_files.size(work) > 2 * spec.limit_bytes:  # what git has fetched, and the zip
            most = spec.limit_bytes >> 20
            raise Failed(f"The repository is larger than {most} MiB: leave data sets out and upload them as a data asset.")


def _read(path: Path) -> str:
    """What the box has written there."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            return file.read(_MOST_HOSTS).decode(errors="replace")
    except OSError:
        return ""


def _kill_all() -> None:
    """Every process that this one has started, however far down."""
    end = time.monotonic() + 10.0
    while time.monotonic() < end:
        found = processes.table()
        left = [found[pid] for pid in processes.descendants({os.getpid()}, found) if found[pid].state not in "ZX"]
        if not left:
            return
        for process in left:
            processes.send_signal(process, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.01)


if __name__ == "__main__":
    sys.exit(main())
