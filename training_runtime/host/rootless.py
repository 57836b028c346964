"""Without root, a user of its own for each run: from the range of ids that a machine sets aside for each of its people, see subuid(5).

As rootless containers do it. A program of the studio moves into a user namespace in which its own user is root and the ids of the range are
the others; from there on it does what it does as root, but over nothing that is not its own user's or of these ids. Programs that do so one
after another see the same ids in files. Who signals processes has to be in the same namespace: so who comes while runs train goes where
they are.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from training_runtime.errors import RootlessUnavailable
from training_runtime.host.sandbox import kernel

SETTING = "EDT_ROOTLESS"
MARK = "rootless"  # in a home: whose runs had users of their own without root
UID_BASE = 10_000  # inside: what is below are numbers that programs take for users of the system
NEEDED = 60_000  # ids: those below, and levels.RUN_USERS
ADVICE = f"not root: with {SETTING}=1 each run has a user of its own here"
_TOOLS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_TAKE_BACK = f"python -m training_runtime.host.rootless chown -R 0:0 {{home}} && rm {{home}}/{MARK}"


def should_move(said: str, *, marked: bool) -> bool:
    """Whether a program with this setting moves, for a home that is marked or not. Raises RootlessUnavailable with what to do."""
    if said not in ("", "0", "1"):
        raise RootlessUnavailable(f"{SETTING}={said!r}: 1, or 0 for no")
    if said == "0" and marked:
        raise RootlessUnavailable(
            f"{SETTING}=0, and files in this home belong to users that only exist with {SETTING}=1. Leave the setting away, or give all of "
            f"them to your own user first, while nothing runs here: {_TAKE_BACK.format(home='HOME')}"
        )
    return said == "1" or marked


def range_for(table: str, *, names: tuple[str, ...]) -> tuple[int, int] | None:
    """The longest range (first id, how many) that the text of /etc/subuid or /etc/subgid gives to somebody who has these names."""
    found = []
    for line in table.splitlines():
        with contextlib.suppress(ValueError):
            name, first, count = line.strip().split(":")
            if name in names:
                found.append((int(first), int(count)))
    return max(found, key=lambda each: each[1], default=None)


def enter(home: Path, said: str) -> None:
    """Where it is wanted, the calling process, which has one thread, moves; who is root stays. `said`: the setting. Raises
    RootlessUnavailable with a sentence, after which the process must end."""
    if os.geteuid() == 0 or not should_move(said, marked=_is_marked(home)):
        return
    move(home)
    with contextlib.suppress(OSError):
        home.mkdir(parents=True, exist_ok=True, mode=0o755)
        (home / MARK).touch()


def _is_marked(home: Path) -> bool:
    with contextlib.suppress(OSError):  # what is wrong with the home is said by who uses it
        return (home / MARK).exists()
    return False


def move(home: Path | None = None) -> None:
    """The calling process is root of a user namespace with a range of ids: of that in which runs of this home train, if any do."""
    survivor = next(_survivors(home), None) if home is not None else None
    try:
        if survivor is not None:
            kernel.join_namespace(survivor)
            os.close(survivor)
        else:
            _begin()
        kernel.copy_of_mounts()  # those that are its own, so that it can show some of them to runs
        kernel.set_dumpable()
        _become_another()
    except OSError as error:
        raise RootlessUnavailable(
            f"{SETTING} asks for users of their own for runs, and this machine does not let its people make them ({error}). See "
            "user.max_user_namespaces, kernel.apparmor_restrict_unprivileged_userns (Ubuntu), and NoNewPrivileges of a service."
        ) from None


def would_help() -> bool:
    """Whether a program that is not root finds here what it takes to `move`: it may not succeed all the same."""
    if os.geteuid() == 0:
        return False
    with contextlib.suppress(RootlessUnavailable):
        return bool(_mapping("uid", os.getuid()) and _mapping("gid", os.getgid()))
    return False


def _survivors(home: Path) -> Iterator[int]:
    """Namespaces (descriptors) in which processes have files of this home's hosts open: a host, or what keeps a run (`runs.shim`), which an
    earlier program has left."""
    own, below = Path("/proc/self/ns/user").stat().st_ino, f"{home.resolve()}/host/"
    for folder in Path("/proc").glob("[1-9]*"):
        with contextlib.suppress(OSError):  # somebody else's, or it is gone
            if (folder / "ns/user").stat().st_ino == own or not any(_leads_to(fd, below) for fd in (folder / "fd").iterdir()):
                continue
            yield os.open(folder / "ns/user", os.O_RDONLY | os.O_CLOEXEC)


def _leads_to(link: Path, below: str) -> bool:
    with contextlib.suppress(OSError):
        return str(link.readlink()).startswith(below)
    return False


def _begin() -> None:
    """A new namespace. Who maps the ids has to be outside it: a child from before."""
    maps = [_mapping("uid", os.getuid()), _mapping("gid", os.getgid())]
    (gate, go), (answers, tells) = os.pipe(), os.pipe()
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        os.close(go)
        os._exit(_map_ids(parent, maps, gate=gate, tells=tells))
    os.close(gate)
    os.close(tells)
    try:
        kernel.bare_user_namespace()
        os.write(go, b"g")
    finally:
        os.close(go)
        with open(answers, "rb") as pipe:
            problem = pipe.read().decode(errors="replace").strip()
        os.waitpid(child, 0)
    if problem:
        raise OSError(problem)
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)


def _mapping(kind: str, own: int) -> list[str]:
    """The command that maps ids of one kind, less the process's number: its second word."""
    tool = shutil.which(f"new{kind}map", path=_TOOLS)
    if tool is None:
        raise RootlessUnavailable(f"{SETTING} needs new{kind}map (Debian, Ubuntu: package uidmap; Fedora: shadow-utils).")
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        raise RootlessUnavailable(f"{SETTING} needs a user that the machine has a name for, and {os.getuid()} has none.") from None
    with contextlib.suppress(OSError):
        found = range_for(Path(f"/etc/sub{kind}").read_text(), names=(name, str(os.getuid())))
        if found is not None and found[1] >= NEEDED:
            return [tool, "", "0", str(own), "1", "1", str(found[0]), str(found[1])]
    raise RootlessUnavailable(
        f"{SETTING} needs {NEEDED} ids that /etc/sub{kind} sets aside for {name}. An administrator does that once, with a range that is "
        f"free there: usermod --add-sub{kind}s 100000-165535 {name}"
    )


