"""`edt nodes`: the machines, and what administrators of the cluster do to them and their slots."""

from __future__ import annotations

from typing import Any

import click

from edt_client import machines
from edt_client.cli import output
from edt_client.cli.output import as_json, say_json, with_studio
from edt_client.client import Studio
from edt_client.things import Node

name_argument = click.argument("name")
slot_option = click.option("--slot", default="", help='One of its slots alone: "GPU 3", or its number.')
reason_option = click.option("--reason", default="", help="Everybody can read it.")


@click.group("nodes", invoke_without_command=True)
@as_json
@with_studio
def nodes(studio: Studio, as_json: bool) -> None:
    """The machines; add, drain, resume, put-back, rename, lost and remove are for administrators of the cluster.

    \b
    Example: edt nodes
    """
    if click.get_current_context().invoked_subcommand:
        return
    found = studio.nodes()
    if as_json:
        say_json(found)
        return
    rows = [
        (
            each.name,
            _state(each),
            len(each.slots),
            each.cpu_count,
            len(each.gpus),
            f"{each.memory_bytes / 2**30:.0f} GiB",
            each.sandbox_level,
        )
        for each in found
    ]
    output.table(("machine", "state", "slots", "processors", "GPUs", "memory", "box"), rows)
    for each in found:
        _say_ill(each)


@nodes.command("add")
@name_argument
@click.option("--slots", type=int, default=None, help="How many it shares out. Default: one for each of its GPUs, else 4.")
@as_json
@with_studio
def add(studio: Studio, name: str, slots: int | None, as_json: bool) -> None:
    """Print the one command with which a machine joins as NAME. The token in it is shown this once and waits a day.

    \b
    Example: edt nodes add beta --slots 8
    """
    made = studio.do(machines.add(name, slots=slots))
    if as_json:
        say_json(made)
        return
    click.echo(made["command"])


@nodes.command("pilots")
@as_json
@with_studio
def pilots(studio: Studio, as_json: bool) -> None:
    """How many machines are held of a site's Slurm, Ray or Kubernetes, and why. Their policy is set on the page Pilots, or by the API.

    \b
    Example: edt nodes pilots
    """
    found = studio.do(machines.pilot_pools())
    if as_json:
        say_json(found)
        return
    for pool in found:
        click.echo(f"{pool['name']}: {' '.join(pool['words']) or 'nothing was decided yet.'}")
    rows = [(each["node_name"], each["job"], each["phase"], each["words"] or each["reason"]) for pool in found for each in pool["pilots"]]
    output.table(("pilot", "job", "state", "why"), rows)


@nodes.command("drain")
@name_argument
@slot_option
@reason_option
@with_studio
def drain(studio: Studio, name: str, slot: str, reason: str) -> None:
    """Let a machine, or one of its slots, take no new runs; those there move away.

    \b
    Example: edt nodes drain alpha --reason "a new fan"
    """
    studio.do(machines.drain(name, draining=True, slot=slot, reason=reason))
    click.echo(f"{slot or name} takes no new runs.")


@nodes.command("resume")
@name_argument
@slot_option
@reason_option
@with_studio
def resume(studio: Studio, name: str, slot: str, reason: str) -> None:
    """Let a drained machine, or one of its slots, take runs again.

    \b
    Example: edt nodes resume alpha --slot "GPU 3"
    """
    studio.do(machines.drain(name, draining=False, slot=slot, reason=reason))
    click.echo(f"{slot or name} takes runs again.")


@nodes.command("put-back")
@name_argument
@click.argument("slot")
@reason_option
@with_studio
def put_back(studio: Studio, name: str, slot: str, reason: str) -> None:
    """Use a slot again that was taken out of service because it looked ill; what spoke against it is forgotten.

    \b
    Example: edt nodes put-back alpha "GPU 3"
    """
    _say_ill(studio.do(machines.put_back(name, slot, reason=reason)))
    click.echo(f"{slot} is in service.")


@nodes.command("lost")
@name_argument
@click.option("--confirm", default=None, help="The machine's name once more, instead of being asked for it.")
@reason_option
@with_studio
def lost(studio: Studio, name: str, confirm: str | None, reason: str) -> None:
    """Declare a machine lost that is offline for good: its slots are free, its runs go on elsewhere from their last checkpoint. Make sure
    that it is off.

    \b
    Example: edt nodes lost alpha
    """
    typed = confirm if confirm is not None else click.prompt("Type the machine's name to confirm", err=True)
    freed = studio.do(machines.declare_lost(name, confirm_name=typed, reason=reason))
    click.echo(f"{name} is declared lost. Slots freed: {freed['slots']}; runs that go on elsewhere or end: {freed['runs']}.")


@nodes.command("rename")
@name_argument
@click.argument("title")
@with_studio
def rename(studio: Studio, name: str, title: str) -> None:
    """Give a machine a title for people; "" takes it away. Its name stays.

    \b
    Example: edt nodes rename alpha "The one by the window"
    """
    studio.do(machines.rename(name, title))
    click.echo(f"{name} has a title." if title else f"{name} has no title.")


@nodes.command("remove")
@name_argument
@reason_option
@with_studio
def remove(studio: Studio, name: str, reason: str) -> None:
    """Take a machine out of the lists that is offline and that no run has to do with.

    \b
    Example: edt nodes remove alpha
    """
    studio.do(machines.remove(name, reason=reason))
    click.echo(f"{name} is removed. It is back when its host is heard of again.")


def _state(machine: Node) -> str:
    return "silent" if machine.silent else "draining" if machine.draining else "up"


def _say_ill(machine: Node) -> None:
    """Its slots that look ill, and why."""
    for slot in machine.slots:
        words: dict[str, Any] = {"is out of service": slot.get("out_reason"), "looks ill": slot.get("doubt")}
        for what, why in words.items():
            if why:
                click.echo(f"{machine.name} {slot['label']} {what}: {why}")


COMMANDS = (nodes,)
