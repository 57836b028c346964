"""Machines with a network of their own: namespaces of this machine, each with an address, on a bridge on which the studio listens."""

from __future__ import annotations

import contextlib
import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from random import SystemRandom

from tests.e2e.studio import wait_until

FAKETIME = f"/usr/lib/{os.uname().machine}-linux-gnu/faketime/libfaketimeMT.so.1"


def run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"


def problem() -> str:
    """Why there can be none here; empty where there can."""
    done = subprocess.run(["unshare", "--net", "true"], capture_output=True, text=True, check=False)
    return f"no network namespaces here: {done.stderr}" if done.returncode else ""


@dataclass
class Namespace:
    """One machine's network, for as long as `holder` lives. `cable`: its end on the bridge."""

    holder: subprocess.Popen[bytes]
    address: str
    cable: str

    def within(self, *, clock: str = "") -> tuple[str, ...]:
        """What runs a command there. `clock`: what the machine's wall clock is wrong by, as faketime says it (-2h); others are right."""
        wrong = ("env", f"LD_PRELOAD={FAKETIME}", f"FAKETIME={clock}", "DONT_FAKE_MONOTONIC=1") if clock else ()
        return ("nsenter", f"--net=/proc/{self.holder.pid}/ns/net", *wrong)

    def cut(self) -> None:
        run("ip", "link", "set", self.cable, "down")

    def mend(self) -> None:
        run("ip", "link", "set", self.cable, "up")

    def slow(self, *, rate: str) -> None:
        run("tc", "qdisc", "replace", "dev", self.cable, "root", "tbf", "rate", rate, "burst", "32kbit", "latency", "400ms")


@dataclass
class Bridge:
    """`address`: of this machine on it."""

    number: str = field(default_factory=lambda: f"{SystemRandom().randrange(1 << 16):04x}")
    machines: list[Namespace] = field(default_factory=list)

    @property
    def net(self) -> str:
        return f"10.{int(self.number[:2], 16)}.{int(self.number[2:], 16)}"

    @property
    def address(self) -> str:
        return f"{self.net}.1"

    @property
    def name(self) -> str:
        return f"edtb{self.number}"

    def open(self) -> None:
        run("ip", "link", "add", self.name, "type", "bridge")
        run("ip", "address", "add", f"{self.address}/24", "dev", self.name)
        run("ip", "link", "set", self.name, "up")

    def machine(self) -> Namespace:
        index = len(self.machines) + 2
        holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
        made = Namespace(holder, f"{self.net}.{index}", f"edtv{self.number}{index}")
        self.machines.append(made)
        mine = Path("/proc/self/ns/net").stat().st_ino
        wait_until(lambda: Path(f"/proc/{holder.pid}/ns/net").stat().st_ino != mine, "its namespace")
        run("ip", "link", "add", made.cable, "type", "veth", "peer", "name", "eth0", "netns", str(holder.pid))
        run("ip", "link", "set", made.cable, "master", self.name, "up")
        run(*made.within(), "ip", "address", "add", f"{made.address}/24", "dev", "eth0")
        for name in ("eth0", "lo"):
            run(*made.within(), "ip", "link", "set", name, "up")
        return made

    def close(self) -> None:
        for machine in self.machines:
            machine.holder.kill()
            machine.holder.wait(10)
        with contextlib.suppress(AssertionError):
            run("ip", "link", "delete", self.name)


def can_skew_clocks() -> bool:
    return Path(FAKETIME).exists()
