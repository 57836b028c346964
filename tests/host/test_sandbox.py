"""One attempt to break out for each thing that the box promises. The user code is real, the host is real, and so is the kernel."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.host.conftest import NODE, HostUnderTest, has_landlock, is_root, until
from training_runtime.host import sandbox

needs_landlock = pytest.mark.skipif(not has_landlock, reason="this kernel has no Landlock")
needs_root = pytest.mark.skipif(not is_root, reason="only root can give each run its own user")
needs_box = pytest.mark.skipif(not (has_landlock or is_root), reason="this machine can box nothing in: no Landlock, not root")


@pytest.fixture(scope="module", params=["own users", "one user"])
def users(request: pytest.FixtureRequest) -> str:
    """Each promise is kept at both levels, except where a test says otherwise."""
    if request.param == "own users" and not is_root:
        pytest.skip("only root can give each run its own user")
    if request.param == "one user" and not has_landlock:
        pytest.skip("this kernel has no Landlock")
    return str(request.param)


def needs_own_users(host: HostUnderTest) -> None:
    if "user" not in host.look().node.sandbox_level:
        pytest.skip("promised only where each run has its own user")


ATTEMPT = """
import json, os, sys
from pathlib import Path
def attempt(action):
    try:
        return ["done", repr(action())[:300]]
    except BaseException as error:
        return [type(error).__name__, str(error)[:300]]
findings = {}
%s
Path(os.environ["RESULT_DIR"], "findings.json").write_text(json.dumps(findings))
"""


def try_in_the_box(host: HostUnderTest, body: str, *, run: int = 7, env: dict[str, str] | None = None) -> dict:
    """Runs `body` as user code; it fills `findings[name] = attempt(callable)`: ["done", ...] or [error, ...]."""
    host.want(host.spec(run, "script", "main.py", code={"main.py": ATTEMPT % body}, env=env))
    host.apply()
    seen = host.until_run(run, lambda seen: seen.state == "exited", deadline_s=40)
    assert seen.exit_code == 0, host.console(run) + host.log()
    return json.loads((host.result(run) / "findings.json").read_text())


def opened(findings: dict[str, list[str]]) -> dict[str, list[str]]:
    """The attempts that were not refused."""
    return {name: finding for name, finding in findings.items() if not refused(finding)}


def refused(finding: list[str]) -> bool:
    return finding[0] in ("PermissionError", "FileNotFoundError", "ProcessLookupError")


@needs_box
def test_the_level_and_its_limits_are_reported(host: HostUnderTest) -> None:
    node = host.look().node
    assert node.sandbox_level == ("landlock" if host.uid_base == 0 else "user+landlock" if has_landlock else "user")
    assert "the network is open to user code" in node.sandbox_notes


@needs_box
def test_user_code_cannot_read_the_database_or_a_secret_key(host: HostUnderTest) -> None:
    (host.home / "secrets").mkdir(mode=0o700)
    for name in ("db.sqlite3", "secrets/key"):
        (host.home / name).write_text("secret")
        (host.home / name).chmod(0o600)
    findings = try_in_the_box(
        host,
        f"""
for name in ("db.sqlite3", "secrets/key", "host/{NODE}/state.json", "host.log"):
    findings[name] = attempt(lambda: Path({str(host.home)!r}, name).read_bytes())
findings["listing"] = attempt(lambda: os.listdir({str(host.home)!r}))
findings["shadow"] = attempt(lambda: Path("/etc/shadow").read_bytes())
findings["roots home"] = attempt(lambda: os.listdir("/root"))
""",
    )
    assert opened(findings) == {}


@needs_root
@needs_landlock
def test_the_right_to_search_closed_folders_does_not_open_files_by_handle(host: HostUnderTest) -> None:
    needs_own_users(host)
    secret = host.home / "db.sqlite3"
    secret.write_text("secret")
    handle = ctypes.create_string_buffer(8 + 128)
    ctypes.cast(handle, ctypes.POINTER(ctypes.c_uint))[0] = 128
    mount = ctypes.c_int()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.name_to_handle_at(-100, os.fsencode(secret), handle, ctypes.byref(mount), 0) != 0:
        pytest.skip("this file system gives no file handles")
    findings = try_in_the_box(
        host,
        f"""
