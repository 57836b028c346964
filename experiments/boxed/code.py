"""Jobs on code that people uploaded: what it says of its arguments, the same in colours, and what has changed in it. Nothing of it is
run. In the child alone."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import TextLexer, get_lexer_for_filename
from pygments.util import ClassNotFound

from experiments.definitions import scriptargs, trainers
from training_runtime import notebooks

ONLY_AROUND_CODE = "Its code is the same: texts, or what its cells have printed and drawn, are other ones."


def scripts(_files: Sequence[int], texts: Mapping[str, str]) -> dict[str, object]:
    """What each script says of its arguments, by whose trainer it trains, and why it cannot be read, by path."""
    return {path: _facts(path, text) for path, text in texts.items()}


def _facts(path: str, text: str) -> dict[str, object]:
    script = _script_of(path, text)
    facts = asdict(scriptargs.read(script)) | {"trainer": trainers.read(script), "syntax_error": scriptargs.syntax_error(script)}
    return facts | {"runnable": True} if notebooks.is_notebook(path) else facts


def _script_of(path: str, text: str) -> str:
    """What is run of the file: of a notebook its cells, as a script; one that cannot be read stays as it is."""
    if notebooks.is_notebook(path):
        with contextlib.suppress(notebooks.NotANotebook):
            return notebooks.script_of(text, name=path)
    return text


def coloured(_files: Sequence[int], path: str, text: str) -> str:
    """HTML with classes only, by the kind that the file's name stands for, of a notebook the script; pygments escapes the text."""
    text = _script_of(path, text)
    try:
        lexer = get_lexer_for_filename(notebooks.script_name(path))
    except ClassNotFound:
        lexer = TextLexer()
    formatter = HtmlFormatter(classprefix="hl-", cssclass="code", linenos="inline", lineanchors="line", anchorlinenos=False)
    found: str = highlight(text, lexer, formatter)
    return found


def differences(_files: Sequence[int], path: str, was: str, now: str, most: int) -> list[tuple[str, str]]:
    """(kind, line): "add", "del", "same" or "place"; the first `most`. Of a notebook those of the script."""
    was, now = _script_of(path, was), _script_of(path, now)
    if was and was == now:
        return [("place", ONLY_AROUND_CODE)]
    kinds = {"+": "add", "-": "del", "@": "place"}
    diff = difflib.unified_diff(was.splitlines(), now.splitlines(), lineterm="", n=3)
    return [(kinds.get(line[:1], "same"), line) for line in list(diff)[2:]][:most]  # without the two lines that name the files
