"""Whether a receipt is what a studio has sealed: by its own numbers, without asking anybody."""

from __future__ import annotations

import base64
import hashlib
import importlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

KIND = "edt-receipt-1"
NO_RECEIPT = "This is no receipt of EDT Studio, or it was damaged."
CHANGED = "The receipt was changed since it was sealed: its content does not have the SHA-256 that its seal says."
FORGED = "The receipt's signature is not that of the key it names: it was changed, or made by somebody else."
MOST_BYTES = 64 << 20


@dataclass(frozen=True)
class Checked:
    """`problem`: why it is not to be believed, "" where nothing speaks against it. `signature`: whether it could be checked here, which
    takes the package cryptography. `key`: whose it is."""

    problem: str
    signature: bool = False
    key: str = ""


def check(raw: bytes) -> Checked:
    """Of a file's content. A receipt that anybody may have sealed passes: compare the key with the studio's."""
    try:
        receipt = json.loads(raw)
        card, seal = receipt["card"], receipt["seal"]
        sha256, key, signature = (str(seal[name]) for name in ("sha256", "key", "signature"))
        content = canonical(card)
        if receipt["kind"] != KIND or not isinstance(card, dict):
            return Checked(NO_RECEIPT)
    except (ValueError, KeyError, TypeError, RecursionError):
        return Checked(NO_RECEIPT)
    if hashlib.sha256(content).hexdigest() != sha256:
        return Checked(CHANGED, key=key)
    signed = _is_signed(content, key, signature)
    return Checked(FORGED if signed is False else "", signature=signed is not None, key=key)


def canonical(card: Mapping[str, Any]) -> bytes:
    """What is signed: JSON with sorted names and no spaces, in ASCII."""
    return json.dumps(card, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()


def _is_signed(content: bytes, key: str, signature: str) -> bool | None:
    """None where that cannot be told here."""
    try:
        exceptions = importlib.import_module("cryptography.exceptions")
        ed25519 = importlib.import_module("cryptography.hazmat.primitives.asymmetric.ed25519")
    except ImportError:
        return None
    try:
        ed25519.Ed25519PublicKey.from_public_bytes(base64.b64decode(key)).verify(base64.b64decode(signature), content)
    except (exceptions.InvalidSignature, ValueError):
        return False
    return True
