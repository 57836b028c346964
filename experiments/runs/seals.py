"""Receipts sealed by this studio: signed with a key of its own, so that whoever is shown one later can tell that nothing in it was changed.

The key is derived from SECRET_KEY: whoever changes that has another key, and receipts from before name the one they were sealed with.
What is signed is `canonical`, the same bytes for the same content (edt_client.receipts makes them too).
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from django.conf import settings

KIND = "edt-receipt-1"


def canonical(card: Mapping[str, Any]) -> bytes:
    """JSON with sorted names and no spaces, in ASCII."""
    return json.dumps(card, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()


def sealed(card: Mapping[str, Any]) -> dict[str, Any]:
    """The receipt: the card, its SHA-256, and an Ed25519 signature of its canonical bytes with the key that made it."""
    content = canonical(card)
    key = _key(settings.SECRET_KEY)
    seal = {"sha256": hashlib.sha256(content).hexdigest(), "key": public_key(), "signature": base64.b64encode(key.sign(content)).decode()}
    return {"kind": KIND, "card": dict(card), "seal": seal}


def is_ours(receipt: Mapping[str, Any]) -> bool:
    """Whether this studio sealed the receipt and nothing in it was changed. False for input of any other form."""
    try:
        key = Ed25519PublicKey.from_public_bytes(base64.b64decode(public_key()))
        key.verify(base64.b64decode(receipt["seal"]["signature"]), canonical(receipt["card"]))
    except (InvalidSignature, ValueError, TypeError, KeyError, RecursionError):
        return False
    return True


def public_key() -> str:
    return base64.b64encode(_key(settings.SECRET_KEY).public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)).decode()


@functools.cache
def _key(secret: str) -> Ed25519PrivateKey:
    derived = HKDF(SHA256(), 32, salt=None, info=b"edt-studio: seal of receipts").derive(secret.encode())
    return Ed25519PrivateKey.from_private_bytes(derived)
