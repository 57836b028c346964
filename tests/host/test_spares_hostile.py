"""What a package of an environment sees and reaches that is imported before there is a run, and what of it is left to the run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.host.box import needs_box, needs_groups, needs_own_users
from tests.host.conftest import HostUnderTest, is_root, until
from tests.host.outside import needs_network_namespaces
from tests.host.spares import IN_A_SPARE, Runs, spares, start
from tests.index import Index, serving
from training_runtime.host import processes

pytestmark = [needs_box, needs_groups, needs_network_namespaces]
pytestmark += [pytest.mark.skipif(not is_root, reason="only root can give a run a root of its own")]

NOSY = """
import os, socket, sys
def attempt(action):
    try:
        return repr(action())[:2000]
    except BaseException as error:
        return type(error).__name__
def listed(top):
    return sorted(os.path.join(at, name) for at, folders, files in os.walk(top) for name in (*folders, *files))
def look(home, port):
    return {
        "runs": attempt(lambda: listed(home + "/runs")), "code": attempt(lambda: listed(home + "/code")),
        "data": attempt(lambda: listed(home + "/data")), "state": attempt(lambda: open(home + "/host/here/state.json").read()),
        "others": attempt(lambda: [pid for pid in os.listdir("/proc") if pid.isdigit() and int(pid) != os.getpid()]),
        "network": attempt(lambda: socket.create_connection(("127.0.0.1", port), timeout=2)),
        "shadow": attempt(lambda: open("/etc/shadow").read()), "root": attempt(lambda: open("/planted", "w")),
        "beside": attempt(lambda: open(home + "/runs/planted", "w")), "room": attempt(lambda: open("/.edt/planted", "w")),
        "own": attempt(lambda: open(sys.prefix + "/planted", "w")), "unshare": attempt(lambda: os.unshare(0x20000)) if
        hasattr(os, "unshare") else "PermissionError", "setuid": attempt(lambda: os.setuid(0)),
        "kill": attempt(lambda: os.kill(os.getppid(), 0)) if os.getppid() else "ProcessLookupError",
        "devices": attempt(lambda: sorted(name for name in os.listdir("/dev") if "nvidia" in name or name in ("dri", "infiniband"))),
    }
"""
SPIES = """
import json, nosy, os, threading
AHEAD = os.environ["TRAINING_ID"] == ""
FOUND = nosy.look({home!r}, {port})
if AHEAD:
    with open("/dev/shm/kept", "w") as file:
        file.write("kept")
    with open(os.path.join(os.environ["HOME"], "left"), "w") as file:
        file.write("left")
    os.symlink("/etc", os.path.join(os.environ["HOME"], "link"))
"""
SCRIPT = """
import json, os, nosy, spies
result = os.environ["RESULT_DIR"]
print(json.dumps({{"ahead": spies.AHEAD, "then": spies.FOUND, "now": nosy.look({home!r}, {port}), "result": result,
    "left": os.path.exists(result + "/left"), "link": os.path.islink(result + "/link"),
    "rename": nosy.attempt(lambda: os.replace(result + "/left", os.environ["TMPDIR"] + "/left"))}}))
