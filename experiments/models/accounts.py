"""What is known of logins that failed, of people at their OpenID provider, and of access tokens that were logged off."""

from __future__ import annotations

from django.db import models

from experiments.models.projects import User


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


class Identity(models.Model):
    """A person at an OpenID provider, which knows them by `subject` for ever. `name`: what it called them last. `made_account`: their first
    log-in made the account, which can be used by it as long as its rules let them in; else its owner has linked the two."""

    person = models.ForeignKey(User, on_delete=models.CASCADE, related_name="identities")
    issuer = models.CharField(max_length=500)
    subject = models.CharField(max_length=255)
    name = models.CharField(max_length=150, blank=True)
    made_account = models.BooleanField(default=False)
    linked_at = models.DateTimeField()
    last_used_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["issuer", "subject"], name="one_person_of_an_identity"),
            models.UniqueConstraint(fields=["person", "issuer"], name="one_identity_at_a_provider"),
        ]
