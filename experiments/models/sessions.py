"""Sessions of browsers, as Django keeps them, and whose they are."""

from __future__ import annotations

from django.contrib.sessions.backends.db import SessionStore
from django.contrib.sessions.base_session import AbstractBaseSession
from django.db import models

from experiments.models.projects import User


class BrowserSession(AbstractBaseSession):
    """Written by `accounts.sessions`, which is the studio's SESSION_ENGINE."""

    person = models.ForeignKey(User, null=True, on_delete=models.CASCADE, related_name="browser_sessions")  # None: nobody has logged in
    seen_at = models.DateTimeField()  # within SEEN_AGAIN of the last request

    class Meta:
        ordering = ["-seen_at", "session_key"]

    @classmethod
    def get_session_store_class(cls) -> type[SessionStore]:
        """Which reads what is in it."""
        return SessionStore
