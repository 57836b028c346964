"""Ends the studio that runs with a home, from outside: all of it, all but the node host, or the host alone. Each sends a signal and waits
for what comes of it; nobody is signalled who does not hold the studio's lock, or is not written down with the time of its start."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

from training_runtime.host.processes import Process, alive, holder, look
from webapp.studio.checks import Refusal
from webapp.studio.processes import end_alone, written_down
from webapp.studio.supervisor import LEAVE

LOOK_S = 0.1
STATES_S = 960.0  # for runs to write their states, as long as the host itself waits
CONTROL_S = 60.0  # for all but the host


def end_studio(home: Path, *, keep_host: bool) -> None:
    """`keep_host`: the node host and its runs go on. Raises Refusal where no studio runs, or it does not end."""
    studio = running(home)
    if studio is None:
        raise Refusal(f"No studio with this data ({home}) runs here.")
    os.kill(studio.pid, LEAVE if keep_host else signal.SIGTERM)
    end = time.monotonic() + (CONTROL_S if keep_host else STATES_S)
    while alive(studio.pid, studio.start_ticks):
        if time.monotonic() > end:
            raise Refusal(f"The studio (process {studio.pid}) has not ended yet; see {home}/log/studio.log.")
        time.sleep(LOOK_S)


def end_host(home: Path, node: str) -> int:
    """The node host's own process, whose runs train on; its number. `node`: the machine's name. Raises Refusal where there is none."""
    host = written_down(home / "run" / "host.pid") or holder(home / "host" / node / "host.lock")
    if host is None:
        raise Refusal(f"No node host of a studio with this data ({home}) runs here.")
    end_alone(host)
    return host.pid


def running(home: Path) -> Process | None:
    """The process that has written itself into the lock on EDT_HOME and has that open."""
    lock = home / "run" / "studio.lock"
    found = re.search(r"process (\d+)\s*$", lock.read_text()) if lock.exists() else None
    process = look(int(found[1])) if found else None
    if process is None or lock.resolve() not in _open_files(process.pid):
        return None  # its number is another's by now
    return process


def _open_files(pid: int) -> set[Path]:
    try:
        return {each.readlink() for each in Path(f"/proc/{pid}/fd").iterdir()}
    except OSError:
        return set()
