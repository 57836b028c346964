"""The language of filters of the table of runs: what can be written, what is refused and where, and which columns are meant."""

from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.runtable import language
from experiments.runtable.catalogue import Catalogue, Known
from experiments.runtable.conditions import condition
from experiments.runtable.directions import better
from experiments.runtable.language import Refused, parse, quoted

NOW = dt.datetime(2026, 11, 24, 12, tzinfo=dt.UTC)
KNOWN = Catalogue(
    [Known("argument", "lr"), Known("argument", "batch_size"), Known("train", "loss"), Known("test", "loss"), Known("train", "grad norm")]
)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "lr < 0.1 and accuracy > 0.9",
            "lr<.1",
            r"LR = 1e-3 AND NOT (a = b OR c != 'it\'s')",
            '"train loss" <= -2.5E+3',
        ),
        *("best(accuracy) >= 0.9", 'min("test grad norm") < 3', "state in (running, failed)", "tag not in [a, b]", "loss is not set"),
        *("loss is nan", "duration > 2h", "age<7d", "submitted >= 2026-11-24", "user ~ ali", "arg.data/root = /data/x.bin", "é = ü"),
        *("seed = 007", "version = 1.2.3", "a = -1", "not not a = 1"),
    ],
)
def test_it_can_be_written(text: str) -> None:
    assert parse(text) is not None


@pytest.mark.parametrize("text", ["", "  ", "\n"])
def test_nothing_is_no_filter(text: str) -> None:
    assert parse(text) is None


@pytest.mark.parametrize(
    ("text", "begin", "said"),
    [
        ("lr <", 4, "A value is expected here"),
        ("lr 0.1", 3, "Behind the column lr comes one of = != <"),
        ("resnet", 6, 'write name ~ "resnet"'),
        ("< 1", 0, "A column's name is expected here"),
        ("lr < 0.1 lr > 1", 9, "Write and, or, or nothing more"),
        ("(lr < 0.1", 9, "A bracket is open"),
        ("lr < 0.1)", 8, "Close no more brackets than were opened"),
        ("a = 'b", 4, "The quote that begins here is not closed"),
        ("a = $b", 4, "“$” means nothing here"),
        ("a in 1", 5, "Values in brackets are expected here"),
        ("a in (1", 7, "A , or a ) is expected here"),
        ("a in ()", 6, "A value is expected here"),
        ("a is 1", 5, "Behind is comes set"),
        ("min(3) > 1", 4, "A metric's name is expected here"),
        ("min(a > 1", 6, "A ) is expected here"),
        ("a = 1 and", 9, "A column's name is expected here"),
        ("a = and", 4, "A value is expected here"),
        ("not " * 30 + "a = 1", 84, "at most 20 deep"),
        ("(" * 30, 21, "at most 20 deep"),
        (" or ".join(["a = 1"] * 60), 450, "more than 50 comparisons"),
        (f"a in ({','.join('1' * 300)})", 407, "more than 200 values"),
        ("a = 'x\0'", 6, "leave it out"),
        ("a" * 3000, 2000, "at most 2,000 are read"),
    ],
)
def test_a_refusal_points_at_the_place(text: str, begin: int, said: str) -> None:
    with pytest.raises(Refused) as refused:
        parse(text)
    assert refused.value.begin == begin, str(refused.value)
    assert said in refused.value.said


WORDS = [*"alrandornotin()[],=<", "and", "or", "not", "in", "is", "set", "nan", "min", ">=", "!~", "0.1", "2h", "'x'", '"', "lr"]


@given(st.one_of(st.text(max_size=60), st.lists(st.sampled_from(WORDS), max_size=25).map(" ".join)))
def test_any_text_is_a_filter_or_is_refused_within_it(text: str) -> None:
    try:
        parse(text)
    except Refused as refused:
        assert 0 <= refused.begin <= refused.end <= len(text) + 1
        assert refused.said


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=30))
def test_any_name_and_any_text_can_be_quoted(text: str) -> None:
    found = parse(f"{quoted(text)} = {quoted(text)}")
    assert isinstance(found, language.Compare)
    assert (found.name.text, found.value.text) == (text, text)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("lr", "arg.lr"), ("batch-size", "arg.batch_size"), ("arg.batch-size", "arg.batch_size"), ("loss", "test.loss"),
        ("train loss", "train.loss"), ("train.loss", "train.loss"), ("grad norm", "train.grad norm"), ("arg.never", "arg.never"),
        ("test.later/x", "test.later/x"), ("State", "state"), ("tags", "tag"), ("best(loss)", "best(test.loss)"),
        ("max(train.x y)", "max(train.x y)"),
    ],
)  # fmt: skip
def test_a_column_is_found_by_the_names_that_it_has(name: str, key: str) -> None:
    found = KNOWN.keyed(name)
    assert found is not None
    assert found.key == key
    again = KNOWN.keyed(found.key)
    assert again == found, "its key names it"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("los < 1", "Is loss or "),
        ("nothing_like_it < 1", "No run here has a column nothing_like_it. All are listed"),
        ('best("grad norm") > 1', 'write min("grad norm") or max("grad norm")'),
        ("loss = low", "compare it with one"),
        ("loss ~ 1", "not by ~"),
        ("name < 1", "is a text"),
        ("state = done", "There is no such state: there are live, ended, queued"),
        ("submitted > 7d", "see also age"),
        ("submitted > 2026-13-45", "is a time"),
        ("duration > long", "is a length of time"),
        ("duration in (1, 2)", "compare it by < and >"),
        ("lr is nan", "Only a metric can be nan"),
        ("tag < 1", "Tags are compared by"),
        ("lr < low", "compare it with one"),
    ],
)
def test_a_comparison_that_makes_no_sense_says_what_would(text: str, said: str) -> None:
    with pytest.raises(Refused) as refused:
        condition(text, KNOWN, now=NOW)
    assert said in refused.value.said


@pytest.mark.parametrize(
    ("name", "direction"),
    [
        ("loss", "less"), ("val/Loss", "less"), ("eval_perplexity", "less"), ("top1_error", "less"), ("accuracy", "more"),
        ("valAUC", "more"),
        ("eval/f1", "more"), ("accuracy_loss", "less"), ("lr", None), ("grad norm", None), ("", None), ("RMSE", "less"), ("mAP", "more"),
    ],
)  # fmt: skip
def test_which_is_better_is_known_by_the_name(name: str, direction: str | None) -> None:
    assert better(name) == direction
