"""What a run reaches: nothing, the outside, or what its machine reaches. The deciders as tables, and user code in a real box that tries."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.host.box import BOTH_LEVELS, needs_box, try_in_the_box
from tests.host.conftest import REPOSITORY, HostUnderTest, is_root, until
from tests.host.outside import FROM_INSIDE, another_machine, can, greeting, needs_a_way_out, needs_network_namespaces
from training_runtime.errors import SandboxRefused
from training_runtime.host.sandbox import network, probe

USERS = BOTH_LEVELS  # each promise is kept at both levels


@pytest.mark.parametrize(
    ("asked", "several", "mode", "by_ability"),
    [
        (False, False, "best-effort", {"outward": "none", "none": "none", "machine": "machine"}),
        (True, False, "best-effort", {"outward": "outward", "none": "machine", "machine": "machine"}),
        (False, False, "required", {"outward": "none", "none": "none", "machine": None}),
        (True, False, "required", {"outward": "outward", "none": None, "machine": None}),
        (False, True, "required", dict.fromkeys(["outward", "none", "machine"], "machine")),
        (False, False, "shared", dict.fromkeys(["outward", "none", "machine"], "machine")),
    ],
)
def test_what_a_run_gets(asked: bool, several: bool, mode: network.Mode, by_ability: dict[network.Reach, str | None]) -> None:
    for ability, expected in by_ability.items():
        if expected is None:
            with pytest.raises(SandboxRefused, match="EDT_RUN_NETWORK=required"):
                network.reach(asked=asked, several=several, can=ability, mode=mode)
        else:
            assert network.reach(asked=asked, several=several, can=ability, mode=mode) == expected


def test_private_networks_and_the_machines_own_addresses_are_closed_but_what_is_named() -> None:
    reached = network.routes(["203.0.113.9"], opened=["10.1.0.0/16", "192.168.0.0/16"], closed=["198.51.100.0/24"])
    assert reached["203.0.113.9/32"] is False
    assert reached["198.51.100.0/24"] is False
    assert reached["169.254.0.0/16"] is False
    assert reached["10.0.0.0/8"] is False
    assert reached["10.1.0.0/16"] is True
    assert reached["192.168.0.0/16"] is True


def test_networks_are_read_and_nonsense_is_refused_with_a_sentence() -> None:
    assert network.networks(" 10.1.2.0/24, 192.168.7.9 ,") == ("10.1.2.0/24", "192.168.7.9/32")
    for wrong in ("10.1.2.3/24", "mlflow.internal", "fe80::1", "10.0.0.0/33"):
        with pytest.raises(ValueError, match="separated by commas"):
            network.networks(wrong)


def test_what_leads_to_an_index_is_opened_unless_only_the_machines_network_does() -> None:
    assert network.openings(["203.0.113.9", "10.0.0.7", "203.0.113.9"]) == ("203.0.113.9/32", "10.0.0.7/32")
    assert network.openings(["nobody-has-this-name.invalid", "203.0.113.9"]) == ("203.0.113.9/32",)
    assert network.openings([]) == ()
    for away in ("127.0.0.1", "localhost", "::1", "2001:db8::1"):
        assert network.openings(["203.0.113.9", away]) is None


def test_the_machines_addresses_are_read_from_the_kernels_table() -> None:
    table = "Local:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 127.0.0.1\n        /32 host LOCAL\n     |-- 192.0.2.1\n        /32 link BROADCAST\n"
    table += "     |-- 192.0.2.2\n        /32 host LOCAL\n     |-- 203.0.113.9\n        /32 host LOCAL\n        /24 link UNICAST\n"
    assert network.own_addresses(2 * table) == ["192.0.2.2", "203.0.113.9"]


@needs_box
@needs_network_namespaces
def test_a_run_that_asks_for_no_network_reaches_nothing_but_itself(host: HostUnderTest) -> None:
    abstract = socket.socket(socket.AF_UNIX)
    abstract.bind(f"\0edt-test-{os.getpid()}")
    abstract.listen()
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.bind(("127.0.0.1", 0))
    own = network.own_addresses(Path("/proc/net/fib_trie").read_text())
    with greeting(socket.create_server(("0.0.0.0", 0))) as server, greeting(abstract), datagrams:
        port = server.getsockname()[1]
        assert socket.create_connection(("127.0.0.1", port)).recv(9) == b"hello", "from outside it answers"
        body = f"""{FROM_INSIDE}
import threading
findings["loopback of the machine"] = attempt(lambda: speak(("127.0.0.1", {port})))
for address in {own!r}:
    findings["the machine by its address " + address] = attempt(lambda: speak((address, {port})))
