"""Two machines that are this one, for benchmarks: on the loopback device, or in network namespaces with a cable of some rate between."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

BURST = "1mb"  # more than what goes through in a tick of the kernel's clock


@dataclass(frozen=True)
class Machine:
    """Where others reach it, the name of its network interface, and the words before a command that is to run on it."""

    address: str
    interface: str
    within: tuple[str, ...] = ()


LOOPBACK = Machine("127.0.0.1", "lo"), Machine("127.0.0.1", "lo")


@contextmanager
def linked(rate: str) -> Iterator[tuple[Machine, Machine]]:
    """A cable of `rate` in each direction, as tc(8) writes it (1gbit). As root, with iproute2."""
    names, made = ("edt-bench-a", "edt-bench-b"), []
    try:
        for name in names:
            _do("ip", "netns", "add", name)
            made.append(name)
        _do("ip", "link", "add", "cable", "netns", names[0], "type", "veth", "peer", "name", "cable", "netns", names[1])
        for number, name in enumerate(names, start=1):
            _do("ip", "-n", name, "addr", "add", f"10.199.0.{number}/24", "dev", "cable")
            for device in ("lo", "cable"):
                _do("ip", "-n", name, "link", "set", device, "up")
            _do("tc", "-n", name, "qdisc", "add", "dev", "cable", "root", "tbf", "rate", rate, "burst", BURST, "latency", "50ms")
        home, other = (Machine(f"10.199.0.{n}", "cable", ("ip", "netns", "exec", name)) for n, name in enumerate(names, start=1))
        yield home, other
    finally:
        for name in made:
            _do("ip", "netns", "del", name)


def plug(machine: Machine, *, out: bool) -> None:
    """Pull the cable out of a machine, or put it in again. Nobody is told."""
    _do("ip", "-n", machine.within[-1], "link", "set", machine.interface, "down" if out else "up")


def _do(*command: str) -> None:
    subprocess.run(command, check=True)
