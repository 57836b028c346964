"""What a run reaches: nothing but itself, the outside, or what its machine reaches.

One that reaches nothing has a network namespace with a loopback and no other interface. One that reaches the outside has one more, behind
which slirp4netns (https://github.com/rootless-containers/slirp4netns, as rootless Podman uses it) opens connections for it: IPv4 only and
from the inside alone. This machine's addresses, private ones and those of cloud metadata are unreachable then, by routes that the run has
no right to change; what an administrator names is open all the same.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import select
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NoReturn

from training_runtime.errors import SandboxRefused
from training_runtime.host.sandbox import kernel

Reach = Literal["machine", "none", "outward"]
Mode = Literal["best-effort", "required", "shared"]

# Not for the public, by IANA's registry of special-purpose addresses (RFC 6890), and what is no single machine's.
PRIVATE = (
    *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24", "192.168.0.0/16", "198.18.0.0/15"),
    *("224.0.0.0/4", "240.0.0.0/4"),
)
INSIDE = "10.0.2.0/24"  # slirp4netns's own network: the run, the way out and the resolver
_GATEWAY, _RESOLVER, _INTERFACE = "10.0.2.2", "10.0.2.3", "tap0"
_PROGRAMS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_ADDRESSES = Path("/proc/net/fib_trie")
_RESOLV_CONF = Path("/etc/resolv.conf")
_READY_S = 10.0


def reach(*, asked: bool, several: bool, can: Reach, mode: Mode) -> Reach:
    """What a run gets. `asked`: its definition asks for the network, and its project may have it; `several`: it may have workers on other
    machines, which speak to each other; `can`: the closest that this machine can keep. Raises SandboxRefused where EDT_RUN_NETWORK requires
    what it cannot."""
    if mode == "shared" or several:
        return "machine"
    wanted: Reach = "outward" if asked else "none"
    kept = can == "outward" or (can == "none" and not asked)
    if not kept and mode == "required":
        raise SandboxRefused(f"EDT_RUN_NETWORK=required, and this machine cannot keep a run's network apart: {missing(can)}")
    return wanted if kept else "machine"


def missing(can: Reach) -> str:
    """What would keep more apart."""
    absent = [name for name in ("slirp4netns", "ip") if _program(name) is None]
    if can == "machine":
        return "no network namespace can be made here"
    return f"{' and '.join(absent)} not installed (Debian: slirp4netns, iproute2)" if absent else "slirp4netns does not work here"


def networks(text: str) -> tuple[str, ...]:
    """Addresses and networks in CIDR notation, separated by commas. Raises ValueError with a sentence."""
    found = [word.strip() for word in text.split(",") if word.strip()]
    try:
        return tuple(str(ipaddress.IPv4Network(word)) for word in found)
    except ValueError as error:
        raise ValueError(f"{error}: IPv4 addresses or networks such as 192.168.7.0/24, separated by commas") from None


def routes(own: Iterable[str], *, opened: Iterable[str], closed: Iterable[str]) -> dict[str, bool]:
    """Whether each of these networks is reached, the longest prefix deciding; all others are. `own`: addresses of this machine."""
    return {**dict.fromkeys((*PRIVATE, *closed, *(f"{address}/32" for address in own)), False), **dict.fromkeys(opened, True)}


def openings(servers: Iterable[str]) -> tuple[str, ...] | None:
    """The networks to open so that these are reached (names or addresses); None where one is on this machine's own loopback, or has no IPv4
    address: then nothing but the machine's network leads to it. One that nobody knows is left out. Waits for answers about names."""
    found = []
    for server in servers:
        try:
            addresses = {ipaddress.ip_address(each[4][0]) for each in socket.getaddrinfo(server, None, type=socket.SOCK_STREAM)}
        except (OSError, UnicodeError):
            continue
        if any(each.is_loopback for each in addresses) or not any(each.version == 4 for each in addresses):
            return None
        found += [f"{each}/32" for each in sorted(addresses, key=str) if each.version == 4]
    return tuple(dict.fromkeys(found))


def own_addresses(table: str) -> list[str]:
    """The machine's IPv4 addresses but its loopback's, from the kernel's table (/proc/net/fib_trie)."""
    found, address = set(), ""
    for line in table.splitlines():
        words = line.split()
        if words[:1] == ["|--"]:
            address = words[1]
        elif words[:3] == ["/32", "host", "LOCAL"] and not address.startswith("127."):
            found.add(address)
    return sorted(found)


def enter(to: Reach, *, opened: tuple[str, ...], closed: tuple[str, ...]) -> None:
    """The calling process, with one thread, reaches no more than that from here on; before it has a root of its own. Raises OSError."""
    if to == "machine":
        return
    own = own_addresses(_ADDRESSES.read_text())
    outside = _Outside.begin() if to == "outward" else None
    root = os.geteuid() == 0
    if not root:
        kernel.own_user_namespace()
    kernel.own_network()
    if outside is not None:
        outside.attach()
        _route(routes(own, opened=opened, closed=closed), root=root)


