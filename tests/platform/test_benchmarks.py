"""Every benchmark of docs/benchmarks.md begins: it is found, imports what it needs, and says how it is asked."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = (page.read_text() for page in (REPOSITORY / "docs").rglob("*.md"))
NAMED = {name for page in PAGES for name in re.findall(r"python -m benchmarks\.([a-z]\w*)", page)}
# Each in a child of its own, as a program; torch comes but once, and is not taken down.
ASK = """
import os, runpy, sys, traceback
import torch, torch._dynamo
for name in sys.argv[1:]:
    sys.stdout.flush()
    if not os.fork():
        status = 1
        try:
            sys.argv[:] = [name, "--help"]
            runpy.run_module(f"benchmarks.{name}", run_name="__main__", alter_sys=True)
        except SystemExit as end:
            status = int(end.code or 0)
        except Exception:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(status)
    print(f"{name}: {os.waitstatus_to_exitcode(os.wait()[1])}")
"""


def test_each_says_how_it_is_asked_and_does_nothing_else() -> None:
    names = {path.stem for path in (REPOSITORY / "benchmarks").glob("*.py") if "__main__" in path.read_text()}
    assert names >= NAMED, "the pages name one that is not there"
    asked = subprocess.run(
        [sys.executable, "-c", ASK, *sorted(names)], cwd=REPOSITORY, capture_output=True, text=True, timeout=300, check=False
    )
    ended = dict(re.findall(r"^(\w+): (-?\d+)$", asked.stdout, flags=re.M))
    assert ended == dict.fromkeys(names, "0"), asked.stderr
    assert asked.stdout.count("usage: ") == len(names)
