"""Networks for tests: who greets on a port of this machine, and another machine beside it. Whether namespaces can be made here at all."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from tests.host.conftest import is_root
from training_runtime.host.sandbox import network, probe

FROM_INSIDE = """
import socket
def speak(address, family=socket.AF_INET):
    with socket.socket(family) as caller:
        caller.settimeout(10)
        caller.connect(address)
        return caller.recv(100)
"""

GREETS = """
import socket
server = socket.create_server(("", 80))
print("ready", flush=True)
while True:
    with server.accept()[0] as caller:
        caller.sendall(b"hello from " + caller.getpeername()[0].encode())
"""


def can() -> str:
    return next((to for to in ("outward", "none") if not probe._in_child(lambda to=to: network.probe(to))), "machine")


needs_network_namespaces = pytest.mark.skipif(can() == "machine", reason="no network namespace can be made here")
needs_a_way_out = pytest.mark.skipif(
    can() != "outward" or not is_root or shutil.which("ip") is None, reason="slirp4netns or iproute2 is not installed, or this is not root"
)


@contextlib.contextmanager
def greeting(listener: socket.socket) -> Iterator[socket.socket]:
    """Who connects is told "hello"."""

    def answer() -> None:
        with contextlib.suppress(OSError):
            while True:
                caller, _ = listener.accept()
                with caller:
                    caller.sendall(b"hello")

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        yield listener
    finally:
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(10)


@contextlib.contextmanager
def another_machine() -> Iterator[dict[str, str]]:
    """It is in a network namespace with a cable to this one, which greets whoever calls on port 80: under an address of the
    internet's, and under one of a private network's."""
    number, name = os.getpid() % 60, f"edt-test-{os.getpid()}"
    here, there, private = f"198.51.100.{4 * number + 1}", f"198.51.100.{4 * number + 2}", f"10.199.{number}.2"
    with contextlib.ExitStack() as stack:
        run("ip", "netns", "add", name)
        stack.callback(run, "ip", "netns", "del", name)
        run("ip", "link", "add", f"edt{os.getpid()}", "type", "veth", "peer", "name", "cable", "netns", name)
        run("ip", "addr", "add", f"{here}/30", "dev", f"edt{os.getpid()}")
        run("ip", "link", "set", f"edt{os.getpid()}", "up")
        for address in (f"{there}/30", f"{private}/32"):
            run("ip", "-n", name, "addr", "add", address, "dev", "cable")
        run("ip", "-n", name, "link", "set", "cable", "up")
        run("ip", "route", "add", f"{private}/32", "via", there)
        server = subprocess.Popen(["ip", "netns", "exec", name, sys.executable, "-c", GREETS], stdout=subprocess.PIPE)
        stack.callback(server.wait)
        stack.callback(server.kill)
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"
        assert socket.create_connection((there, 80), timeout=10).recv(99)
        assert socket.create_connection((private, 80), timeout=10).recv(99)
        yield {"here": here, "there": there, "private": private}


def run(*command: str) -> None:
    """Until it is done: `ip` gives up where another test's is at work with namespaces at that moment."""
    until = time.monotonic() + 10
    while (done := subprocess.run(command, capture_output=True, text=True, check=False)).returncode:
        assert time.monotonic() < until, f"{' '.join(command)}: {done.stderr}"
        if "File exists" in done.stderr:  # it was done, and something after it was not
            return
        time.sleep(0.1)
