"""What of a run can be registered, which names are possible, and what a note may say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.files import modelnames, registrable
from experiments.selectors import registry

pytestmark = pytest.mark.django_db
FINAL = "model/train/model_epoch_final.pth"


def test_a_note_is_markdown_and_no_html() -> None:
    shown = registry.rendered("# Digits\n\n**98 %** <script>alert(1)</script> [x](javascript:alert(1)) ![p](https://x.example/p.png)")
    assert "<h3>Digits</h3>" in shown
    assert "<strong>98 %</strong>" in shown
    assert "<script" not in shown
    assert 'href="javascript' not in shown
    assert "<img" not in shown


def test_a_table_of_what_is_offered_of_a_runs_files() -> None:
    files = [
        ("checkpoint/engine.pt", 9, 5.0),
        ("model/train/model_epoch_2.pth", 1, 2.0),
        ("model/train/model_epoch_10.pth", 1, 3.0),
        (FINAL, 1, 4.0),
        ("model/train/model_epoch_final.onnx", 2, 4.0),
        ("hf/config.json", 1, 1.0),
        ("hf/model.safetensors", 6, 1.0),
        ("out.joblib", 1, 1.0),
        ("log/driver/weights.pth", 1, 1.0),
        ("notes.txt", 1, 1.0),
    ]
    assert [(each.path, each.kind, each.size_bytes) for each in registrable.candidates(files)] == [
        (FINAL, "final", 1),
        ("hf", "folder", 7),
        ("model/train/model_epoch_10.pth", "model", 1),
        ("model/train/model_epoch_2.pth", "model", 1),
        ("out.joblib", "other", 1),
        ("checkpoint/engine.pt", "checkpoint", 9),
    ]


@given(names=st.lists(st.text("ab/.", min_size=1, max_size=6).map(lambda top: f"{top}.pth"), max_size=6), asked=st.text("ab/.", max_size=6))
def test_what_is_chosen_is_of_the_run_and_has_names_of_its_own(names: list[str], asked: str) -> None:
    found = registrable.chosen(names, asked)
    assert {each.path for each in found} <= set(names)
    assert len({each.name for each in found}) == len(found)
    assert all(each.path == asked or each.path.endswith(each.name) for each in found)


ALIASES = {
    "champion": True,
    "Prod-2_b": True,
    "latest": False,
    "LATEST": False,
    "v3": False,
    "3": False,
    "": False,
    "a b": False,
    "a" * 65: False,
}


@pytest.mark.parametrize("alias", ALIASES)
def test_an_alias_is_a_word_and_no_version(alias: str) -> None:
    assert (modelnames.refused_alias(alias) == "") is ALIASES[alias]


def test_an_address_of_a_version() -> None:
    told = {"digits": ("digits", "latest"), "digits@champion": ("digits", "champion"), "my digits@3": ("my digits", "3")}
    assert {address: modelnames.parsed(address) for address in told} == told
