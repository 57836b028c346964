"""Spare processes: the packages of an environment are imported before the run that needs them begins, and all else is as ever for it."""

from __future__ import annotations

import os
import re
import signal
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.groups import group_of
from tests.host.box import needs_box, needs_groups, needs_own_users
from tests.host.conftest import HostUnderTest, is_root, until
from tests.host.outside import needs_network_namespaces
from tests.host.spares import IN_A_SPARE, THE_USUAL_WAY, Runs, spares, start, start_with_the_real_driver
from tests.index import Index, serving

pytestmark = [
    needs_box,
    needs_groups,
    needs_network_namespaces,
    pytest.mark.skipif(not is_root, reason="only root can give a run a root of its own"),
]

HEAVY = """
import os, sys, tempfile, warnings
from pathlib import Path
PID, HOME, FOLDER = os.getpid(), os.environ["HOME"], os.getcwd()
TEMPORARY = tempfile.gettempdir()
SEES = sorted(os.environ)
print("heavy speaks")
warnings.warn("heavy warns")
Path(HOME, "of-heavy").write_text("written when it was imported")
os.environ.setdefault("SAID_BY_HEAVY", "yes")
"""
SHOW = """
import json, os, random, signal, sys, threading
import heavy
import numpy, torch
result = os.environ["RESULT_DIR"]
print(json.dumps({
    "argv": [word.replace(result, "R") for word in sys.argv], "folder": os.getcwd().replace(result, "R"),
    "path": [path.replace(result, "R") for path in sys.path],
    "name": __name__,
    "file": __file__.replace(result, "R"), "environ": {name: value.replace(result, "R") for name, value in sorted(os.environ.items())
                                  if name not in ("TRAINING_ID", "DLI_EXECID") and not name.startswith("MLFLOW_")},
    "random": [random.random(), float(numpy.random.rand()), float(torch.rand(1))], "uid": os.getuid(), "groups": os.getgroups(),
    "threads": [thread.name for thread in threading.enumerate()], "umask": os.umask(0o027),
    "signals": {str(n): str(signal.getsignal(n)) for n in sorted(signal.valid_signals())},
    "same": [os.path.samefile(heavy.HOME, result), os.path.samefile(heavy.TEMPORARY, os.environ["TMPDIR"])],
    "kept": open(os.path.join(result, "of-heavy")).read(), "status": [line for line in open("/proc/self/status")
        if line.split(":")[0] in ("NoNewPrivs", "Seccomp", "CapPrm", "CapEff", "CapBnd", "CapAmb")],
    "limits": open("/proc/self/limits").read(), "oom": open("/proc/self/oom_score_adj").read(),
    "stdin": os.readlink("/proc/self/fd/0"), "prefix": sys.prefix, "modules": "heavy" in sys.modules}))
"""


QUIET = "import json, heavy\nprint(json.dumps('done'))\n"


@pytest.fixture(scope="module")
def index() -> Iterator[Index]:
    with serving() as served:
        served.add("heavy", "1.0", {"heavy.py": HEAVY})
        yield served


@pytest.fixture
def host(idle_host: HostUnderTest, index: Index) -> HostUnderTest:
    start(idle_host, index)
    needs_own_users(idle_host)
    return idle_host


def printed_before(host: HostUnderTest, number: int) -> list[str]:
    """What the run's packages have printed when they were imported."""
    return host.console(number).strip().splitlines()[:-1]


def test_the_second_run_finds_its_packages_imported_and_all_else_as_the_first_did(idle_host: HostUnderTest, index: Index) -> None:
    host = idle_host
    start_with_the_real_driver(host, index)
    runs = Runs(host, "heavy\n", puppet=False)
    first = runs.run(1, SHOW, "--lr", "1")
    assert runs.how(1).startswith(THE_USUAL_WAY)
    spare = runs.until_spare()
    second = runs.run(2, SHOW, "--lr", "1")
    assert runs.how(2).startswith(IN_A_SPARE), host.log()
    assert f"run=2 attempt=1 pid={spare}" in host.log()
    assert (first.pop("uid"), second.pop("uid")) != (0, 0)
    assert second == first

    assert printed_before(host, 2) == printed_before(host, 1)
    until(lambda: spares(host) and spare not in spares(host), what="the next one is made")


SETS = """
import json, os
first = {name: os.environ.get(name) for name in ("SAID_BY_SCRIPT", "SAID_BY_HEAVY", "LANG")}
os.environ["SAID_BY_SCRIPT"] = os.environ["RESULT_DIR"] + "/said"
os.environ["SAID_BY_HEAVY"] = "no"
del os.environ["LANG"]
import heavy
os.environ["SAID_BY_SCRIPT"] = "later"
import late
result = os.environ["RESULT_DIR"]
saw = {name: value.replace(result, "R").replace("/.edt/run", "R") for name, value in {**heavy.SAW, **late.SAW}.items()}
print(json.dumps([first, saw, os.environ["SAID_BY_HEAVY"]]))
"""


