"""JSON with a line for each of its values, for people to read. Its tokens stay as they were written, so that nothing is rounded, reordered
or left out; broken or cut JSON is indented as far as it goes."""

from __future__ import annotations

import json
import re

STEP, DEEPEST = "  ", 20  # what is nested deeper is indented no further: else a short text could grow without end
# A short list without texts or lists in it, a text, a mark, or anything else up to the next of these.
_TOKEN = re.compile(r'\[[^\[\]{}"]{0,100}\]|"(?:[^"\\]|\\.)*"?|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)


def problem(text: str) -> str:
    """What is wrong with the JSON, "" where nothing is."""
    try:
        json.loads(text, parse_int=str, parse_float=str)
    except json.JSONDecodeError as error:
        return f"{error.msg}, in line {error.lineno} at character {error.colno}"
    except (ValueError, RecursionError):
        return "it is nested too deeply"
    return ""


def indented(text: str, *, limit: int) -> tuple[str, bool]:
    """At most `limit` characters, and whether that is all. Short lists of numbers stay on their line."""
    out: list[str] = []
    size = depth = 0
    for match in _TOKEN.finditer(text):
        mark = match[0]
        opens, closes = mark in ("{", "["), mark in ("}", "]")
        depth += opens - closes
        margin = "\n" + STEP * max(0, min(depth, DEEPEST))
        if closes and out and out[-1].rstrip() in ("{", "["):
            out[-1] = out[-1].rstrip() + mark  # nothing is in it
            continue
        if opens or mark == ",":
            piece = mark + margin
        elif closes:
            piece = margin + mark
        elif mark == ":":
            piece = ": "
        else:
            piece = " ".join(mark.split()) if mark.startswith("[") else mark
        size += len(piece)
        if size > limit:
            return "".join(out), False
        out.append(piece)
    return "".join(out), True
