"""The one place where a refusal of Django's own validators becomes one of the domain's."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from django.core.exceptions import ValidationError

from experiments.errors import DomainError


@contextlib.contextmanager
def as_domain_error(*, field: str = "") -> Iterator[None]:
    """Around `full_clean` or a validator: raises DomainError with the same sentences for the same fields. `field`: of what was asked, for a
    validator, which knows none."""
    try:
        yield
    except ValidationError as error:
        if hasattr(error, "error_dict"):
            raise DomainError(error.message_dict) from None
        raise DomainError({field: error.messages} if field else error.messages) from None