def test_packages_find_the_variables_that_the_script_sets_before_it_imports_them_and_the_script_does_not(
    idle_host: HostUnderTest, index: Index
) -> None:
    heavy = HEAVY + "SAW = {name: os.environ.get(name, '') for name in ('SAID_BY_SCRIPT', 'SAID_BY_HEAVY', 'LANG')}\n"
    index.add("sees", "1.0", {"heavy.py": heavy, "late.py": "import os\nSAW = {'late': os.environ['SAID_BY_SCRIPT']}\n"})
    start_with_the_real_driver(idle_host, index)
    runs = Runs(idle_host, "sees\n", puppet=False)
    first = runs.run(1, SETS)
    assert first == [
        {"SAID_BY_SCRIPT": None, "SAID_BY_HEAVY": None, "LANG": first[0]["LANG"]},
        {"SAID_BY_SCRIPT": "R/said", "SAID_BY_HEAVY": "no", "LANG": "", "late": "later"},
        "no",
    ]
    runs.until_spare()
    assert runs.run(2, SETS) == first
    assert runs.how(2).startswith(IN_A_SPARE), idle_host.log()


def test_a_name_that_a_module_gets_later_as_well_costs_no_spare(host: HostUnderTest, index: Index) -> None:
    index.add("named", "1.0", {"named.py": "import sys\ndef name():\n    sys.modules['once'] = sys.modules[__name__]\n"})
    runs = Runs(host, "named\n")
    script = "import json, sys, named\nbefore = 'once' in sys.modules\nnamed.name()\nprint(json.dumps(before))\n"
    assert runs.run(1, script) is False
    runs.until_spare()
    assert runs.run(2, script) is False
    assert runs.how(2).startswith(IN_A_SPARE), host.log()


@pytest.fixture
def device() -> Iterator[Path]:
    """One that is called as those of a GPU, and gives zeros."""
    path = Path("/dev", f"nvidia-edt-{os.getpid()}")
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))
    except OSError as error:
        pytest.skip(f"no device can be made here: {error}")
    path.chmod(0o666)
    yield path
    path.unlink()


def test_a_run_in_a_spare_process_can_open_the_devices_that_it_is_shown(device: Path, host: HostUnderTest) -> None:
    runs = Runs(host, "heavy\n")
    opens = f"import json, os, heavy\nopened = os.open({str(device)!r}, os.O_RDWR)\nprint(json.dumps(len(os.read(opened, 3))))\n"
    assert runs.run(1, opens) == 3
    runs.until_spare()
    assert runs.run(2, opens) == 3
    assert runs.how(2).startswith(IN_A_SPARE), host.log()


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"user": "bob"}, "is of a run of another person"),
        ({"env": {"HF_HOME": "/x"}}, "is of a run with other variables (HF_HOME)"),
        ({"secrets": {"KEY": "not for strangers"}}, "it has secrets"),
        ({"elastic": False, "max_slots": 2, "wanted": 2}, "other variables|other slots"),
    ],
)
def test_a_run_that_differs_is_started_the_usual_way_and_the_log_says_why(host: HostUnderTest, changed: dict[str, Any], why: str) -> None:
    slots = range(changed.pop("wanted", 0))
    runs = Runs(host, "heavy\n")
    runs.run(1, QUIET)
    runs.until_spare()
    assert runs.run(2, QUIET, slots=tuple(slots), **changed) == "done"
    assert runs.how(2).startswith(THE_USUAL_WAY)
    assert re.search(why.replace("(", r"\(").replace(")", r"\)"), runs.how(2)), runs.how(2)


@pytest.mark.parametrize(
    ("name", "code", "why"),
    [
        ("draws", "import random\nrandom.random()", "an import draws random numbers, or seeds their generators"),
        ("sets", "import os\nos.environ['LANG'] = 'C'", "an import changes environment variables of the run"),
        ("paths", "import sys\nsys.path.insert(0, '/x')", "an import changes sys.path, sys.argv or the working folder"),
        ("forks", "import subprocess\nP = subprocess.Popen(['sleep', '600'])", "its packages start processes when they are imported"),
        (
            "fails",
            "import os\nif os.environ['TRAINING_ID'] == '':\n    raise ValueError('no run')",
            "cannot be imported: ValueError: no run",
        ),
        ("dies", "import os\nif os.environ['TRAINING_ID'] == '':\n    os._exit(3)", "its spare process ended"),
    ],
)
def test_packages_that_a_script_would_find_changed_get_no_spare(host: HostUnderTest, index: Index, name: str, code: str, why: str) -> None:
    index.add(name, "1.0", {f"{name}.py": code})
    runs = Runs(host, f"{name}\n")
    script = f"import json, {name}\nprint(json.dumps('done'))\n"
    assert runs.run(1, script) == "done"
    until(lambda: "are started the usual way" in host.log(), what=host.log)
    assert why in host.log()
    until(lambda: not spares(host), what="it goes")
    assert runs.run(2, script) == "done"
    assert runs.how(2).startswith(THE_USUAL_WAY)