findings["the internet"] = attempt(lambda: speak(("198.51.100.2", 80)))
findings["metadata"] = attempt(lambda: speak(("169.254.169.254", 80)))
findings["a name"] = attempt(lambda: socket.getaddrinfo("example.org", 80))
findings["an abstract socket"] = attempt(lambda: speak("\\0edt-test-{os.getpid()}", socket.AF_UNIX))
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", {datagrams.getsockname()[1]}))
findings["interfaces"] = attempt(lambda: socket.if_nameindex())
with socket.create_server(("127.0.0.1", 0)) as own:
    threading.Thread(target=lambda: own.accept()[0].sendall(b"hello")).start()
    findings["itself"] = attempt(lambda: speak(own.getsockname()))
findings["said"] = attempt(lambda: os.environ["EDT_NETWORK"])
"""
        findings = try_in_the_box(host, body)
        datagrams.setblocking(False)
        with pytest.raises(BlockingIOError):
            datagrams.recv(9)
    assert findings.pop("itself") == ["done", "b'hello'"]
    assert findings.pop("interfaces") == ["done", "[(1, 'lo')]"]
    assert findings.pop("said") == ["done", "'none'"]
    assert len(findings) >= 5
    assert not [name for name, found in findings.items() if found[0] == "done"], findings


@needs_box
@needs_network_namespaces
def test_runs_that_reach_nothing_do_not_reach_each_other(host: HostUnderTest) -> None:
    listens = """
import os, socket, time
from pathlib import Path
server = socket.create_server(("127.0.0.1", 0))
Path(os.environ["RESULT_DIR"], "port").write_text(str(server.getsockname()[1]))
server.accept()
"""
    host.want(host.spec(8, "script", "main.py", code={"main.py": listens}))
    host.apply()
    port = until(lambda: (path := host.result(8) / "port").exists() and path.read_text(), what="the other run listens")
    findings = try_in_the_box(host, f"{FROM_INSIDE}\nfindings['the other'] = attempt(lambda: speak(('127.0.0.1', {port})))")
    assert findings["the other"][0] == "ConnectionRefusedError"


@pytest.fixture(scope="module")
def outside() -> Iterator[dict[str, str]]:
    with another_machine() as found:
        yield found


def tries(outside: dict[str, str], port: int) -> str:
    return f"""{FROM_INSIDE}
findings["there"] = attempt(lambda: speak(({outside["there"]!r}, 80)))
findings["private"] = attempt(lambda: speak(({outside["private"]!r}, 80)))
findings["this machine by its address"] = attempt(lambda: speak(({outside["here"]!r}, {port})))
findings["this machine's loopback"] = attempt(lambda: speak(("10.0.2.2", {port})))
findings["loopback"] = attempt(lambda: speak(("127.0.0.1", {port})))
findings["metadata"] = attempt(lambda: speak(("169.254.169.254", 80)))
import subprocess
findings["another route"] = attempt(lambda: subprocess.run(
    ["ip", "route", "del", "prohibit", "10.0.0.0/8"], check=True, capture_output=True))
findings["said"] = attempt(lambda: os.environ["EDT_NETWORK"])
findings["resolver"] = attempt(lambda: Path("/etc/resolv.conf").read_text())
"""


@needs_box
@needs_a_way_out
def test_a_run_that_asks_for_the_network_reaches_the_outside_and_nothing_private(host: HostUnderTest, outside: dict[str, str]) -> None:
    with greeting(socket.create_server(("0.0.0.0", 0))) as server:
        findings = try_in_the_box(host, tries(outside, server.getsockname()[1]), network=True)
    assert findings.pop("there") == ["done", f"b'hello from {outside['here']}'"]
    assert findings.pop("said") == ["done", "'outward'"]
    assert "nameserver 10.0.2.3" in findings.pop("resolver")[1]
    assert findings["private"][0] == "PermissionError"
    assert not [name for name, found in findings.items() if found[0] == "done"], findings


@needs_box
@needs_a_way_out
def test_nothing_is_left_of_the_way_out_once_the_run_has_ended(host: HostUnderTest) -> None:
    try_in_the_box(host, "", network=True)
    assert not [each for each in host.processes() if Path(f"/proc/{each.pid}/comm").read_text().startswith("slirp")]


@needs_a_way_out
def test_what_the_machine_has_mounted_stays_mounted(tmp_path: Path) -> None:
    """Below a shared mount, as Docker, Kubernetes and `ip netns` have them."""
    shared, below = tmp_path / "shared", tmp_path / "shared" / "below"
    with contextlib.ExitStack() as stack:
        shared.mkdir()
        mounted(stack, shared, "--make-shared")
        below.mkdir()
        mounted(stack, below)
        (below / "here").write_text("yes")
        assert probe._in_child(lambda: network.probe("outward")) == ""
        assert (below / "here").read_text() == "yes"


def mounted(stack: contextlib.ExitStack, folder: Path, *options: str) -> None:
    subprocess.run(["mount", "-t", "tmpfs", *options, "none", str(folder)], check=True)
    stack.callback(subprocess.run, ["umount", str(folder)], check=False)


@needs_a_way_out
@pytest.mark.parametrize("is_link", [False, True], ids=["none", "a link to nothing"])
def test_a_machine_without_a_resolver_is_not_given_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_link: bool) -> None:
    """What looks whether a way out can be given looks at the machine's own files."""
    named = tmp_path / "etc" / "resolv.conf"
    named.parent.mkdir()
    if is_link:
        named.symlink_to(tmp_path / "run" / "stub-resolv.conf")
    monkeypatch.setattr(network, "_RESOLV_CONF", named)
    assert probe._in_child(lambda: network.probe("outward")) == ""
    assert not named.exists(), named.read_text()
    assert not (tmp_path / "run").exists()