import ctypes
def by_handle():
    libc = ctypes.CDLL(None, use_errno=True)
    handle = ctypes.create_string_buffer(bytes.fromhex({bytes(handle).hex()!r}))
    for place in (".", os.environ["RESULT_DIR"], "/usr"):
        folder = os.open(place, os.O_RDONLY)
        fd = libc.open_by_handle_at(folder, handle, os.O_RDONLY)
        if fd >= 0:
            return os.read(fd, 100)
    raise PermissionError(ctypes.get_errno(), "refused")
findings["by handle"] = attempt(by_handle)
""",
    )
    assert refused(findings["by handle"]), findings


@needs_box
def test_user_code_can_write_in_its_run_folder_and_nowhere_else(host: HostUnderTest) -> None:
    (host.home / "data").mkdir()
    (host.home / "data" / "images").write_text("data")
    findings = try_in_the_box(
        host,
        f"""
own = Path(os.environ["RESULT_DIR"])
for folder in ("model", "checkpoint", "tmp", "log/driver", "."):
    findings["own " + folder] = attempt(lambda: (own / folder / "file").write_text("x"))
findings["code"] = attempt(lambda: Path("main.py").write_text("x"))
findings["code beside"] = attempt(lambda: Path("new.py").write_text("x"))
findings["data"] = attempt(lambda: Path(os.environ["DATA_DIR"], "images").write_text("x"))
findings["data removed"] = attempt(lambda: Path(os.environ["DATA_DIR"], "images").unlink())
findings["data mode"] = attempt(lambda: Path(os.environ["DATA_DIR"], "images").chmod(0o777) if os.geteuid() else open("/none"))
findings["home"] = attempt(lambda: Path({str(host.home)!r}, "x").write_text("x"))
findings["host socket"] = attempt(lambda: Path({str(host.folder)!r}, "host.sock").unlink())
findings["runtime"] = attempt(lambda: Path(sys.modules["training_runtime"].__path__[0], "errors.py").open("a"))
findings["fabric"] = attempt(lambda: Path(os.environ["FABRIC_HOME"], "libs", "fabric.zip").open("ab"))
findings["tmp"] = attempt(lambda: Path("/tmp/edt-intruder").write_text("x"))
findings["library"] = attempt(lambda: Path(os.__file__).open("a"))
""",
    )
    own = {name: finding for name, finding in findings.items() if name.startswith("own ")}
    others = {name: finding for name, finding in findings.items() if name not in own}
    assert all(finding[0] == "done" for finding in own.values()), own
    if "user" not in host.look().node.sandbox_level:
        others.pop("data mode")  # Landlock has no right for chmod; there the mode protects nothing anyway
    assert all(finding[0] != "done" for finding in others.values()), others
    assert (host.home / "data" / "images").read_text() == "data"


@needs_box
def test_user_code_can_read_its_code_and_data(host: HostUnderTest) -> None:
    (host.home / "data").mkdir()
    (host.home / "data" / "images").write_text("pixels")
    findings = try_in_the_box(
        host,
        """
findings["data"] = attempt(lambda: Path(os.environ["DATA_DIR"], "images").read_text())
findings["code"] = attempt(lambda: len(Path("main.py").read_text()))
findings["library"] = attempt(lambda: __import__("xml.sax.handler"))
""",
    )
    assert findings["data"] == ["done", "'pixels'"]
    assert {finding[0] for finding in findings.values()} == {"done"}


@needs_box
def test_user_code_cannot_look_into_another_run(host: HostUnderTest) -> None:
    host.want(host.spec(8, "obey"), 1)
    host.apply()
    host.until_holding(8, 1)
    other = host.pid(8)
    findings = try_in_the_box(
        host,
        f"""
