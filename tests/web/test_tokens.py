"""The page of one's API tokens: shown once, listed by how it begins, ended at once."""

from __future__ import annotations

import re

from django.urls import reverse

from experiments.models import ApiToken
from tests.web.api import Script
from tests.web.conftest import As
from tests.web.seed import Seeded


def test_one_is_made_shown_once_used_and_ended(studio: Seeded, as_: As) -> None:
    alice, at = as_(studio.alice), reverse("tokens")
    sent = {"name": "CI", "scope": "write", "project": studio.digits.pk, "expires_in_days": "30"}
    made = alice.post(at, sent)
    assert (made.status_code, made["Cache-Control"]) == (201, "no-store")
    (secret,) = set(re.findall(r"edt_[\w-]{43}", made.content.decode()))
    row = ApiToken.objects.get()
    assert (row.scope, row.project, row.expires_at is not None) == ("write", studio.digits, True)
    assert secret not in str(vars(row))
    again = alice.get(at).content.decode()
    assert secret not in again
    assert row.hint in again
    assert "never" in again, "when it was last used"
    assert Script(secret).get(f"/projects/{studio.digits.pk}").status_code == 200
    assert ApiToken.objects.get().last_used_at is not None
    assert alice.post(reverse("end_token", args=[row.pk])).status_code == 302
    assert Script(secret).get("/me").status_code == 401


def test_what_is_wrong_is_said_beside_its_field(studio: Seeded, as_: As) -> None:
    answer = as_(studio.alice).post(reverse("tokens"), {"name": "", "scope": "write", "expires_in_days": "0", "project": studio.cifar.pk})
    said = answer.content.decode()
    assert answer.status_code == 200
    assert "This field is required." in said
    assert "Give a whole number from 1 to" in said
    assert "Select a valid choice" in said, "a project that is not hers"
    assert not ApiToken.objects.exists()


def test_all_are_ended_and_nobody_elses(studio: Seeded, as_: As) -> None:
    for who in (studio.alice, studio.alice, studio.bob):
        assert as_(who).post(reverse("tokens"), {"name": "one", "scope": "read"}).status_code == 201
    assert as_(studio.alice).post(reverse("end_tokens")).status_code == 302
    assert [token.person for token in ApiToken.objects.all()] == [studio.bob]
    assert as_(studio.alice).post(reverse("end_token", args=[ApiToken.objects.get().pk])).status_code == 404
