"""People's accounts: made by an administrator, with a generated password that is shown once and never stored in the clear."""

from __future__ import annotations

import secrets

from django.core.exceptions import ValidationError

from experiments.models import User


def give_password(username: str, *, staff: bool = False, create: bool = True) -> str:
    """A new random password for `username`, whose account is made where there is none. Returns it: the only time anyone sees it.

    An existing account keeps its rights; `staff` only adds them. Raises ValidationError for a name that cannot be one, or is unknown
    where `create` is False.
    """
    password = secrets.token_urlsafe(12)
    user = User.objects.filter(username=username).first()
    if user is None and not create:
        raise ValidationError({"username": f"There is no account named {username}."})
    user = user or User(username=username)
    user.is_staff = user.is_staff or staff
    user.is_active = True
    user.set_password(password)
    user.full_clean()
    user.save()
    return password