findings["listing"] = attempt(lambda: os.listdir({str(host.result(8))!r}))
findings["journal"] = attempt(lambda: Path({str(host.result(8))!r}, "journal.jsonl").read_bytes())
findings["writing"] = attempt(lambda: Path({str(host.result(8))!r}, "model", "x").write_text("x"))
findings["code"] = attempt(lambda: os.listdir({str(host.home / "code" / "8")!r}))
findings["signal"] = attempt(lambda: os.kill({other}, 0))
findings["environment"] = attempt(lambda: Path("/proc/{other}/environ").read_bytes())
findings["open files"] = attempt(lambda: os.open("/proc/{other}/fd/1", os.O_WRONLY | os.O_APPEND))
findings["through its root"] = attempt(lambda: os.listdir("/proc/{other}/root/"))
findings["through its cwd"] = attempt(lambda: os.listdir("/proc/{other}/cwd/"))
""",
    )
    assert opened(findings) == {}


@needs_root
def test_shared_memory_is_a_runs_own(host: HostUnderTest) -> None:
    needs_own_users(host)
    if "runs share /dev/shm" in " ".join(host.look().node.sandbox_notes):
        pytest.skip("no mount namespaces on this machine")
    outside = Path("/dev/shm", f"edt-test-{os.getpid()}")
    outside.write_text("outside")
    try:
        findings = try_in_the_box(
            host,
            """
findings["listing"] = attempt(lambda: [name for name in os.listdir("/dev/shm") if name != "tmp"])
findings["writing"] = attempt(lambda: Path("/dev/shm/edt-test-mine").write_text("x"))
findings["objects"] = attempt(lambda: os.readlink("/proc/self/ns/ipc"))
""",
        )
    finally:
        outside.unlink()
    assert findings.pop("objects")[1] != repr(str(Path("/proc/self/ns/ipc").readlink()))
    assert findings == {"listing": ["done", "[]"], "writing": ["done", "1"]}
    assert not Path("/dev/shm/edt-test-mine").exists()


PTRACE = """
import ctypes, signal
libc = ctypes.CDLL(None, use_errno=True)
def trace(pid):
    if libc.ptrace(16, pid, None, None) < 0:
        raise PermissionError(ctypes.get_errno(), "refused")
def peek(pid):
    if libc.process_vm_readv(pid, None, 0, None, 0, 0) < 0:
        raise PermissionError(ctypes.get_errno(), "refused")
    with open(f"/proc/{pid}/mem", "rb") as memory:
        return memory.read(1)
"""


@needs_box
def test_user_code_cannot_signal_or_trace_the_host_or_the_warm_process(host: HostUnderTest) -> None:
    warm = host.warm_pid()
    findings = try_in_the_box(
        host,
        PTRACE
        + f"""
for name, pid in (("host", {host.process.pid}), ("warm", {warm}), ("tests", {os.getpid()})):
    findings[name + " signal"] = attempt(lambda: os.kill(pid, 0))
    findings[name + " stop"] = attempt(lambda: os.kill(pid, signal.SIGWINCH))
    findings[name + " trace"] = attempt(lambda: trace(pid))
    findings[name + " memory"] = attempt(lambda: peek(pid))
    findings[name + " environment"] = attempt(lambda: Path(f"/proc/{{pid}}/environ").read_bytes())
""",
    )
    assert opened(findings) == {}


@needs_box
def test_no_secret_is_in_the_environment_of_user_code(idle_host: HostUnderTest) -> None:
    secrets = {
        "DATABASE_URL": "postgres://hunter2@db",
        "EDT_SECRET_KEY": "hunter2",
        "REDIS_URL": "redis://:hunter2@x",
        "CUDA_TOKEN": "hunter2",
        "AWS_SECRET_ACCESS_KEY": "hunter2",
        "SOMETHING_NEW": "hunter2",
    }
    idle_host.start(environment=secrets)
    findings = try_in_the_box(
        idle_host,
        """
