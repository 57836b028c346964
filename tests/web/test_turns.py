"""Whose turn it is where work on people's files waits: each way in says who asks."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.urls import reverse

from experiments.boxed import turns
from experiments.boxed.turns import NOBODY, Turns
from experiments.models import User
from tests import cast
from tests.web import api, wmla
from tests.web.conftest import As, definition_form
from tests.web.seed import Seeded

Way = Callable[[Seeded, User, As], object]


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Who had a turn, in order."""
    found, begin = list[int](), Turns.begin

    def noted(self: Turns, who: int, *, patience_s: float) -> bool:
        found.append(who)
        return begin(self, who, patience_s=patience_s)

    monkeypatch.setattr(Turns, "begin", noted)
    turns.asks.set(NOBODY)
    return found


def code(user: User) -> SimpleUploadedFile:
    """Nobody else's: what is known already is not unpacked again."""
    return SimpleUploadedFile("code.zip", cast.zipped({"main.py": f"print('{user.username}')\n"}).getvalue())


def on_a_page(studio: Seeded, user: User, as_: As) -> None:
    as_(user).post(reverse("new_definition", args=[studio.digits.pk]), definition_form(upload=code(user)))


def by_the_api(studio: Seeded, user: User, as_: As) -> None:
    api.of(user).upload(f"/projects/{studio.digits.pk}/definitions", {"name": "n", "command": "main.py", "file": code(user)})


def over_wmlas_interface(studio: Seeded, user: User, as_: As) -> None:
    wmla.of(user).call("post", f"{wmla.DL}/execs?args=--exec-start%20PyTorch%20--model-main%20main.py", {"file": code(user)})


@pytest.mark.parametrize("way", [on_a_page, by_the_api, over_wmlas_interface])
def test_work_on_a_file_is_that_of_who_sent_it(studio: Seeded, as_: As, begun: list[int], way: Way) -> None:
    for user in (studio.alice, studio.bob):
        before = len(begun)
        way(studio, user, as_)
        assert set(begun[before:]) == {user.pk}
