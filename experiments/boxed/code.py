"""Jobs on code that people uploaded: what it says of its arguments, the same in colours, and what has changed in it. Nothing of it is
run. In the child alone."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import TextLexer, get_lexer_for_filename
from pygments.util import ClassNotFound

from experiments.definitions import scriptargs, trainers


def scripts(_files: Sequence[int], texts: Mapping[str, str]) -> dict[str, object]:
    """What each script says of its arguments, and by whose trainer it trains, by path."""
    return {path: {**asdict(scriptargs.read(text)), "trainer": trainers.read(text)} for path, text in texts.items()}


def coloured(_files: Sequence[int], path: str, text: str) -> str:
    """HTML with classes only, by the kind that the file's name stands for; pygments escapes the text."""
    try:
        lexer = get_lexer_for_filename(path)
    except ClassNotFound:
        lexer = TextLexer()
    formatter = HtmlFormatter(classprefix="hl-", cssclass="code", linenos="inline", lineanchors="line", anchorlinenos=False)
    found: str = highlight(text, lexer, formatter)
    return found


def differences(_files: Sequence[int], was: str, now: str, most: int) -> list[tuple[str, str]]:
    """(kind, line): "add", "del", "same" or "place"; the first `most`."""
    kinds = {"+": "add", "-": "del", "@": "place"}
    diff = difflib.unified_diff(was.splitlines(), now.splitlines(), lineterm="", n=3)
    return [(kinds.get(line[:1], "same"), line) for line in list(diff)[2:]][:most]  # without the two lines that name the files
