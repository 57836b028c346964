"""What is known of logins that failed, and of access tokens that were logged off."""

from __future__ import annotations

from django.db import models


class LoginFailure(models.Model):
    """A wrong password, kept for as long as it counts (logins.WINDOW_S). `browser`: one that had logged in as that person before."""

    username = models.CharField(max_length=150)
    address = models.CharField(max_length=64)
    browser = models.CharField(max_length=32, blank=True)
    at = models.DateTimeField(db_index=True)

    class Meta:
        indexes = [
            models.Index(fields=["username", "at"], name="login_failure_of_name"),
            models.Index(fields=["address", "at"], name="login_failure_of_address"),
        ]


class EndedToken(models.Model):
    """An access token that was logged off before its time (`wmla.tokens`): by its own number, until it would have ended anyway."""

    key = models.CharField(max_length=64, unique=True)
    until = models.DateTimeField()
