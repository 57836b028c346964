"""Whether a message was sent by who knows a trigger's secret, and what it says: as GitHub, GitLab, Gitea and Forgejo send pushes, and as
anybody may. Pure: headers and bytes in, facts out."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any

SIGNED = ("X-EDT-Signature-256", "X-Hub-Signature-256", "X-Gitea-Signature", "X-Forgejo-Signature")  # HMAC-SHA256 of the body, in hex
TOKEN = "X-Gitlab-Token"  # noqa: S105  (the name of a header: GitLab sends the secret itself)
NUMBERS = ("X-EDT-Delivery", "X-GitHub-Delivery", "X-Gitlab-Event-UUID", "X-Gitea-Delivery", "X-Forgejo-Delivery")
KINDS = ("X-GitHub-Event", "X-Gitea-Event", "X-Forgejo-Event", "X-Gitlab-Event")
LONGEST = 100
HEADS = "refs/heads/"


def sign(body: bytes, secret: str) -> str:
    return f"sha256={hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}"


def is_signed(headers: Mapping[str, str], body: bytes, secret: str) -> bool:
    """By any of the ways."""
    wanted = sign(body, secret).removeprefix("sha256=").encode()
    given = [headers[name].removeprefix("sha256=").encode() for name in SIGNED if headers.get(name)]
    right = any([hmac.compare_digest(each, wanted) for each in given])
    return right or hmac.compare_digest(headers.get(TOKEN, "").encode(), secret.encode())


def number_of(headers: Mapping[str, str], body: bytes) -> str:
    """What its sender calls this delivery; where they call it nothing, its content."""
    named = next((headers[name] for name in NUMBERS if headers.get(name)), "")
    return named[:LONGEST] or hashlib.sha256(body).hexdigest()


def is_ping(headers: Mapping[str, str]) -> bool:
    """Sent to see whether it arrives."""
    return headers.get("X-GitHub-Event", "") == "ping"


def branch_of(headers: Mapping[str, str], body: bytes) -> str | None:
    """The branch that was pushed to; None for all else."""
    kind = next((headers[name] for name in KINDS if headers.get(name)), "push")
    said = _json(body)
    ref = said.get("ref")
    if "push" not in kind.lower() or not isinstance(ref, str) or not ref.startswith(HEADS):
        return None
    return ref.removeprefix(HEADS)


def _json(body: bytes) -> dict[str, Any]:
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}