import subprocess
findings["own"] = ["done", json.dumps(dict(os.environ))]
findings["kernel"] = attempt(lambda: Path("/proc/self/environ").read_bytes())
findings["parents"] = attempt(lambda: [Path(f"/proc/{pid}/environ").read_bytes() for pid in (os.getpid(), os.getppid())])
findings["program"] = attempt(lambda: subprocess.run(["env"], capture_output=True).stdout)
""",
    )
    assert findings["program"][0] == "done"
    assert "hunter2" not in json.dumps(findings)


@needs_root
def test_user_code_cannot_connect_to_a_socket_of_the_studio(host: HostUnderTest) -> None:
    needs_own_users(host)
    (host.home / "redis").mkdir(mode=0o700)
    path = host.home / "redis" / "s"
    listener = socket.socket(socket.AF_UNIX)
    folder = os.open(path.parent, os.O_PATH)
    listener.bind(f"/proc/self/fd/{folder}/s")
    os.close(folder)
    path.chmod(0o700)
    listener.listen()
    with listener:
        findings = try_in_the_box(
            host,
            f"""
import socket
def connect(folder, name):
    os.chdir(os.environ["RESULT_DIR"])
    connection = socket.socket(socket.AF_UNIX)
    fd = os.open(folder, os.O_PATH)
    connection.connect(f"/proc/self/fd/{{fd}}/{{name}}")
findings["broker"] = attempt(lambda: connect({str(path.parent)!r}, "s"))
findings["host"] = attempt(lambda: connect({str(host.folder)!r}, "host.sock"))
""",
        )
    assert opened(findings) == {}


@needs_box
def test_user_code_cannot_command_the_host_or_another_driver(host: HostUnderTest) -> None:
    host.want(host.spec(8, "obey"), 1)
    host.apply()
    host.until_holding(8, 1)
    (driver_socket,) = host.folder.glob("run-8.*.sock")
    findings = try_in_the_box(
        host,
        f"""
import socket
def command():
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(10)
    connection.connect("/proc/self/fd/%d/host.sock" % os.open({str(host.folder)!r}, os.O_PATH))
    connection.sendall(b'{{"type":"subscribe"}}\\n')
    if not connection.recv(100):
        raise PermissionError("closed")
findings["host"] = attempt(command)
findings["names"] = attempt(lambda: os.listdir({str(host.folder)!r}))
findings["bound names"] = attempt(lambda: {driver_socket.name!r} in Path("/proc/net/unix").read_text() or open("/none"))
findings["open files"] = attempt(lambda: os.readlink("/proc/{host.process.pid}/fd/5"))
""",
    )
    findings["host"] = ["PermissionError"] if findings["host"][0] == "ConnectionResetError" else findings["host"]
    assert opened(findings) == {}


@needs_box
@pytest.mark.skipif(shutil.which("unshare") is None, reason="util-linux is not installed")
def test_namespaces_of_its_own_give_user_code_nothing(host: HostUnderTest) -> None:
    secret = host.home / "db.sqlite3"
    secret.write_text("secret")
    secret.chmod(0o600)
    findings = try_in_the_box(
        host,
        f"""
import subprocess
def inside(*command):
    ended = subprocess.run(["unshare", "--user", "--map-root-user", "--mount", *command], capture_output=True, text=True)
    if ended.returncode:
        raise PermissionError(ended.stderr)
    return ended.stdout
findings["reading"] = attempt(lambda: inside("cat", {str(secret)!r}))
findings["mounting"] = attempt(lambda: inside("mount", "-t", "tmpfs", "x", "/tmp"))
findings["unmounting"] = attempt(lambda: inside("umount", "/dev/shm"))
findings["host's files"] = attempt(lambda: inside("nsenter", "-t", "{host.process.pid}", "-m", "true"))
""",
    )
    assert opened(findings) == {}


@needs_root
def test_user_code_has_no_more_rights_than_to_search_folders(host: HostUnderTest) -> None:
    findings = try_in_the_box(
        host,
        """
