"""What a definition of the seeded studio requires, as if it had been built yesterday."""

from __future__ import annotations

import datetime as dt

from experiments import services
from experiments.models import DefinitionVersion, Environment, EnvironmentBuild, NamedEnvironment, Node, User


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


def offered(version: DefinitionVersion, node: Node, now: dt.datetime, *, by: User) -> NamedEnvironment:
    """An environment that an administrator offers, renewed once, whose newest build failed; the version has its first."""
    text = "transformers>=4.40\n# curves\ntensorboard\n"
    old = services.create_named_environment(by=by, name="vision 2026", description="Nets for pictures.", text=text, now=now)
    required = {"requirements": old.requirements, "requirements_key": old.requirements_key}
    DefinitionVersion.objects.filter(pk=version.pk).update(packages="named", named=old, **required)
    new = services.renew_named_environment(old.environment, by=by, now=now)
    made = Environment.objects.create(
        requirements_key=new.requirements_key,
        base_key=node.base,
        base_words=node.base_words,
        requirements=new.requirements,
        created_at=now,
    )
    problem = "environment vision 2026 line 3: tensorboard is not in the package index: correct its name."
    facts = {"seconds": 2.4, "log": "$ uv pip compile requirements.txt\n", "asked_at": now, "ended_at": now, "problem": problem}
    EnvironmentBuild.objects.create(environment=made, node=node, state="failed", **facts)
    return old.environment


def pages() -> dict[str, str]:
    """Addresses of the pages about what is offered."""
    itself = f"/cluster/environments/offered/{NamedEnvironment.objects.get().pk}/"
    return {
        "offered environments": "/cluster/environments/offered/",
        "offered environment": itself,
        "offered environment, looked after": f"{itself}?",
        "new offered environment": "/cluster/environments/offered/new/",
        "change of an offered environment": f"{itself}change/",
    }
