"""Who may tell a driver what to do: where runs share a user, others can find its socket, connect and speak."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from training_runtime.elastic.driver.host_link import HostLink
from training_runtime.protocol import Authenticate, Members, Stop, encode

SECRET = "what the host and the driver know"


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return Path("run.sock")


@pytest.fixture
def link(path: Path) -> Iterator[HostLink]:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        made = HostLink(listener, SECRET)
        yield made
        made.leave()


def connected(path: Path, *lines: bytes) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    made.connect(str(path))
    made.sendall(b"".join(lines))
    made.settimeout(5)
    return made


def is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(4096) == b""
    except ConnectionError:
        return True


def test_the_host_is_who_knows_the_secret(link: HostLink, path: Path) -> None:
    with connected(path, encode(Authenticate(SECRET)), encode(Members(3, (), "none"))) as host:
        link.poll()
        assert link.wanted == Members(3, (), "none"), "what came with the secret is taken in at once"
        assert b"holding" in host.recv(4096)


def test_a_stranger_stops_nothing_and_does_not_take_the_hosts_place(link: HostLink, path: Path) -> None:
    with connected(path, encode(Authenticate(SECRET))) as host:
        link.poll()
        for said in (
            encode(Stop("mine")),
            encode(Authenticate("a guess")) + encode(Stop("mine")),
            b"x" * 4096,
            b'{"type":"authenticate","secret":"\\ud800"}\n',
        ):
            with connected(path, said) as stranger:
                link.poll()
                link.poll()
                assert is_closed(stranger)
        assert link.stop is None
        host.sendall(encode(Members(4, (), "still here")))
        link.poll()
        assert link.wanted is not None
        assert link.wanted.revision == 4


def test_silent_strangers_do_not_keep_the_host_out(link: HostLink, path: Path) -> None:
    silent = [connected(path) for _ in range(20)]
    link.poll()
    assert len(link.readable()) < 12
    with connected(path, encode(Authenticate(SECRET)), encode(Stop("enough"))):
        link.poll()
        assert link.stop == Stop("enough")
    for each in silent:
        each.close()


def test_a_secret_that_comes_in_pieces_is_one(link: HostLink, path: Path) -> None:
    line = encode(Authenticate(SECRET))
    with connected(path, line[:10]) as host:
        link.poll()
        host.sendall(line[10:] + encode(Stop("enough")))
        link.poll()
        assert link.stop == Stop("enough")


def test_a_message_of_a_newer_host_is_left_out_and_the_next_one_counts(link: HostLink, path: Path) -> None:
    newer = b'{"type":"in_the_next_version","x":1}\n'
    with connected(path, encode(Authenticate(SECRET)), newer, encode(Members(3, (), "none"))):
        link.poll()
        assert link.wanted == Members(3, (), "none")