import subprocess
status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
findings["status"] = {key: status[key].split() for key in ("CapPrm", "CapEff", "CapBnd", "CapAmb", "Uid", "Gid", "Groups", "NoNewPrivs")}
findings["become root"] = attempt(lambda: os.setuid(0))
findings["su"] = attempt(lambda: subprocess.run(["su", "-c", "true"], capture_output=True, check=True, stdin=subprocess.DEVNULL))
findings["mount"] = attempt(lambda: subprocess.run(["mount", "-t", "tmpfs", "x", "model"], capture_output=True, check=True))
findings["core"] = ["done", str(__import__("resource").getrlimit(4))]
""",
    )
    status = findings["status"]
    if host.uid_base:
        assert status["Uid"] == status["Gid"] == [str(host.uid_base + 7)] * 4
        assert status["Groups"] == []
    assert status["NoNewPrivs"] == ["1"]
    for kind in ("CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(status[kind][0], 16) in (0, 1 << 2), findings
    assert findings["core"] == ["done", "(0, 0)"]
    tried = ("become root", "su", "mount") if host.uid_base else ("mount",)
    assert {findings[name][0] for name in tried} <= {"PermissionError", "CalledProcessError", "FileNotFoundError"}


@needs_box
def test_a_fresh_interpreter_in_the_box_finds_torch_and_this_runtime(host: HostUnderTest) -> None:
    findings = try_in_the_box(
        host,
        """
import subprocess
code = "import sys, training_runtime.protocol, torch; print(torch.ones(2).sum().item())"
findings["fresh"] = attempt(lambda: subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout)
""",
    )
    assert findings["fresh"] == ["done", "'2.0\\n'"]


@needs_root
def test_a_link_that_an_earlier_attempt_left_behind_leads_nowhere(host: HostUnderTest) -> None:
    needs_own_users(host)
    target = host.home / "victim"
    target.mkdir()
    spec = host.spec(7, "obey")
    host.want(spec)
    host.apply()
    host.until_run(7, lambda run: run.state == "running")
    for name in ("log", "tmp"):
        shutil.rmtree(host.result(7) / name)
        (host.result(7) / name).symlink_to(target)
    os.kill(host.pid(7), 9)
    seen = host.until_run(7, lambda run: run.state == "exited")
    assert seen.exit_code == 1
    assert "could not be boxed in or set up" in seen.detail
    assert list(target.iterdir()) == []
    assert target.stat().st_uid == 0


@pytest.fixture
def home_elsewhere() -> Iterator[Path]:
    """Not below /tmp, as a real home is not."""
    home = Path(tempfile.mkdtemp(dir="/var/tmp"))
    yield home
    shutil.rmtree(home)


@needs_root
def test_tmp_is_a_runs_own(home_elsewhere: Path, make_host: Callable[[Path], HostUnderTest]) -> None:
    host = make_host(home_elsewhere)
    host.start()
    if "runs share /dev/shm" in " ".join(host.look().node.sandbox_notes):
        pytest.skip("no mount namespaces on this machine")
    findings = try_in_the_box(
        host,
        """
