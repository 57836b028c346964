"""From which pages a socket may be opened."""

from __future__ import annotations

from typing import Any

import pytest

from webapp.origin import is_own_origin


@pytest.mark.parametrize(
    ("origin", "host", "secure", "own"),
    [
        ("http://studio.example.org:8000", "studio.example.org:8000", False, True),
        ("https://studio.example.org", "studio.example.org", True, True),
        ("http://studio.example.org", "studio.example.org", True, False),
        ("http://studio.example.org:6006", "studio.example.org:8000", False, False),
        ("https://studio.example.org.evil.example", "studio.example.org", True, False),
        ("https://evil.example", "evil.example", True, False),  # the name was made to lead here
        ("null", "studio.example.org", True, False),
        ("", "studio.example.org", True, False),
        ("https://studio.example.org", "studio.example.org", False, True),  # behind a proxy with TLS: named in EDT_TRUSTED_ORIGINS
        ("https://eu.team.example.org", "studio.example.org", False, True),
        ("http://eu.team.example.org", "studio.example.org", False, False),
    ],
)
def test_the_origin_is_the_address_of_the_studio_or_one_that_is_trusted(
    origin: str, host: str, secure: bool, own: bool, settings: Any
) -> None:
    settings.ALLOWED_HOSTS = ["studio.example.org"]
    trusted = [] if secure else ["https://studio.example.org", "https://*.team.example.org"]
    settings.CSRF_TRUSTED_ORIGINS = trusted
    assert is_own_origin(origin, host=host, secure=secure) is own