def test_a_spare_that_is_killed_is_missed_by_nobody(host: HostUnderTest) -> None:
    runs = Runs(host, "heavy\n")
    runs.run(1, QUIET)
    os.kill(runs.until_spare(), signal.SIGKILL)
    until(lambda: "its spare process ended" in host.log(), what=host.log)
    assert runs.run(2, QUIET) == "done"
    assert runs.how(2).startswith(THE_USUAL_WAY)


def test_a_run_whose_script_would_import_something_else_from_beside_itself_begins_anew_the_usual_way(host: HostUnderTest) -> None:
    runs = Runs(host, "heavy\n")
    first = runs.spec(1, QUIET)
    runs.ends(first)
    runs.until_spare()
    Path(first.code_dir, "heavy.py").write_text("")
    assert runs.run(2, QUIET) == "done"
    assert runs.how(2).startswith(THE_USUAL_WAY)
    assert "heavy lies beside the script" in host.log()
    assert re.search("a driver runs run=2 attempt=2", host.log())


def test_a_run_that_was_given_a_spare_goes_on_as_the_same_user_in_its_next_attempt(host: HostUnderTest) -> None:
    runs = Runs(host, "heavy\n")
    script = """
import json, os, signal, heavy
print(json.dumps([os.getuid(), os.stat(os.environ["RESULT_DIR"]).st_uid]), flush=True)
if os.environ["TRAINING_ID"] == "2" and not os.path.exists("again"):
    open("again", "w").close()
    os.kill(os.getpid(), signal.SIGKILL)
"""
    runs.run(1, script)
    runs.until_spare()
    own, folder = runs.run(2, script)
    assert own == folder
    assert re.search(f"run=2 attempt=2 pid=.* uid={own}", host.log()), host.log()
    assert "it goes on where an earlier attempt was" in runs.how(2)


def test_one_whose_environment_is_deleted_goes(host: HostUnderTest) -> None:
    runs = Runs(host, "heavy\n")
    runs.run(1, QUIET)
    spare = runs.until_spare()
    runs.tell(drop=(runs.environment,))
    runs.tell(drop=(runs.environment,))
    until(lambda: spare not in spares(host), what=host.log)
    assert "its environment is not there any more" in host.log()


def test_nothing_is_left_when_the_host_ends(idle_host: HostUnderTest, index: Index) -> None:
    start(idle_host, index)
    runs = Runs(idle_host, "heavy\n")
    runs.run(1, QUIET)
    runs.until_spare()
    assert idle_host.terminate() == 0
    assert not idle_host.processes()


def test_one_of_a_host_that_was_killed_goes_even_if_it_will_not(idle_host: HostUnderTest, index: Index) -> None:
    index.add(
        "stays",
        "1.0",
        {
            "stays.py": "import json, signal\nif __import__('os').environ['TRAINING_ID'] == '':\n"
            "    json.loads = lambda text: [signal.pause() for _ in iter(int, 1)]\n"
        },
    )
    start(idle_host, index)
    runs = Runs(idle_host, "stays\n")
    runs.run(1, "import json, stays\nprint(json.dumps('done'))\n")
    spare = runs.until_spare()
    idle_host.kill()
    assert spare in spares(idle_host)
    start(idle_host, index)
    until(lambda: spare not in spares(idle_host), what=idle_host.log)


def test_an_honest_one_goes_with_a_host_that_is_killed(idle_host: HostUnderTest, index: Index) -> None:
    start(idle_host, index)
    runs = Runs(idle_host, "heavy\n")
    runs.run(1, QUIET)
    runs.until_spare()
    idle_host.kill()
    until(lambda: not spares(idle_host), what="it goes by itself")


def test_a_run_that_outlives_its_host_shares_its_control_group_with_nobody(idle_host: HostUnderTest, index: Index) -> None:
    host = idle_host
    start(host, index)
    runs = Runs(host, "heavy\n")
    script = """
import json, os, time, heavy
while os.environ["TRAINING_ID"] == "2" and not os.path.exists(os.environ["RESULT_DIR"] + "/go"):
    time.sleep(0.01)
print(json.dumps("done"))
"""
    runs.run(1, script)
    first = runs.until_spare()
    host.want(runs.spec(2, script))
    runs.tell()
    until(lambda: f"a driver runs run=2 attempt=1 pid={first}" in host.log(), what=host.log)
    host.kill()
    start(host, index)
    runs.run(3, script)
    second = runs.until_spare()
    assert group_of(first, "memory").name != group_of(second, "memory").name
    (host.result(2) / "go").touch()
    host.until_run(2, lambda run: run.exit_code == 0)


def test_an_administrator_can_do_without(idle_host: HostUnderTest, index: Index) -> None:
    start(idle_host, index, EDT_SPARES="0")
    runs = Runs(idle_host, "heavy\n")
    for number in (1, 2):
        assert runs.run(number, QUIET) == "done"
    assert "spare" not in idle_host.log()
