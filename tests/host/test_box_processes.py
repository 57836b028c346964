"""One attempt to break out for each thing that the box promises about processes, rights, sockets and secrets.

The user code is real, the host is real, and so is the kernel.
"""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import shutil
import socket
from pathlib import Path

import pytest

from tests.host.box import ATTEMPT, BOTH_LEVELS, needs_box, needs_own_users, needs_root, opened, try_in_the_box
from tests.host.conftest import HostUnderTest, has_landlock, until
from training_runtime.host.sandbox import levels
from training_runtime.host.settings import sandbox_policy

needs_filter = pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="system calls are not filtered here")
USERS = BOTH_LEVELS  # each promise is kept at both levels, except where a test says otherwise


@needs_box
def test_the_level_and_its_limits_are_reported(host: HostUnderTest) -> None:
    node = host.look().node
    assert node.sandbox_level == ("landlock" if host.uid_base == 0 else "user+landlock" if has_landlock else "user")
    assert any("network" in note for note in node.sandbox_notes)
    assert any("system call" in note for note in node.sandbox_notes)


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


CLOCKS = """
import fcntl, struct, time
def owner(pid):
    told = bytearray(struct.pack("QQ", 3, 0) + bytes(48))
    fcntl.ioctl(os.pidfd_open(pid), 0xC040FF0B, told)
    return told
"""


@needs_box
@needs_filter
def test_user_code_is_not_told_how_long_a_process_of_others_computes_nor_whose_it_is(host: HostUnderTest) -> None:
    findings = try_in_the_box(
        host,
        CLOCKS
        + f"""
for name, pid in (("host", {host.process.pid}), ("warm", {host.warm_pid()})):
    findings[name + " clock"] = attempt(lambda: time.clock_gettime(~pid << 3 | 2))
    findings[name + " owner"] = attempt(lambda: owner(pid))
findings["own"] = [attempt(lambda: time.clock_gettime(clock)) for clock in (2, 3, ~0 << 3 | 2)]
findings["own thread"] = attempt(lambda: time.clock_gettime(time.pthread_getcpuclockid(__import__("threading").get_ident())))
""",
    )
    own = [*findings.pop("own"), findings.pop("own thread")]
    assert [finding[0] for finding in own] == ["done"] * 4
    assert {name: finding[1] for name, finding in findings.items() if "clock" in name} == dict.fromkeys(
        ("host clock", "warm clock"), "[Errno 1] Operation not permitted"
    )
    assert not [finding for name, finding in findings.items() if finding[0] == "done"]


UNDER_WAY = """
import socket, time
held = []
def pass_one():
    held.append(socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM))
    return socket.send_fds(held[-1][0], [b"x"], [0])
def fill():
    while True:
        held.append(socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM))
        held[-1][0].setblocking(False)
        try:
            while True:
                socket.send_fds(held[-1][0], [b"x"], [0] * 253)
        except BlockingIOError:
            pass  # this one takes no more
"""


@needs_root
def test_what_the_kernel_counts_by_user_a_run_uses_up_for_itself_alone(own_host: HostUnderTest) -> None:
    """Descriptors that are being passed: the host passes two for each run that begins, torch's loaders one for each tensor."""
    host, end = own_host, 'os.environ["RESULT_DIR"], "end"'
    full = UNDER_WAY + 'findings["fill"], findings["more"] = attempt(fill), attempt(pass_one)\n'
    waits = f"while not Path({end}).exists(): time.sleep(0.02)\n"
    code = {"main.py": (ATTEMPT % full) + waits}
    host.want(host.spec(7, "script", "main.py", code=code))
    host.apply()
    found = host.result(7) / "findings.json"
    findings = until(lambda: found.exists() and found.read_text() and json.loads(found.read_text()), deadline_s=40)
    assert all("Too many references" in finding[1] for finding in findings.values()), findings
    beside = try_in_the_box(host, UNDER_WAY + 'findings["one"] = attempt(pass_one)', run=8)
    assert beside["one"] == ["done", "1"]
    (host.result(7) / "end").touch()
    host.until_run(7, lambda seen: seen.state == "exited")


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
    try:
        connection.sendall(b'{{"type":"subscribe"}}\\n')
        answer = connection.recv(100)
    except ConnectionError:
        answer = b""
    if not answer:
        raise PermissionError("closed")
