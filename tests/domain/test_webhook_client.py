"""Addresses that people type for webhooks: which are asked, how, and what is said of those that are not."""

from __future__ import annotations

import socket
import threading
from typing import Any

import pytest
from django.utils import timezone

from experiments.notifications import webhook_client
from experiments.notifications.webhook_client import AddressRefused, RequestFailed
from tests.domain.test_deliveries import LOCAL, Receiver, receiver

__all__ = ["receiver"]  # a fixture


def test_a_refusal_does_not_tell_which_address_a_name_has_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.20.30.40", 80))]
    monkeypatch.setattr(webhook_client.socket, "getaddrinfo", lambda *_, **__: found)
    with pytest.raises(AddressRefused) as refusal:
        webhook_client.look_up("http://wiki.internal.example/")
    assert "10.20" not in str(refusal.value)


def test_a_name_that_nobody_resolves_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = threading.Event()
    monkeypatch.setattr(webhook_client.socket, "getaddrinfo", lambda *_, **__: asked.wait(30))
    monkeypatch.setattr(webhook_client, "LOOK_UP_S", 0.05)
    with pytest.raises(RequestFailed, match="Nobody says"):
        webhook_client.look_up("http://slow.example/")
    asked.set()


def test_the_next_address_of_a_name_is_tried_where_the_first_does_not_answer(monkeypatch: pytest.MonkeyPatch, receiver: Receiver) -> None:
    port = int(receiver.url.split(":")[2].split("/")[0])
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in ("127.0.0.2", "127.0.0.1")]
    monkeypatch.setattr(webhook_client.socket, "getaddrinfo", lambda *_, **__: found)
    connected = []

    def connect(to: tuple[str, int], timeout: float) -> socket.socket:
        connected.append(to[0])
        if to[0] == "127.0.0.2":
            raise TimeoutError
        return _connect(to, timeout)

    monkeypatch.setattr(webhook_client.socket, "create_connection", connect)
    assert webhook_client.post(f"http://two.example:{port}/", b"{}", {}, allow=LOCAL) == 200
    assert connected == ["127.0.0.2", "127.0.0.1"]


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/", "http://localhost/", "http://[::1]/", "http://0.0.0.0/", "http://10.1.2.3/", "http://172.16.0.1/",
        "http://192.168.1.1/", "http://169.254.169.254/latest/meta-data", "http://100.64.0.1/", "http://[fe80::1]/", "http://[fd00::1]/",
        "http://[::ffff:127.0.0.1]/", "http://[64:ff9b::7f00:1]/", "http://[2002:7f00:1::]/", "http://224.0.0.1/", "http://255.255.255.255/",
        "http://2130706433/", "http://0x7f.1/", "http://127.1/", "http://[::]/",
    ],
)  # fmt: skip
def test_an_address_inside_is_refused(url: str) -> None:
    with pytest.raises((AddressRefused, RequestFailed)) as error:
        webhook_client.look_up(url)
    assert isinstance(error.value, AddressRefused) or "not known" in str(error.value)


@pytest.mark.parametrize(
    "url", ["", "ftp://example.org/", "file:///etc/passwd", "https://", "http://user:secret@example.org/", "https://a b/", "http://x:99999/",
            "//example.org", "http://example.org:0/", "https://example.org/\r\nX: y", "gopher://1.1.1.1/", "http://[::1"],
)  # fmt: skip
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(AddressRefused):
        webhook_client.look_up(url, allow=LOCAL)


def test_an_open_address_and_an_allowed_one_pass() -> None:
    assert webhook_client.look_up("https://1.1.1.1/hook?a=b").path == "/hook?a=b"
    assert webhook_client.look_up("http://127.0.0.1:8080/", allow=LOCAL).port == 8080
    assert set(webhook_client.look_up("http://localhost/", allow=["localhost"]).addresses) <= {"127.0.0.1", "::1"}
    with pytest.raises(AddressRefused):
        webhook_client.look_up("http://10.0.0.1/", allow=LOCAL)


def test_a_name_that_has_one_address_inside_is_refused_and_the_one_looked_at_is_connected_to(
    monkeypatch: pytest.MonkeyPatch, receiver: Receiver
) -> None:
    def answers(*addresses: str) -> Any:
        return lambda *_, **__: [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 80)) for address in addresses]

    monkeypatch.setattr(webhook_client.socket, "getaddrinfo", answers("1.1.1.1", "10.0.0.1"))
    with pytest.raises(AddressRefused):
        webhook_client.look_up("http://mixed.example/")
    target = []
    port = int(receiver.url.split(":")[2].split("/")[0])
    monkeypatch.setattr(webhook_client.socket, "getaddrinfo", answers("127.0.0.1"))
    monkeypatch.setattr(webhook_client.socket, "create_connection", lambda to, timeout: target.append(to) or _connect(to, timeout))
    webhook_client.post(f"http://studio.example:{port}/", b"{}", {}, allow=LOCAL)
    assert target == [("127.0.0.1", port)]  # not the name, which might lead elsewhere by now
    assert receiver.got[0][0]["Host"] == f"studio.example:{port}"


def _connect(to: tuple[str, int], timeout: float) -> socket.socket:
    made = socket.socket()
    made.settimeout(timeout)
    made.connect(to)
    return made


def test_a_server_that_answers_for_ever_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_client, "WHOLE_S", 0.3)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        began = timezone.now()
        with pytest.raises(RequestFailed):
            webhook_client.post(f"http://127.0.0.1:{listener.getsockname()[1]}/", b"{}", {}, allow=LOCAL)  # accepted, never answered
        assert (timezone.now() - began).total_seconds() < 4
