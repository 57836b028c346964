"""Somebody without any right on this machine but a range of ids of their own, as `adduser` makes a person: commands run as them.

What this machine says of its users is as it was: the commands see other tables of them, in a mount namespace of their own. There the
interpreter and this checkout can be reached too, where they lie in a folder that is closed to others.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.e2e.studio import REPOSITORY

NAME, USER = "somebody", 65_533
IDS = 65_536
_TABLES = ("passwd", "group", "subuid", "subgid")
_ENTER = f"""
set -e
folder=$1 closed=$2 user=$3; shift 3
mount --make-rprivate /
for table in {" ".join(_TABLES)}; do mount --bind "$folder/$table" "/etc/$table"; done
IFS=:
for path in $closed; do
    above=/$(echo "${{path#/}}" | cut -d/ -f1)
    mount --bind "$path" "$folder/held"
    mount -t tmpfs -o mode=755 none "$above"
    mkdir -p "$path"
    mount --move "$folder/held" "$path"
done
unset IFS
cd "$PWD"
[ "$user" = 0 ] && exec "$@"
export HOME="$folder/home"
exec setpriv --reuid="$user" --regid="$user" --clear-groups -- "$@"
"""


def problem() -> str:
    """Why there can be no such person here; empty where there can."""
    if os.geteuid() != 0:
        return "only root can run something as somebody else"
    absent = [tool for tool in ("newuidmap", "newgidmap", "unshare", "setpriv") if shutil.which(tool) is None]
    if absent:
        return f"{', '.join(absent)} not installed (Debian: uidmap, util-linux)"
    done = subprocess.run(["unshare", "--mount", "--user", "true"], capture_output=True, text=True, check=False)
    return f"no namespaces here: {done.stderr}" if done.returncode else ""


def commands_as_somebody(folder: Path, *, first: int) -> tuple[str, ...]:
    """What stands before a command that is theirs. `folder`: for their tables and their home; `first`: of their ids, 0: they have none."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    (folder / "held").mkdir(exist_ok=True)
    (folder / "home").mkdir(exist_ok=True)
    os.chown(folder / "home", USER, USER)
    for table, line in (("passwd", f"{NAME}:x:{USER}:{USER}::{folder}/home:/bin/sh"), ("group", f"{NAME}:x:{USER}:")):
        (folder / table).write_text(f"{Path('/etc', table).read_text().rstrip()}\n{line}\n")
    for table in ("subuid", "subgid"):
        (folder / table).write_text(f"{NAME}:{first}:{IDS}\n" if first else "")
        Path("/etc", table).touch()  # what is bound over a file needs one
    return _command(folder, USER)


def commands_that_know_somebody(folder: Path) -> tuple[str, ...]:
    """The same for commands that stay root's, after that: of a service that starts what is somebody's as somebody."""
    return _command(folder, 0)


def _command(folder: Path, user: int) -> tuple[str, ...]:
    return ("unshare", "--mount", "sh", "-c", _ENTER, "sh", str(folder), ":".join(_closed()), str(user))


def _closed() -> list[str]:
    """What somebody needs, and cannot reach as the folders on the way to it are; one for each folder of the root."""
    needed = [Path(sys.base_prefix).resolve(), Path(sys.prefix).resolve(), REPOSITORY]
    found = [path for path in needed if not all(above.stat().st_mode & 0o001 for above in path.parents)]
    return list({path.parts[1]: str(path) for path in reversed(found)}.values())