"""
SHUT = ("state", "network", "shadow", "root", "beside", "room", "own", "unshare", "setuid", "kill")


@pytest.fixture
def index() -> Iterator[Index]:
    with serving() as served:
        yield served


def test_a_package_sees_nothing_of_any_run_before_there_is_one_and_no_more_than_any_run_after(
    idle_host: HostUnderTest, index: Index
) -> None:
    home, port = str(idle_host.home), int(index.url.rpartition(":")[2].partition("/")[0])
    index.add("nosy", "1.0", {"nosy.py": NOSY})
    index.add("spies", "1.0", {"spies.py": SPIES.format(home=home, port=port)}, requires=("nosy",))
    start(idle_host, index)
    needs_own_users(idle_host)
    runs = Runs(idle_host, "spies\n")
    script = SCRIPT.format(home=home, port=port)
    usual = runs.run(1, script)
    runs.until_spare()
    found = runs.run(2, script)
    assert runs.how(2).startswith(IN_A_SPARE)
    assert found["ahead"]
    assert not usual["ahead"]
    then = found["then"]
    assert {then[name] for name in ("runs", "code", "data", "others")} == {"[]"}
    assert then["devices"] in ("[]", "PermissionError")
    for name in SHUT:
        assert then[name].endswith("Error"), (name, then[name])
        assert found["now"][name].endswith("Error"), (name, found["now"][name])
        assert usual["now"][name].endswith("Error"), (name, usual["now"][name])
    assert "/runs/1" not in found["now"]["runs"], "the folder of the run before is nobody else's"
    assert (found["left"], found["link"], found["rename"]) == (True, True, "None"), (
        "what it wrote is in the run's folder, where it would be"
    )
    assert not Path(home, "runs", "planted").exists()
    assert not list(idle_host.folder.glob("environments/*/planted"))


def test_what_a_package_started_and_kept_open_ends_with_the_run(idle_host: HostUnderTest, index: Index) -> None:
    threads = "import threading\nTHREAD = threading.Thread(target=threading.Event().wait, daemon=True)\nTHREAD.start()\n"
    index.add("threads", "1.0", {"threads.py": threads})
    start(idle_host, index)
    runs = Runs(idle_host, "threads\n")
    script = "import json, os, threads\nprint(json.dumps([os.getpid(), threads.THREAD.is_alive()]))\n"
    runs.run(1, script)
    spare = runs.until_spare()
    assert runs.run(2, script) == [spare, True]
    assert runs.how(2).startswith(IN_A_SPARE)
    until(lambda: processes.look(spare) is None, what="it has ended with its run")


def test_one_that_says_what_it_was_not_asked_is_ended(idle_host: HostUnderTest, index: Index) -> None:
    """It finds the socket to the host among its descriptors, and says that it is another process, which is ready."""
    liar = """
import os, socket, stat
if os.environ["TRAINING_ID"] == "":
    for name in os.listdir("/proc/self/fd"):
        try:
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                os.write(int(name), b'{"prepared": 1}\\n{"pid": 1, "start_ticks": 1, "shim": 1, "shim_ticks": 1}\\n')
        except OSError:
            pass
"""
    index.add("liar", "1.0", {"liar.py": liar})
    start(idle_host, index)
    runs = Runs(idle_host, "liar\n")
    script = "import json, liar\nprint(json.dumps('done'))\n"
    runs.run(1, script)
    until(lambda: "it says more than it was asked" in idle_host.log(), what=idle_host.log)
    until(lambda: not spares(idle_host), what="it goes")
    assert runs.run(2, script) == "done"


TELLS = """
import importlib, os, socket, stat
def tell():
    for name in os.listdir("/proc/self/fd"):
        try:
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                os.write(int(name), {line!r})
        except OSError:
            pass
    return lambda: None
if os.environ["TRAINING_ID"] == "":
    {when}
"""


@pytest.mark.parametrize("line", [b"[" * 50_000 + b"\n", b"5\n"])
@pytest.mark.parametrize("when", ["tell()", "importlib.invalidate_caches = tell"])
def test_one_that_speaks_nonsense_ends_alone_before_its_run_is_known_and_after(
    idle_host: HostUnderTest, index: Index, line: bytes, when: str
) -> None:
    """`invalidate_caches` is called last before a spare process says that it is ready for its run's script."""
    index.add("tells", "1.0", {"tells.py": TELLS.format(line=line, when=when)})
    start(idle_host, index)
    runs, host = Runs(idle_host, "tells\n"), idle_host.process
    script = "import json, tells\nprint(json.dumps('done'))\n"
    runs.run(1, script)
    until(lambda: "modules=" in idle_host.log() or "are started the usual way" in idle_host.log(), what=idle_host.log)
    assert runs.run(2, script) == "done"
    assert host is not None and host.poll() is None, "the host goes on"
    assert "Traceback" not in idle_host.log()


def test_one_takes_no_more_memory_than_it_may_while_it_waits(idle_host: HostUnderTest, index: Index) -> None:
    greedy = "import os\nif os.environ['TRAINING_ID'] == '':\n    KEPT = [b'x' * (64 << 20) for _ in range(40)]\n"
    index.add("greedy", "1.0", {"greedy.py": greedy})
    start(idle_host, index)
    runs = Runs(idle_host, "greedy\n")
    script = "import json, greedy\nprint(json.dumps('done'))\n"
    runs.run(1, script)
    until(lambda: "its spare process ended" in idle_host.log(), what=idle_host.log, deadline_s=60)
    until(lambda: not spares(idle_host), what="it goes")
    assert runs.run(2, script) == "done"
