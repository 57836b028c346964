"""What administrators do to environments."""

from __future__ import annotations

from experiments.cluster import environments
from experiments.errors import DomainError
from experiments.models import Environment, User
from experiments.services import checks


def drop_environment(environment: Environment, *, by: User) -> None:
    """Delete it from every machine. Refused where live runs need it, or nothing of it is there."""
    if not environments.drop_environment(environment):
        raise DomainError("Nothing of it can be deleted: it is not built anywhere, or runs that have not ended need it.")
    checks.audit(by, "deletes environment %s", environment.pk)
