"""What a definition of the seeded studio requires, as if it had been built yesterday."""

from __future__ import annotations

import datetime as dt

from experiments.models import DefinitionVersion, Environment, EnvironmentBuild, Node


def environment(version: DefinitionVersion, node: Node, now: dt.datetime) -> Environment:
    """What the version requires, built on the node for a day."""
    version.requirements, version.requirements_key = "torch>=2  # requirements.txt:1\ntqdm  # requirements.txt:2\n", "5" * 64
    version.save(update_fields=["requirements", "requirements_key"])
    node.base, node.base_words = "c" * 64, "Python 3.11, numpy 2.4.6, torch 2.13.0+cpu"
    node.save(update_fields=["base", "base_words"])
    lock = f"tqdm==4.70.1 \\\n    --hash=sha256:{'d' * 64}\n"
    made = Environment.objects.create(
        requirements_key=version.requirements_key,
        base_key=node.base,
        base_words=node.base_words,
        requirements=version.requirements,
        lock=lock,
        packages=[["tqdm", "4.70.1"]],
        created_at=now - dt.timedelta(days=1),
        resolved_at=now - dt.timedelta(days=1),
    )
    at = now - dt.timedelta(days=1)
    log = "$ uv pip compile requirements.txt --constraint constraints.txt\n$ uv pip install --requirement lock.txt\n + tqdm==4.70.1\n"
    facts = {"folder": "e" * 40, "size_bytes": 512_000, "seconds": 2.4, "log": log, "asked_at": at, "ended_at": at, "used_at": now}
    EnvironmentBuild.objects.create(environment=made, node=node, state="ready", **facts)
    return made