def settle(to: Reach, *, own_mounts: bool) -> None:
    """After `enter`: names are found, and no right over the network is left. `own_mounts`: it has mounts of its own, and a root of its
    own files."""
    if to == "machine":
        return
    if to == "outward":
        if not own_mounts:
            kernel.own_mounts()
        _resolve_outside(own_files=own_mounts)
    if os.geteuid() != 0:
        kernel.set_capabilities(0)


@dataclass(frozen=True)
class _Outside:
    """A child that stays in the machine's network and becomes slirp4netns for this process, with which it ends."""

    go: int
    ready: int
    said: int

    @classmethod
    def begin(cls) -> _Outside:
        (gate, go), (ready, tells), (said, errors) = os.pipe(), os.pipe(), os.pipe()
        process = os.getpid()
        if os.fork() == 0:
            os.close(go)
            _become_slirp(process, gate=gate, tells=tells, errors=errors)
        for fd in (gate, tells, errors):
            os.close(fd)
        return cls(go, ready, said)

    def attach(self) -> None:
        os.write(self.go, b"g")
        os.close(self.go)
        try:
            answered, _, _ = select.select([self.ready], [], [], _READY_S)
            if not answered or not os.read(self.ready, 1):
                words = os.read(self.said, 2000).decode(errors="replace").strip() if answered else "it does not answer"
                raise OSError(f"slirp4netns gives no way to the network: {words}")
        finally:
            os.close(self.ready)
            os.close(self.said)


def _become_slirp(process: int, *, gate: int, tells: int, errors: int) -> NoReturn:
    try:
        kernel.die_with_the_parent()
        if not os.read(gate, 1):
            os._exit(1)
        os.dup2(os.open(os.devnull, os.O_RDWR), 0)
        os.dup2(0, 1)
        os.dup2(errors, 2)
        os.set_inheritable(tells, True)
        if os.geteuid() == 0:
            # Its sandbox unmounts all that it does not need, and what is mounted below a shared mount (as /run/netns, and the volumes of
            # Kubernetes) it would unmount for the whole machine: it makes the root alone private.
            kernel.own_mounts()
        space = f"/proc/{process}/ns"
        rights = "--enable-sandbox" if os.geteuid() == 0 else f"--userns-path={space}/user"
        options = ("--configure", "--mtu=65520", "--disable-host-loopback", "--enable-seccomp", f"--cidr={INSIDE}", rights)
        program = _program("slirp4netns") or "slirp4netns"
        command = ["slirp4netns", *options, f"--ready-fd={tells}", "--netns-type=path", f"{space}/net", _INTERFACE]
        os.execve(program, command, {})  # noqa: S606
    except BaseException as error:
        os.write(errors, str(error).encode())
    finally:
        os._exit(127)


def _route(reached: dict[str, bool], *, root: bool) -> None:
    if not root:  # it has all of its namespace's; over exec only this one
        kernel.set_capabilities(1 << kernel.CAP_NET_ADMIN | 1 << kernel.CAP_SYS_ADMIN)
    # What is closed or opened may be everything, or hold the run's own network: then it takes the place of slirp4netns's own route.
    way = f"via {_GATEWAY} dev {_INTERFACE} onlink"
    lines = [f"route replace {to} {way}" if is_open else f"route replace prohibit {to}" for to, is_open in reached.items()]
    lines.append(f"route replace {_RESOLVER} {way}")
    done = subprocess.run(
        [_program("ip") or "ip", "-batch", "-"], input="\n".join(lines), capture_output=True, text=True, check=False, env={}
    )
    if done.returncode:
        raise OSError(f"the routes of the run's network cannot be set: {done.stderr.strip()[:500]}")


def _resolve_outside(*, own_files: bool) -> None:
    """Names are resolved by slirp4netns, which asks whom the machine asks. What is not there is made among its own files alone: on the
    machine it would stay, and its names would be asked of nobody."""
    text = f"nameserver {_RESOLVER}\noptions edns0\n"
    target = _RESOLV_CONF.resolve()
    if not target.exists():
        if own_files:  # it was in /run, which the run does not see
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
        return
    fd, name = tempfile.mkstemp(prefix=".resolv.conf-", dir="/dev/shm")
    try:
        os.write(fd, text.encode())
        os.fchmod(fd, 0o644)
        kernel.bind_mount(fd, str(target))
    finally:
        os.close(fd)
        Path(name).unlink()


def _program(name: str) -> str | None:
    return shutil.which(name, path=_PROGRAMS)


def probe(to: Reach) -> str:
    """Why this cannot be kept here, found by trying: for a child that ends after it. Empty where it can."""
    with socket.create_server(("127.0.0.1", 0)) as server, contextlib.ExitStack() as stack:
        try:
            enter(to, opened=(), closed=())
            settle(to, own_mounts=False)
            inside = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            socket.create_connection(inside.getsockname(), timeout=1).close()
        except OSError as error:
            return str(error)
        with contextlib.suppress(OSError):
            socket.create_connection(server.getsockname(), timeout=1).close()
            return "a port of the machine could be reached"
    return ""
