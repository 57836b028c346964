"""Joined machines with networks and clocks of their own: cables are pulled, networks get slow, clocks are wrong, and a run goes on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.bundles import zipped
from tests.e2e.joined import Joined, line_for
from tests.e2e.moving import (
    all_steps_once,
    completes,
    drains,
    forget_machines,
    gets_on,
    hurry,
    paced_digits,
    slots_of,
    start_with_digits,
    straight_weights,
    submits,
)
from tests.e2e.namespaces import Bridge, Namespace, can_skew_clocks, problem
from tests.e2e.shared import Shared
from tests.e2e.studio import Studio, wait_until
from tests.e2e.test_mishaps import state
from tests.e2e.test_several_joined import EPOCHS, SCRIPT, Scene
from tests.engine.harness import weights

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def bridge() -> Iterator[Bridge]:
    if why := problem():
        pytest.skip(why)
    bridge = Bridge()
    try:
        bridge.open()
        yield bridge
    finally:
        bridge.close()


@pytest.fixture(scope="module")
def impatient(bridge: Bridge) -> Iterator[Shared]:
    """On an address that is not this machine's alone: a machine is given up after twelve seconds, and forgotten when its test is over."""
    settings = {"EDT_NODE_LEASE_S": "2", "EDT_ALLOWED_HOSTS": bridge.address}
    make = lambda: Studio(slots=2, settings=settings, host=bridge.address)  # noqa: E731
    shared = Shared(make, begin=start_with_digits, tidy=forget_machines)
    yield shared
    shared.close()


@pytest.fixture
def studio(impatient: Shared) -> Iterator[Studio]:
    with impatient.for_a_test() as studio:
        yield studio


@pytest.fixture
def machine(studio: Studio) -> Iterator[Callable[..., Joined]]:
    """`machine(name, its namespace, clock)`: ready to join. `data`: whether it has the studio's shared data."""
    machines: list[Joined] = []

    def make(name: str, net: Namespace, *, clock: str = "", data: bool = True) -> Joined:
        line = f"{line_for(studio, name, slots=2)} --insecure"
        machines.append(Joined(studio, name, line, data=studio.home / "data" if data else None, within=net.within(clock=clock)))
        return machines[-1]

    try:
        yield make
    finally:
        for each in machines:
            each.close()


def said_there(machine: Joined, run: int) -> list[dict[str, object]]:
    lines = (machine.folder(run) / "journal.jsonl").read_text().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


def test_a_run_outlives_a_cut_cable_a_slow_network_and_a_wrong_clock_bit_for_bit(
    studio: Studio, bridge: Bridge, machine: Callable[..., Joined], tmp_path: Path
) -> None:
    nets = {name: bridge.machine() for name in ("delta", "epsilon")}
    delta = machine("delta", nets["delta"], clock="-2h" if can_skew_clocks() else "")
    epsilon = machine("epsilon", nets["epsilon"], clock="+3h" if can_skew_clocks() else "")
    for each in (delta, epsilon):
        each.arrives()
    code = paced_digits(tmp_path)
    drains(studio, local=True, delta=True)
    straight = straight_weights(studio, code, command="main.py --epochs 8")

    drains(studio, delta=False, epsilon=True)
    run = submits(studio, code, command="main.py --epochs 8")
    gets_on(studio, run, on="delta")
    nets["delta"].cut()
    wait_until(lambda: "suspended" in str(said_there(delta, run)[-3:]), lambda: f"it stops by itself\n{delta.tail()}")
    assert set(slots_of(studio, run)) == {"delta"}, "before the studio gives its slots to anybody"

    drains(studio, epsilon=False)
    nets["epsilon"].slow(rate="4mbit")
    gets_on(studio, run, on="epsilon")
    nets["delta"].mend()
    wait_until(lambda: ".trash" in delta.folder(run).parts, lambda: f"it has put away what it had\n{delta.tail()}", deadline_s=120)
    hurry(studio)
    completes(studio, run, words=epsilon.tail())
    assert all_steps_once(studio, run)
    assert weights(studio.folder(run)) == straight
    assert studio.held() == {}


def test_a_run_on_two_machines_outlives_the_cables_of_both_bit_for_bit(
    studio: Studio, bridge: Bridge, machine: Callable[..., Joined], tmp_path: Path
) -> None:
    nets = {name: bridge.machine() for name in ("beta", "gamma")}
    machines = {name: machine(name, net, data=False) for name, net in nets.items()}
    scene = Scene(studio, machines, zipped(tmp_path / "c.zip", {"main.py": SCRIPT}))
    scene.begin()
    home, guest = scene.home, scene.guest
    assert home is not None
    addresses = dict(studio.rows("SELECT name, address FROM experiments_node WHERE joined AND name <> 'local' AND removed_at IS NULL"))
    assert addresses == {name: net.address for name, net in nets.items()}, "each is reached where it reaches the studio from"

    nets[guest.name].cut()
    scene.trains_with(2)
    nets[guest.name].mend()
    scene.is_on_both()

    nets[home.name].cut()
    written = home.folder(scene.run) / "journal.jsonl"
    scene.until(lambda: scene.pace.go_on() or '"kind":"suspended"' in written.read_text(), "all of it stops", every_s=0.5)
    scene.until(lambda: scene.home is guest, "it goes on elsewhere")
    nets[home.name].mend()
    scene.pace.go_on(EPOCHS)
    scene.until(lambda: state(studio, scene.run) == "completed", "it completes")
    assert all_steps_once(studio, scene.run)
    assert weights(scene.folder) == scene.fixed
