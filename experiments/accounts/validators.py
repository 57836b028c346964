"""What Django asks of a new password beside its own rules (AUTH_PASSWORD_VALIDATORS). It raises what Django's forms expect."""

from __future__ import annotations

from django.core.exceptions import ValidationError

from experiments.models import User


class MoreThanTheName:
    """What stands beside the username must be a password of its own."""

    def __init__(self, least: int = 8) -> None:
        self.least = least

    def validate(self, password: str, user: User | None = None) -> None:
        name = user.username.lower() if user else ""
        rest = password.lower().replace(name, "").replace(name[::-1], "") if len(name) > 2 else password
        if len(rest) < self.least:
            raise ValidationError("This password is little more than your username: take one that does not hold it.")

    def get_help_text(self) -> str:
        return f"A password that holds your username needs {self.least} more characters."
