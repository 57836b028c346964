"""Works on code that people uploaded, in a process of its own: `python -I codework.py` with a JSON job on its standard input.

Parsing, colouring and comparing can take for ever, or all memory, over text that was written for that; so they are no part of the web
server. The process gets so much processor time and memory and no more, and what is too much for it is not shown. Nothing of the code is
run. Knows no Django. Run as a script; `asked` is for who starts it.
"""

from __future__ import annotations

import difflib
import json
import resource
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

CPU_S = 3
WALL_S = 20.0
MEMORY_BYTES = 768 << 20
_AT_ONCE = threading.BoundedSemaphore(2)
_PATIENCE_S = 5.0


class Busy(Exception):
    """Others are at it."""


def asked(do: str, **said: Any) -> Any:
    """What the process answers to one of `JOBS`; None where it was too much for it. Raises Busy."""
    if not _AT_ONCE.acquire(timeout=_PATIENCE_S):
        raise Busy
    try:
        command = [sys.executable, "-I", str(Path(__file__))]
        job = json.dumps({"do": do, **said}).encode()
        done = subprocess.run(command, input=job, capture_output=True, timeout=WALL_S, check=True, env={}, cwd="/")
        return json.loads(done.stdout)
    except (subprocess.TimeoutExpired, subprocess.CalledProcessError):
        return None
    finally:
        _AT_ONCE.release()


def scripts(texts: Mapping[str, str]) -> dict[str, Any]:
    """What each script says of its arguments, and by whose trainer it trains, by path."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from experiments import scriptargs, trainers

    return {path: {**asdict(scriptargs.read(text)), "trainer": trainers.read(text)} for path, text in texts.items()}


def coloured(path: str, text: str) -> str:
    """HTML with classes only, by the kind that the file's name stands for; pygments escapes the text."""
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import TextLexer, get_lexer_for_filename
    from pygments.util import ClassNotFound

    try:
        lexer = get_lexer_for_filename(path)
    except ClassNotFound:
        lexer = TextLexer()
    formatter = HtmlFormatter(classprefix="hl-", cssclass="code", linenos="inline", lineanchors="line", anchorlinenos=False)
    found: str = highlight(text, lexer, formatter)
    return found


def differences(was: str, now: str, most: int) -> list[tuple[str, str]]:
    """(kind, line): "add", "del", "same" or "place"; the first `most`."""
    kinds = {"+": "add", "-": "del", "@": "place"}
    diff = difflib.unified_diff(was.splitlines(), now.splitlines(), lineterm="", n=3)
    return [(kinds.get(line[:1], "same"), line) for line in list(diff)[2:]][:most]  # without the two lines that name the files


JOBS: dict[str, Callable[..., Any]] = {"scripts": scripts, "coloured": coloured, "differences": differences}


def main() -> None:
    said = json.load(sys.stdin)
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    sys.stdout.write(json.dumps(JOBS[said.pop("do")](**said)))


if __name__ == "__main__":
    main()
