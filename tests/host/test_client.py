"""The sockets of a node host: who subscribes and hears of it, who talks nonsense, and where it begins with a wrong setting."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.host.conftest import NODE, REPOSITORY, HostUnderTest
from training_runtime.errors import HostUnavailable
from training_runtime.host import client, settings, sockets
from training_runtime.protocol import MAX_STUDIO_LINE_BYTES, Apply, Stop, Subscribe, decode, encode


def test_growth_of_a_journal_reaches_a_subscriber_promptly_and_coalesced(host: HostUnderTest) -> None:
    host.want(host.spec(7, "grow"))
    sizes, short = [], 0
    for observation in client.subscribe(host.home, NODE, timeout_s=10):
        if not observation.runs:
            host.apply()
        for run in observation.runs:
            sizes.append(run.journal_bytes)
            short += run.slots is None
            if run.state == "exited":
                break
        else:
            continue
        break
    assert sizes[-1] == (host.result(7) / "journal.jsonl").stat().st_size
    assert sizes == sorted(sizes)
    assert len(sizes) < 100, "300 flushes within a fraction of a second come together"
    assert short, "what slots did is left out where only the journal has grown"


def test_an_older_snapshot_is_ignored(host: HostUnderTest) -> None:
    host.want(host.spec(7, "obey"), 1)
    host.apply()
    host.until_holding(7, 1)
    answer = client.apply(host.home, NODE, Apply(0, ()))
    assert (answer.revision, answer.runs[0].state) == (host.revision, "running")


def test_asking_a_host_that_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(HostUnavailable, match=r"does not answer on .*host\.sock .*is the studio running there\?"):
        client.apply(tmp_path, NODE, Apply(1, ()))


def test_a_subscription_ends_with_a_clear_error_when_the_host_goes(own_host: HostUnderTest) -> None:
    observations = client.subscribe(own_host.home, NODE)
    next(observations)
    own_host.kill()
    with pytest.raises(HostUnavailable, match="went away"):
        list(observations)


def test_a_home_with_a_very_long_path_works(tmp_path: Path, make_host: Callable[[Path], HostUnderTest]) -> None:
    host = make_host(tmp_path / ("a" * 90) / ("b" * 90))
    host.start()
    host.want(host.spec(7, "obey"), 1)
    host.apply()
    host.until_holding(7, 1)
    assert host.terminate() == 0


def test_a_subscriber_that_does_not_read_holds_nobody_up_and_gets_the_latest(host: HostUnderTest) -> None:
    spec = host.spec(7, "obey")
    with sockets.connect(client.socket_path(host.home, NODE), timeout_s=20) as lazy:
        lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        lazy.sendall(encode(Subscribe()))
        for number in range(300):
            host.want(spec, reason=f"change {number} " + "x" * 5000)
            host.apply()
        host.want(spec, 1, reason="the last change")
        host.apply()
        host.until_holding(7, 1)
        with lazy.makefile("rb") as lines:
            read = [decode(lines.readline())]
            while read[-1] != host.look():
                read.append(decode(lines.readline()))
    assert len(read) < 300


@pytest.mark.parametrize(
    "hostile", [b"{}\n", b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 100 + b"\n", b"x" * (MAX_STUDIO_LINE_BYTES + 1), encode(Stop("x"))]
)
def test_a_client_that_talks_nonsense_is_cut_off(host: HostUnderTest, hostile: bytes) -> None:
    with sockets.connect(client.socket_path(host.home, NODE), timeout_s=20) as connection:
        with contextlib.suppress(OSError):
            connection.sendall(hostile)
        with contextlib.suppress(ConnectionResetError):
            assert connection.recv(1) == b""
    assert host.is_up()


def test_the_socket_of_the_host_is_closed_to_other_users(host: HostUnderTest) -> None:
    assert oct(client.socket_path(host.home, NODE).stat().st_mode & 0o777) == "0o600"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--home", "/no/such/folder", "--node", "a"], "--home /no/such/folder is not a folder"),
        (["--home", "/tmp", "--node", "../a"], "--node '../a': letters, digits"),
        (["--home", "/tmp", "--node", "a", "--slots", "0"], "--slots 0 must be at least 1"),
        (["--home", "/tmp", "--node", "a", "--driver", "x"], "--driver 'x' is not of the form"),
    ],
)
def test_a_wrong_argument_gets_one_clear_sentence(arguments: list[str], message: str) -> None:
    command = [sys.executable, "-m", "training_runtime.host", *arguments]
    ended = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == 2
    assert message in ended.stderr


def test_a_wrong_setting_gets_one_clear_sentence(tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        settings.parse(["--home", str(tmp_path), "--node", "a"], {"EDT_SANDBOX": "maybe"})
    for name, said in (("EDT_MAX_RESTARTS", "many"), ("EDT_MAX_RESTARTS", "inf"), ("EDT_STOP_GRACE_S", "nan"), ("EDT_RUN_DISK", "1e400")):
        with pytest.raises(SystemExit):
            settings.parse(["--home", str(tmp_path), "--node", "a"], {name: said})


def test_the_host_imports_nothing_but_the_standard_library() -> None:
    code = (
        "import sys, training_runtime.host.__main__, training_runtime.host.client; "
        "print({name.split('.')[0] for name in sys.modules} - set(sys.stdlib_module_names) - {'__main__', 'training_runtime'})"
    )
    command = [sys.executable, "-S", "-c", code]
    assert subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout == "set()\n"
