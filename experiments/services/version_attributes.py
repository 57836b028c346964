"""What a version of a training definition is beside its code, as it is given and checked."""

from __future__ import annotations

from dataclasses import dataclass, replace

from experiments.definitions import code_facts
from experiments.errors import DomainError
from experiments.files import bundles
from experiments.models import Bundle, DefinitionVersion, NamedVersion
from experiments.models.definitions import BY_CODE, MAX_SLOTS_LIMIT, is_fixed, usual_slots
from experiments.services import checks, named_environments

V = DefinitionVersion


@dataclass(frozen=True)
class VersionAttributes:
    """`distributed`: BY_CODE until the code is there; `max_slots`: None for what is usual for it."""

    framework: str
    command: str
    device: str
    distributed: str
    max_slots: int | None
    packages: str
    named: NamedVersion | None
    network: str

    @property
    def slots(self) -> int:
        return usual_slots(self.distributed) if self.max_slots is None else self.max_slots


def checked(
    errors: list[DomainError],
    *,
    framework: str,
    command: str,
    device: str,
    distributed: str,
    max_slots: int | None,
    packages: str,
    network: str,
    before: DefinitionVersion | None,
) -> VersionAttributes | None:
    """None where something is wrong with them, which `errors` has then."""
    found = len(errors)
    checks.each(errors, lambda: checks.choice(framework, V.Framework, field="framework"))
    checks.each(errors, lambda: checks.choice(device, V.Device, field="device"))
    if distributed != BY_CODE:
        checks.each(errors, lambda: checks.choice(distributed, V.Distributed, field="distributed"))
    checks.each(errors, lambda: checks.choice(network, V.Network, field="network"))
    chosen = checks.each(errors, lambda: named_environments.chosen(packages, before=before))
    if max_slots is not None:
        checks.each(errors, lambda: checks.whole(max_slots, field="max_slots", least=1, most=MAX_SLOTS_LIMIT))
    clean = checks.each(errors, lambda: checks.text(command, field="command", limit=checks.COMMAND_LIMIT))
    if clean:
        checks.each(errors, lambda: _parse(clean, distributed))
    if len(errors) > found or clean is None or chosen is None:
        return None
    made = VersionAttributes(framework, clean, device, distributed, max_slots, *chosen, network)
    checks.each(errors, lambda: _check_room(made))
    return made


def typed(attributes: VersionAttributes, bundle: Bundle) -> VersionAttributes:
    """With the type that the code asks for, where it is to say."""
    if attributes.distributed != BY_CODE:
        return attributes
    found = replace(attributes, distributed=code_facts.wanted_type(bundle, attributes.command))
    _check_room(found)
    return found


def _check_room(attributes: VersionAttributes) -> None:
    if is_fixed(attributes.distributed):
        checks.on_one_machine(attributes.slots, device=attributes.device)


def _parse(command: str, distributed: str) -> None:
    try:
        bundles.parse_command(command)
        bundles.check_type(command, distributed)
    except bundles.BundleRefused as refusal:
        checks.refuse("command", str(refusal))
