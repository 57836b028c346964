"""What the boxes of a build reach: package indexes and proxies, wherever they are."""

from __future__ import annotations

import dataclasses

from training_runtime.environments import network
from training_runtime.host.environments.build_spec import BuildSpec
from training_runtime.host.sandbox import levels

LOOPBACK = "EDT_RUN_NETWORK=required, and the package index or the proxy is on this machine's loopback: give it an address of its own"


def connected(spec: BuildSpec) -> BuildSpec:
    """With what leads to proxies and package indexes open in its boxes."""
    servers = network.servers(spec.network)
    trusted = levels.with_servers(spec.trusted, servers)
    strange = levels.with_servers(spec.strange, servers) if spec.strange is not None else None
    if strange is not None and strange.reach == "machine" and spec.isolated:
        return dataclasses.replace(spec, trusted=trusted, strange=None, why_not=LOOPBACK)
    return dataclasses.replace(spec, trusted=trusted, strange=strange)
