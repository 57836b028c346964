"""How the version that a machine speaks stands to the studio's, in words for the cluster page and for the machine itself. Pure.

Versions one apart work together in both directions. One that is further apart is refused, and is to the studio as one that is cut off: what
it has suspends by itself when its lease is over, and goes on elsewhere after that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from django.conf import settings

from experiments.models import Node
from training_runtime import protocol
from training_runtime.host.client import upgrade_words
from training_runtime.node import messages
from training_runtime.version_skew import ProtocolVersion, too_far_behind

State = Literal["unknown", "same", "behind", "ahead", "refused"]
UNTIL_THEN = "Until then it takes no part: its runs suspend by themselves, and go on elsewhere, as those of a machine that is cut off."


@dataclass(frozen=True)
class VersionStanding:
    """`words`: a sentence or two; `problem`: why the two do not work together, empty where they do."""

    state: State
    words: str
    problem: str = ""


def of(node: Node) -> VersionStanding:
    """As the machine last said it."""
    if node.protocol_version is None:
        return VersionStanding("unknown", "Not known yet.")
    spoken = ProtocolVersion(node.protocol_version, node.protocol_oldest or node.protocol_version)
    return of_own_host(spoken) if node.name == settings.EDT_NODE else of_joined(spoken)


def of_joined(spoken: ProtocolVersion) -> VersionStanding:
    """Of a machine that joins by `edt-node join`."""
    ours = messages.SPOKEN
    if behind := too_far_behind(spoken, ours):
        problem = messages.apart(behind, studio=ours, machine=spoken)
        return VersionStanding("refused", f"{problem} {UNTIL_THEN}", problem)
    return _working(spoken, ours, messages.UPGRADE_MACHINE)


def of_own_host(spoken: ProtocolVersion) -> VersionStanding:
    """Of the host of the studio's own machine, which outlives the studio; one that is too far apart is replaced at its start."""
    return _working(spoken, protocol.SPOKEN, f"To bring its host to the studio's release, {upgrade_words('theirs')}.")


def _working(spoken: ProtocolVersion, ours: ProtocolVersion, how: str) -> VersionStanding:
    if spoken.version == ours.version:
        return VersionStanding("same", f"Version {spoken.version}, as the studio.")
    if spoken.version < ours.version:
        return VersionStanding("behind", f"Version {spoken.version}; the studio speaks {ours.version} and works with it. {how}")
    return VersionStanding(
        "ahead", f"Version {spoken.version}, newer than the studio's {ours.version}, and works with it. Upgrade the studio next."
    )
