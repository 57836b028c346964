"""Secrets of a run on a real node host: its script has them, and nothing that is written has."""

from __future__ import annotations

import dataclasses
import os
import signal
from pathlib import Path

from tests.host.conftest import HostUnderTest, until
from tests.host.test_runs import is_gone
from training_runtime.protocol import RunSpec

SECRET = "hf_s3cret-0f-al1ce"
KEY = f"-----BEGIN KEY-----\n{SECRET[::-1]}\n-----END KEY-----\n"
PRINTS = r"""
import os, subprocess, sys, time
token, key = os.environ["TOKEN"], os.environ["KEY"]
assert os.environ["PLAIN"] == "shown" and "\n" in key
print("token", token, "plain", os.environ["PLAIN"], flush=True)
print(key, {"KEY": key}, flush=True)
os.write(1, b"in two " + token[:9].encode())
open(os.environ["RESULT_DIR"] + "/half", "w").close()
while not os.path.exists(os.environ["RESULT_DIR"] + "/go"):
    time.sleep(0.005)
os.write(1, token[9:].encode() + b" pieces\n")
subprocess.run([sys.executable, "-c", "import os; print('child', os.environ['TOKEN'])"], check=True)
subprocess.run(["sh", "-c", 'echo "shell $TOKEN"; echo "$TOKEN" >&2'], check=True)
for number in range(20000):
    print("line", number, token)
"""


def spec(host: HostUnderTest, *argv: str, code: dict[str, str] | None = None, attempt: int = 1) -> RunSpec:
    made = host.spec(7, *argv, code=code, env={"PLAIN": "shown"}, attempt=attempt)
    return dataclasses.replace(made, secrets={"TOKEN": SECRET, "KEY": KEY})


def found_in(home: Path, *values: str) -> list[Path]:
    """The files below that contain one."""
    raw = [value.encode() for value in values]
    return [path for path in home.rglob("*") if path.is_file() and any(value in path.read_bytes() for value in raw)]


def test_what_a_script_and_its_children_print_is_written_without_them(host: HostUnderTest) -> None:
    host.want(spec(host, "script", "main.py", code={"main.py": PRINTS}), 1)
    host.apply()
    until(lambda: (host.result(7) / "half").exists() and "in two" in host.console(7), what=host.console(7) + host.log())
    assert host.console(7).endswith("in two "), "its beginning waits for the rest"
    (host.result(7) / "go").touch()
    assert host.until_run(7, lambda run: run.state == "exited").exit_code == 0, host.console(7)
    lines = host.console(7).splitlines()
    assert lines[0] == "token *** plain shown"
    assert lines[1:5] == ["***", "***", "***", " {'KEY': '***\\n***\\n***\\n'}"]
    assert lines[5:9] == ["in two *** pieces", "child ***", "shell ***", "***"]
    assert lines[9:] == [f"line {number} ***" for number in range(20000)]
    assert found_in(host.home, SECRET, SECRET[::-1]) == []


def test_no_program_that_the_run_starts_is_shown_them_by_its_command_line(host: HostUnderTest) -> None:
    host.want(spec(host, "obey"), 1, 2)
    host.apply()
    host.until_holding(7, 1, 2)
    everything = [Path(f"/proc/{process.pid}/cmdline").read_bytes() for process in host.processes()]
    assert everything
    assert not [line for line in everything if SECRET.encode() in line]
    assert found_in(host.home, SECRET) == []


def test_what_was_printed_before_a_kill_is_written_and_hidden(host: HostUnderTest) -> None:
    code = (
        "import os, signal\nfor _ in range(300):\n    print('x' * 90, os.environ['TOKEN'], flush=True)\n"
        "os.write(1, b'last ' + os.environ['TOKEN'][:12].encode())\nos.kill(os.getpid(), signal.SIGKILL)\n"
    )
    for attempt in range(1, 5):  # it is started again, three times
        host.want(spec(host, "script", "main.py", code={"main.py": code}), 1)
        host.apply()
        if attempt == 1:
            ended = host.until_run(7, lambda run: run.exit_code is not None)
    assert ended.exit_code == -signal.SIGKILL
    assert host.console(7) == (f"{'x' * 90} ***\n" * 300 + "last ***") * 4


def test_the_next_attempt_has_the_values_of_then(host: HostUnderTest) -> None:
    code = {"main.py": "import os\nprint(os.environ['TOKEN'][::-1], os.environ['TOKEN'])\n"}
    host.want(spec(host, "script", "main.py", code=code), 1)
    host.apply()
    host.until_run(7, lambda run: run.exit_code == 0)
    renewed = dataclasses.replace(spec(host, "script", "main.py", attempt=2), secrets={"TOKEN": "another-0ne"})
    host.want(renewed, 1)
    host.apply()
    host.until_run(7, lambda run: run.attempt == 2 and run.exit_code == 0)
    assert host.console(7) == "*** ***\nen0-rehtona ***\n"


def test_a_process_that_outlives_the_script_keeps_nobody_waiting(host: HostUnderTest) -> None:
    """It holds the pipe open; that is for the host to end."""
    code = "import os, subprocess\nsubprocess.Popen(['sleep', '1000'], start_new_session=True)\nprint(os.environ['TOKEN'])\n"
    host.want(spec(host, "script", "main.py", code={"main.py": code}), 1)
    host.apply()
    assert host.until_run(7, lambda run: run.exit_code is not None).exit_code == 0
    assert host.console(7) == "***\n"


def test_a_host_that_knows_nothing_finds_a_run_whose_shim_writes_its_log(own_host: HostUnderTest) -> None:
    host = own_host
    host.want(spec(host, "obey"), 1)
    host.apply()
    host.until_holding(7, 1)
    driver = host.pid(7)
    os.kill(host.warm_pid(), signal.SIGKILL)
    host.kill()
    (host.folder / "state.json").write_text("torn")
    host.start()
    host.want(spec(host, "obey"), 1)
    until(lambda: host.apply().revision == host.revision, what="it waits until what it has found has ended")
    host.until_run(7, lambda run: run.attempt == 2 and run.state == "running")
    assert is_gone(driver)
    assert "found among the processes run=7" in host.log()


def test_hostile_words_to_the_shim_do_it_no_harm(host: HostUnderTest) -> None:
    code = r"""
import os, socket
from training_runtime import console
shim = socket.socket(fileno=os.dup(console.shim_fd()))
read, write = os.pipe()
folder = os.open("/", os.O_PATH)
for message in (b"log", b"settle", b"secrets", b"x" * 60000, b"log\0"):
    for fds in ([], [read], [folder], [folder, folder], [read, read], [write, folder], [folder, write]):
        socket.send_fds(shim, [message], fds)
print(os.environ["TOKEN"], "is not shown", flush=True)
"""
    host.want(spec(host, "script", "main.py", code={"main.py": code}), 1)
    host.apply()
    assert host.until_run(7, lambda run: run.exit_code is not None).exit_code == 0, host.console(7)
    assert host.console(7) == "*** is not shown\n"


def test_a_run_without_secrets_writes_its_log_itself(host: HostUnderTest) -> None:
    code = "import os\nprint(os.readlink('/proc/self/fd/1'))\n"
    host.want(host.spec(7, "script", "main.py", code={"main.py": code}), 1)
    host.apply()
    host.until_run(7, lambda run: run.exit_code == 0)
    assert host.console(7).strip() == str(host.result(7) / "log" / "driver" / "console.log")
