"""Secrets become *** in what is printed and said, however it is cut into pieces."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training_runtime import journal
from training_runtime.elastic.driver.masked_journal import MaskedWriter
from training_runtime.masking import HIDDEN, Mask, Stream

KEY = """-----BEGIN KEY-----
MIIEvQIBADANBgkqhkiG9w0
  7h"x\\q ä==
}
-----END KEY-----
"""


def streamed(mask: Mask, pieces: list[bytes]) -> bytes:
    stream = Stream(mask)
    return b"".join([*(stream.pass_on(piece) for piece in pieces), stream.end()])


def test_a_value_is_hidden_wherever_it_stands():
    mask = Mask(["hf_s3cret"])
    assert mask.text("token=hf_s3cret, again: hf_s3crethf_s3cret.") == f"token={HIDDEN}, again: {HIDDEN}{HIDDEN}."
    assert mask.text("hf_s3cre") == "hf_s3cre"


def test_each_line_of_a_value_with_lines_is_hidden_by_itself():
    shown = Mask([KEY]).text(f"loaded {KEY} and MIIEvQIBADANBgkqhkiG9w0")
    assert "BEGIN" not in shown
    assert "MII" not in shown
    assert "7h" not in shown
    assert shown.endswith(f"and {HIDDEN}")


@pytest.mark.parametrize("written", [repr, json.dumps, lambda text: json.dumps(text, ensure_ascii=False), lambda text: repr({"KEY": text})])
def test_it_is_hidden_as_libraries_write_it(written):
    shown = Mask([KEY]).text(written(KEY))
    assert "7h" not in shown
    assert "MII" not in shown


def test_it_is_hidden_in_addresses():
    mask = Mask(["p/ss wörd&1"])
    for quoted in ("p/ss%20w%C3%B6rd%261", "p%2Fss%20w%C3%B6rd%261", "p%2Fss+w%C3%B6rd%261"):
        assert mask.text(f"https://me:{quoted}@host") == f"https://me:{HIDDEN}@host"


def test_the_whole_of_two_that_overlap_is_hidden():
    assert Mask(["abcdef", "efghij"]).text("<abcdefghij>") == f"<{HIDDEN}>"
    assert Mask(["secret", "secret-longer"]).text("<secret-longer>") == f"<{HIDDEN}>"


def test_what_is_shorter_than_four_characters_is_no_secret_of_a_log():
    assert not Mask(["abc", "", "  1 ", "a\nbc\n"])
    assert Mask(["abc"]).text("abc") == "abc"


@pytest.mark.parametrize("cut", range(1, len(b"before hf_s3cret after\n")))
def test_a_value_in_two_writes_is_hidden(cut):
    data = b"before hf_s3cret after\n"
    assert streamed(Mask(["hf_s3cret"]), [data[:cut], data[cut:]]) == b"before *** after\n"


def test_only_what_may_be_the_beginning_of_a_value_waits_for_the_next_piece():
    stream = Stream(Mask(["hf_s3cret"]))
    assert stream.pass_on(b"step 1, h") == b"step 1, "
    assert stream.pass_on(b"alf\n") == b"half\n"
    assert stream.pass_on(b"a whole line with hf\n") == b"a whole line with hf\n"
    assert stream.pass_on(b"hf_s") == b""
    assert stream.end() == b"***"  # its process was killed in the middle of it


def test_output_that_is_no_text_passes_unchanged():
    data = bytes(range(256)) * 40
    assert streamed(Mask(["hf_s3cret"]), [data]) == data


@given(
    st.lists(st.text("abä\n", min_size=4, max_size=9), min_size=1, max_size=3),
    st.lists(st.one_of(st.integers(0, 2), st.text("abä\n", max_size=6)), max_size=12),
    st.integers(1, 7),
)
def test_in_pieces_of_any_size_no_value_passes(secrets, parts, size):
    mask = Mask(secrets)
    data = "".join(secrets[part % len(secrets)] if isinstance(part, int) else part for part in parts).encode()
    out = streamed(mask, [data[i : i + size] for i in range(0, len(data), size)]).decode(errors="replace")
    for line in (line.strip() for secret in secrets for line in secret.splitlines()):
        assert len(line) < 4 or line not in out
    if not mask:
        assert out.encode() == data


def test_a_journal_hides_what_the_script_said_and_stays_readable(tmp_path):
    path = tmp_path / journal.FILE_NAME
    writer = MaskedWriter(path, 7, mask=Mask(["nabc", "warning", 'q"uote\\d']))
    writer.write(journal.Warned('\nabc nabc q"uote\\d'))
    writer.write(journal.Failed("ValueError: nabc", "File nabc", "driver"))
    writer.write(journal.Noted({"token": "nabc"}, {"nabc": "x"}))
    writer.write(journal.Exactness(("nabc differs",), True, "{}"))
    writer.write(journal.Train(1, 1, {"loss": 0.5}, 8, 1, 0.1))
    writer.flush()
    writer.close()
    said = [line.event for line in journal.read(path, 0).lines]
    assert said == [
        journal.Warned("\nabc *** ***"),
        journal.Failed("ValueError: ***", "File ***", "driver"),
        journal.Noted({"token": "***"}, {"***": "x"}),
        journal.Exactness(("*** differs",), True, "{}"),
        journal.Train(1, 1, {"loss": 0.5}, 8, 1, 0.1),
    ]
