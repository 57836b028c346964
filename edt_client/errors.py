"""What can go wrong between a person and the studio. Messages are sentences for the person; none of them holds a token or a password."""

from __future__ import annotations


class ClientError(Exception):
    """The studio could not be asked."""


class NoAnswer(ClientError):
    """Nothing answers at the studio's address, or not as a studio does; it may be there again later."""


class Refused(ClientError):
    """The studio says no. `status` is HTTP's."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status