def _map_ids(process: int, maps: list[list[str]], *, gate: int, tells: int) -> int:
    if not os.read(gate, 1):
        return 1
    for tool, _, *numbers in maps:
        done = subprocess.run([tool, str(process), *numbers], capture_output=True, text=True, check=False)
        if done.returncode:
            os.write(tells, (done.stderr.strip() or f"{tool} ended with {done.returncode}")[:1000].encode())
            return 1
    return 0


def _become_another() -> None:
    """Whether a child can be the first and the last of the users of runs: where it cannot, nothing is kept apart. Raises OSError."""
    child = os.fork()
    if child == 0:
        code = 1
        with contextlib.suppress(OSError):
            os.setgroups([])
            os.setresgid(UID_BASE, UID_BASE, UID_BASE)
            os.setresuid(UID_BASE, UID_BASE, UID_BASE)
            code = 0
        os._exit(code)
    if os.waitpid(child, 0)[1]:
        raise OSError("a process there cannot become another user")


def main() -> int:
    """`python -m training_runtime.host.rootless COMMAND ...`: a command as programs of a studio with EDT_ROOTLESS see its files."""
    if len(sys.argv) < 2:
        sys.stderr.write("python -m training_runtime.host.rootless COMMAND ...\n")
        return 2
    try:
        if os.geteuid() != 0:
            move()
        os.execvp(sys.argv[1], sys.argv[1:])  # noqa: S606
    except (RootlessUnavailable, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
