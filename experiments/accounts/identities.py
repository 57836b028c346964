"""What an OpenID provider says of somebody, and what follows from it here. Pure: claims in, decisions out.

Terms: OpenID Connect Core 1.0. Somebody is the same as before where issuer and subject are; names and addresses may change.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

LONGEST_SUBJECT = 255  # characters, as the standard has it
LONGEST_NAME = 150
LONGEST_EMAIL = 254
EVERYBODY = "*"
_NOT_IN_A_NAME = re.compile(r"[^\w.@+-]+")  # as Django's own validator of usernames


class Unusable(Exception):
    """The claims name nobody. The message says why."""


@dataclass(frozen=True)
class Claims:
    """Of one person. `username`: what the provider calls them; `email`: an address that it has verified. Both may be empty."""

    issuer: str
    subject: str
    username: str = ""
    email: str = ""
    groups: frozenset[str] = frozenset()


def read(said: Mapping[str, Any], *, issuer: str, username: str, groups: str) -> Claims:
    """Of the claims of an ID token, which must have been checked. `username`, `groups`: the names of the claims that say these."""
    subject = _text(said.get("sub"), LONGEST_SUBJECT)
    if not subject:
        raise Unusable(f"The claim sub is {said.get('sub')!r:.80}, not a text of 1 to {LONGEST_SUBJECT} characters.")
    # A boolean; Amazon Cognito sends it as text. Without it anybody may have typed any address.
    verified = said.get("email_verified") in (True, "true")
    email = _text(said.get("email"), LONGEST_EMAIL) if verified else ""
    return Claims(issuer, subject, _text(said.get(username), LONGEST_NAME) or email[:LONGEST_NAME], email, _groups(said.get(groups)))


def is_allowed(claims: Claims, allow: Sequence[str]) -> bool:
    """Whether one of the rules lets them in: "*" everybody, "@example.org" whose verified address is there, else the name of a group."""
    _, at, domain = claims.email.lower().rpartition("@")
    return any(
        rule == EVERYBODY or (at and rule.lower() == f"@{domain}") or (not rule.startswith("@") and rule in claims.groups) for rule in allow
    )


def administers(claims: Claims, groups: Sequence[str]) -> bool | None:
    """Whether one of these groups, whose members administer the cluster, is theirs; None where no group says so."""
    return not claims.groups.isdisjoint(groups) if groups else None


def account_name(claims: Claims) -> str:
    """What their account is called here, of letters, digits and @ . + - _ alone; empty where the provider says no name."""
    plain = unicodedata.normalize("NFKC", claims.username)
    return _NOT_IN_A_NAME.sub("-", plain)[:LONGEST_NAME].strip("-.")


def _groups(said: Any) -> frozenset[str]:
    """Providers send a list; with one group, some send that alone."""
    found = said if isinstance(said, list) else [said]
    return frozenset(each for each in found if isinstance(each, str) and each)


def _text(said: Any, longest: int) -> str:
    """Empty for what is none, is too long or has control characters in it."""
    if not isinstance(said, str) or len(said) > longest or any(unicodedata.category(each) in ("Cc", "Cs") for each in said):
        return ""
    return said.strip()