findings["listing"] = attempt(lambda: os.listdir("/tmp"))
findings["writing"] = attempt(lambda: Path("/tmp/edt-test-mine").write_text("x"))
findings["above"] = attempt(lambda: os.listdir("/tmp/.."))
findings["var"] = attempt(lambda: Path("/var/tmp/edt-test-mine").write_text("x"))
""",
    )
    assert findings["listing"] == ["done", "[]"]
    assert findings["writing"] == ["done", "1"]
    assert refused(findings["above"])
    assert refused(findings["var"])
    assert (host.result(7) / "tmp" / "edt-test-mine").read_text() == "x"
    assert not Path("/tmp/edt-test-mine").exists()


@needs_root
def test_a_link_in_place_of_the_runs_tmp_is_not_mounted(home_elsewhere: Path, make_host: Callable[[Path], HostUnderTest]) -> None:
    host = make_host(home_elsewhere)
    host.start()
    host.want(host.spec(7, "obey"))
    host.apply()
    host.until_run(7, lambda run: run.state == "running")
    shutil.rmtree(host.result(7) / "tmp")
    (host.result(7) / "tmp").symlink_to("/")
    os.kill(host.pid(7), 9)
    seen = host.until_run(7, lambda run: run.state == "exited")
    assert (seen.exit_code, seen.attempt) == (1, 2)
    assert "could not be boxed in" in seen.detail


@needs_root
def test_a_console_that_was_replaced_by_a_pipe_does_not_block_the_start(host: HostUnderTest) -> None:
    needs_own_users(host)
    spec = host.spec(7, "obey")
    folder = Path(spec.result_dir, "log", "driver")
    folder.mkdir(parents=True)
    os.mkfifo(folder / "console.log")
    host.want(spec)
    host.apply()
    assert host.until_run(7, lambda run: run.state == "exited").exit_code == 1


@needs_root
def test_the_result_folder_belongs_to_the_runs_user_and_is_closed_to_others(host: HostUnderTest) -> None:
    needs_own_users(host)
    try_in_the_box(host, "findings['nothing'] = attempt(lambda: None)")
    found = host.result(7).stat()
    assert (found.st_uid, found.st_gid, oct(found.st_mode & 0o7777)) == (host.uid_base + 7, os.getgid(), "0o2750")
    file = (host.result(7) / "findings.json").stat()
    assert (file.st_gid, oct(file.st_mode & 0o777)) == (os.getgid(), "0o640")


def test_a_required_box_that_cannot_be_had_refuses_the_run_with_a_clear_message(tmp_path: Path) -> None:
    from training_runtime.errors import SandboxRefused
    from training_runtime.protocol import RunSpec

    spec = RunSpec(7, "x", "alice", ("main.py",), str(tmp_path), str(tmp_path), "", 1)
    weak = sandbox.Abilities("limits", private=False, notes=())
    with pytest.raises(SandboxRefused, match="EDT_SANDBOX=required, but this machine cannot box user code in"):
        sandbox.box_for(spec, weak, policy=sandbox.Policy(mode="required"), fabric_home=str(tmp_path))
    assert sandbox.box_for(spec, weak, policy=sandbox.Policy(), fabric_home=str(tmp_path)).level == "limits"


def test_the_box_can_be_switched_off_for_debugging(idle_host: HostUnderTest) -> None:
    idle_host.start(environment={"EDT_SANDBOX": "off"})
    assert idle_host.look().node.sandbox_level == "off"
    idle_host.want(idle_host.spec(7, "obey"), 1)
    idle_host.apply()
    idle_host.until_holding(7, 1)
    idle_host.wanted.clear()
    idle_host.apply()
    until(lambda: idle_host.look().runs == ())


def test_processes_of_runs_that_share_a_user_are_found_and_killed_too(idle_host: HostUnderTest) -> None:
    idle_host.start(environment={"EDT_SANDBOX": "off"})
    idle_host.want(idle_host.spec(7, "stubborn"), 1)
    idle_host.want(idle_host.spec(8, "crash", "1,2,3,4"), 2)
    idle_host.apply()
    idle_host.until_holding(7, 1)
    idle_host.until_run(8, lambda run: run.state == "exited")
    pids = [int(pid) for run in (7, 8) for pid in (idle_host.result(run) / "pids").read_text().split()]
    idle_host.wanted.clear()
    idle_host.apply()
    until(lambda: idle_host.look().runs == ())
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
