"""Texts that are stored encrypted, under a key of the studio's own: whoever reads the database, or a copy of it, does not read them."""

from __future__ import annotations

import base64
import functools

from cryptography.fernet import Fernet, InvalidToken
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings


class Unreadable(Exception):
    """It was sealed with another key."""


def seal(text: str, *, purpose: str) -> str:
    """`purpose`: each has a key of its own, so that what was sealed for one is nothing to another."""
    return _fernet(settings.SECRET_KEY, purpose).encrypt(text.encode()).decode()


def unseal(sealed: str, *, purpose: str) -> str:
    """Raises Unreadable."""
    try:
        return _fernet(settings.SECRET_KEY, purpose).decrypt(sealed.encode()).decode()
    except InvalidToken:
        raise Unreadable from None


@functools.cache
def _fernet(key: str, purpose: str) -> Fernet:
    derived = HKDF(SHA256(), 32, salt=None, info=f"edt-studio: {purpose}".encode()).derive(key.encode())
    return Fernet(base64.urlsafe_b64encode(derived))
