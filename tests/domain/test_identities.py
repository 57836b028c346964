"""What a provider's claims say of somebody, whom the rules let in, and what an account is called: tables."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.accounts.identities import Claims, Unusable, account_name, administers, is_allowed, read
from experiments.models import User

ISSUER = "https://id.example.org"


def claims(**said: Any) -> Claims:
    return read({"sub": "1", **said}, issuer=ISSUER, username="preferred_username", groups="groups")


@pytest.mark.parametrize(
    ("said", "username", "email"),
    [
        ({"preferred_username": "erin", "email": "e@x.org", "email_verified": True}, "erin", "e@x.org"),
        ({"preferred_username": " erin "}, "erin", ""),
        ({"email": "e@x.org", "email_verified": True}, "e@x.org", "e@x.org"),
        ({"email": "e@x.org", "email_verified": "true"}, "e@x.org", "e@x.org"),
        ({"email": "e@x.org"}, "", ""),
        ({"email": "e@x.org", "email_verified": False}, "", ""),
        ({"email": "e@x.org", "email_verified": 1.5}, "", ""),
        ({"preferred_username": ["erin"]}, "", ""),
        ({"preferred_username": "er\0in"}, "", ""),
        ({"preferred_username": "e" * 151}, "", ""),
        ({}, "", ""),
    ],
)
def test_a_name_is_what_the_provider_says_else_a_verified_address(said: dict[str, Any], username: str, email: str) -> None:
    found = claims(**said)
    assert (found.username, found.email) == (username, email)


@pytest.mark.parametrize(
    ("groups", "said", "expected"),
    [
        ([], {"groups": ["ops"]}, None),
        (["ops"], {"groups": ["ops", "ml"]}, True),
        (["ops", "root"], {"groups": "root"}, True),
        (["ops"], {"groups": ["OPS", "op"]}, False),
        (["ops"], {}, False),
        (["*"], {"groups": ["ml"]}, False),
    ],
)
def test_groups_say_who_administers_where_they_are_asked(groups: list[str], said: dict[str, Any], expected: bool | None) -> None:
    assert administers(claims(**said), groups) is expected


@pytest.mark.parametrize("sub", [None, "", " ", 4711, True, ["1"], {"a": 1}, "a\nb", "1" * 256])
def test_nobody_is_somebody_without_a_subject(sub: Any) -> None:
    with pytest.raises(Unusable, match="sub"):
        claims(sub=sub)


@pytest.mark.parametrize(
    ("allow", "said", "expected"),
    [
        ([], {"groups": ["ml"]}, False),
        (["*"], {}, True),
        (["ml"], {"groups": ["ml", "hr"]}, True),
        (["ml"], {"groups": "ml"}, True),
        (["ml"], {"groups": ["mlx", "ML", "m", 5, None]}, False),
        (["ml"], {"groups": {"ml": True}}, False),
        (["ml"], {}, False),
        (["@x.org"], {"email": "e@X.org", "email_verified": True}, True),
        (["@X.org"], {"email": "e@x.org", "email_verified": True}, True),
        (["@x.org"], {"email": "e@x.org"}, False),
        (["@x.org"], {"email": "e@evil-x.org", "email_verified": True}, False),
        (["@x.org"], {"email": "e@sub.x.org", "email_verified": True}, False),
        (["@x.org"], {"email": '"a@x.org"@evil.org', "email_verified": True}, False),
        (["@x.org"], {"groups": ["@x.org"]}, False),
        (["@"], {}, False),
        (["@"], {"email": "x.org", "email_verified": True}, False),
    ],
)
def test_who_is_let_in(allow: list[str], said: dict[str, Any], expected: bool) -> None:
    assert bool(is_allowed(claims(**said), allow)) is expected


@pytest.mark.parametrize(
    ("username", "name"),
    [
        ("erin", "erin"),
        ("Erin Moss", "Erin-Moss"),
        ("e@x.org", "e@x.org"),
        ("corp\\erin", "corp-erin"),
        ("ｅｒｉｎ", "erin"),
        ("...", ""),
        ("%", ""),
    ],
)
def test_an_account_is_called_as_its_person(username: str, name: str) -> None:
    assert account_name(Claims(ISSUER, "1", username)) == name


@given(st.dictionaries(st.sampled_from(["preferred_username", "email", "email_verified", "groups"]), st.text() | st.booleans() | st.none()))
def test_whatever_is_said_the_name_is_one_that_an_account_can_have(said: dict[str, Any]) -> None:
    name = account_name(claims(**said))
    if name:
        User.username_validator(name)
        assert len(name) <= 150