@needs_a_way_out
@pytest.mark.parametrize("opened", ["0.0.0.0/0", "10.0.2.0/24"])
@pytest.mark.parametrize("closed", ["0.0.0.0/0", "10.0.2.0/24"])
def test_everything_can_be_opened_or_closed_and_the_runs_own_network_too(outside: dict[str, str], opened: str, closed: str) -> None:
    def ways() -> str:
        network.enter("outward", opened=(opened, f"{outside['private']}/32"), closed=(closed,))
        for address in (outside["private"], "10.0.2.3"):
            found = subprocess.run(["ip", "route", "get", address], capture_output=True, text=True, check=False)
            if "dev tap0" not in found.stdout:
                return f"{address}: {found.stdout}{found.stderr}"
        return ""

    assert probe._in_child(ways) == ""


@needs_a_way_out
def test_what_an_administrator_names_is_open_and_what_they_close_is_closed(idle_host: HostUnderTest, outside: dict[str, str]) -> None:
    idle_host.start(environment={"EDT_RUN_NETWORK_ALLOW": f"{outside['private']}/32", "EDT_RUN_NETWORK_DENY": f"{outside['there']}/32"})
    findings = try_in_the_box(idle_host, tries(outside, 1), network=True)
    assert findings["private"][0] == "done"
    assert findings["there"][0] == "PermissionError"


def test_where_the_network_is_shared_a_run_reaches_what_its_machine_reaches(idle_host: HostUnderTest) -> None:
    idle_host.start(environment={"EDT_RUN_NETWORK": "shared"})
    with greeting(socket.create_server(("127.0.0.1", 0))) as server:
        body = f"{FROM_INSIDE}\nfindings['it'] = attempt(lambda: speak({server.getsockname()!r}))"
        assert try_in_the_box(idle_host, body)["it"] == ["done", "b'hello'"]
    assert any("EDT_RUN_NETWORK=shared" in note for note in idle_host.look().node.sandbox_notes)


def test_a_run_that_may_use_several_machines_reaches_them(make_host: Callable[..., HostUnderTest], tmp_path: Path) -> None:
    host = make_host(tmp_path)
    host.start(environment={"EDT_NODE_ADDRESS": "127.0.0.1"})
    for number, elastic in ((1, True), (2, False)):
        spec = host.spec(number, "script", "main.py", code={"main.py": "import os\nprint('reaches', os.environ['EDT_NETWORK'])"})
        host.want(dataclasses.replace(spec, elastic=elastic))
    host.apply()
    for number in (1, 2):
        host.until_run(number, lambda seen: seen.state == "exited")
    assert "reaches machine" in host.console(1)
    assert f"reaches {'none' if can() != 'machine' else 'machine'}" in host.console(2)


@needs_network_namespaces
@pytest.mark.skipif(not is_root or shutil.which("setpriv") is None, reason="only root can become somebody else")
def test_a_host_that_is_not_root_keeps_runs_from_the_network_too() -> None:
    program = "from training_runtime.host.sandbox import network; print(repr(network.probe('none')))"
    command = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", sys.executable, "-c"]
    if subprocess.run([*command, "import training_runtime"], cwd=REPOSITORY, capture_output=True, check=False).returncode:
        pytest.skip("the interpreter or this repository lies in a closed folder")
    done = subprocess.run([*command, program], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    if "unshare" in done.stdout:
        pytest.skip(f"only root makes namespaces here: {done.stdout}")
    assert done.stdout == "''\n"


def test_a_setting_that_nobody_knows_is_refused(idle_host: HostUnderTest) -> None:
    for setting, words in (
        ({"EDT_RUN_NETWORK": "open"}, "EDT_RUN_NETWORK='open': one of best-effort, required, shared"),
        ({"EDT_RUN_NETWORK_ALLOW": "intranet"}, "EDT_RUN_NETWORK_ALLOW: "),
    ):
        idle_host.start(environment=setting, wait=False)
        assert idle_host.process is not None
        assert idle_host.process.wait(20) == 2
        assert words in idle_host.log()


def test_a_long_problem_of_a_trial_is_said_as_far_as_it_goes() -> None:
    assert probe._in_child(lambda: "ü" * 10_000) == "ü" * probe.MOST_TEXT