findings["host"] = attempt(command)
findings["names"] = attempt(lambda: os.listdir({str(host.folder)!r}))
findings["bound names"] = attempt(lambda: {driver_socket.name!r} in Path("/proc/net/unix").read_text() or open("/none"))
findings["open files"] = attempt(lambda: os.readlink("/proc/{host.process.pid}/fd/5"))
""",
    )
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
def test_user_code_has_no_rights_beyond_its_user(host: HostUnderTest) -> None:
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
        assert int(status[kind][0], 16) == 0, findings
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


def test_a_required_box_that_cannot_be_had_refuses_the_run_with_a_clear_message(tmp_path: Path) -> None:
    from training_runtime.errors import SandboxRefused
    from training_runtime.protocol import RunSpec

    spec = RunSpec(7, "x", "alice", ("main.py",), str(tmp_path), str(tmp_path), "", 1)
    weak = levels.Abilities("limits", private=False, notes=())
    why = "'limits', and EDT_SANDBOX asks for 'user' at least: that needs Landlock, or a studio that is root"
    with pytest.raises(SandboxRefused, match=why):
        levels.box_for(spec, weak, policy=sandbox_policy({"EDT_SANDBOX": "required"}, home=tmp_path), fabric_home=str(tmp_path))
    one_user = levels.Abilities("landlock", private=False, notes=())
    for least in ("landlock", "user", "limits", "best-effort"):
        policy = sandbox_policy({"EDT_SANDBOX": least}, home=tmp_path)
        assert levels.box_for(spec, one_user, policy=policy, fabric_home=str(tmp_path)).level == "landlock"
    with pytest.raises(SandboxRefused, match=r"'landlock', and EDT_SANDBOX asks for 'user\+landlock' at least: that needs Linux 5\.13"):
        levels.box_for(spec, one_user, policy=sandbox_policy({"EDT_SANDBOX": "user+landlock"}, home=tmp_path), fabric_home=str(tmp_path))
    with pytest.raises(ValueError, match="EDT_SANDBOX='strong': one of best-effort, off, required"):
        sandbox_policy({"EDT_SANDBOX": "strong"}, home=tmp_path)
    assert levels.box_for(spec, weak, policy=levels.Policy(), fabric_home=str(tmp_path)).level == "limits"


def test_a_run_that_is_to_be_kept_apart_from_other_peoples_is_not_started_without_a_user_of_its_own(tmp_path: Path) -> None:
    from training_runtime.errors import SandboxRefused
    from training_runtime.protocol import RunSpec

    spec = RunSpec(7, "x", "alice", ("main.py",), str(tmp_path), str(tmp_path), "", 1, isolated=True)
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    hidden = dataclasses.replace(spec, data_dir=str(closed))
    for level, each in (("landlock", spec), ("limits", spec), ("off", spec), ("user", hidden)):
        found = levels.Abilities(level, private=False, notes=())
        with pytest.raises(SandboxRefused, match="does not keep people's code apart, as this machine had said it does: that needs"):
            levels.box_for(each, found, policy=levels.Policy(), fabric_home=str(tmp_path))
        free = dataclasses.replace(each, isolated=False)
        assert levels.box_for(free, found, policy=levels.Policy(), fabric_home=str(tmp_path)).uid is None
    strong = levels.Abilities("user+landlock", private=True, notes=())
    assert levels.box_for(spec, strong, policy=levels.Policy(), fabric_home=str(tmp_path)).uid is not None


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
