"""Hides the values of secrets in what a run prints and says: each becomes `***`. Standard library only, no I/O.

What is looked for are the lines of a value, without the white space around them, that have LEAST_SECRET characters or more, as they are and
as libraries write them: with the escapes of Python or JSON, or of an address. What a script makes of a value otherwise (base64, a part of
it) is not found: a value is hidden from who looks, not from who may run code.
"""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Iterable, Iterator

from training_runtime.variables import LEAST_SECRET

HIDDEN = "***"
_HIDDEN = HIDDEN.encode()


class Mask:
    """Of the values `secrets`; false where there is nothing to hide."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._forms = tuple(sorted({form for each in secrets for form in _forms(each)}))
        self._longest = max(map(len, self._forms), default=0)

    def __bool__(self) -> bool:
        return bool(self._forms)

    def text(self, text: str) -> str:
        if not self._forms:
            return text
        raw = text.encode(errors="surrogatepass")
        hidden, _ = self.hide(raw)
        return text if hidden is raw else hidden.decode(errors="replace")

    def hide(self, data: bytes) -> tuple[bytes, int]:
        """The same without them, and how many bytes stand after the last one."""
        spans = sorted(span for form in self._forms for span in _places(form, data))
        if not spans:
            return data, len(data)
        parts, end = list[bytes](), 0
        for begin, until in spans:
            if begin >= end:  # of two that overlap the whole is one
                parts += (data[end:begin], _HIDDEN)
            end = max(end, until)
        return b"".join((*parts, data[end:])), len(data) - end

    def unfinished(self, data: bytes) -> int:
        """How many bytes at the end may be the beginning of one, whose rest has not come yet. None of them contains the end of a line."""
        begin = max(data.rfind(b"\n") + 1, len(data) - self._longest + 1, 0)
        first = len(data)
        for form in self._forms:
            place = data.find(form[:1], begin, first)
            while place >= 0:
                if form.startswith(data[place:]):
                    first = place
                    break
                place = data.find(form[:1], place + 1, first)
        return len(data) - first


class Stream:
    """What one process writes, piece by piece: a value that comes in two pieces is hidden too."""

    def __init__(self, mask: Mask) -> None:
        self._mask, self._held = mask, b""

    def pass_on(self, data: bytes) -> bytes:
        """What may be written now. The beginning of a value is kept back until the next piece, however late that comes: a full buffer may
        have cut the value in two."""
        data, after = self._mask.hide(self._held + data)
        kept = self._mask.unfinished(data[len(data) - after :])
        self._held = data[len(data) - kept :]
        return data[: len(data) - kept]

    def end(self) -> bytes:
        """What was kept back. Of a value that was cut short as much as would be hidden by itself is hidden."""
        held, self._held = self._held, b""
        return held if len(held) < LEAST_SECRET else _HIDDEN


def _forms(secret: str) -> Iterator[bytes]:
    for line in secret.splitlines():
        plain = line.strip()
        if len(plain) < LEAST_SECRET:
            continue
        written = (plain, repr(plain)[1:-1], json.dumps(plain)[1:-1], json.dumps(plain, ensure_ascii=False)[1:-1])
        quoted = (urllib.parse.quote(plain), urllib.parse.quote(plain, safe=""), urllib.parse.quote_plus(plain))
        yield from (form.encode(errors="surrogatepass") for form in (*written, *quoted))


def _places(form: bytes, data: bytes) -> Iterator[tuple[int, int]]:
    place = data.find(form)
    while place >= 0:
        yield place, place + len(form)
        place = data.find(form, place + 1)
