"""A shell of a studio under test that stays open: what `manage.py shell -c` does, without two seconds of imports for each line."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

LOOP = """
import contextlib, io, json, sys, traceback
import django
django.setup()
from django.db import connection
for line in sys.stdin:
    said, problem = io.StringIO(), ""
    try:
        with contextlib.redirect_stdout(said):
            exec(compile(json.loads(line), "<shell>", "exec"), {"__name__": "__shell__"})
    except BaseException:
        problem = traceback.format_exc()
    connection.close()
    print(json.dumps([said.getvalue(), problem]), flush=True)
"""


class Shell:
    """`code`: the folder of the release that it is of. It ends with `close`, or when its parent is gone."""

    def __init__(self, interpreter: Sequence[str], *, code: Path, environment: Mapping[str, str]) -> None:
        self.process = subprocess.Popen(
            [*interpreter, "-c", LOOP],
            cwd=code,
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def says(self, code: str) -> str:
        """What the code prints. AssertionError with its traceback where it fails."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(code).encode() + b"\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer, f"the shell has ended with status {self.process.wait(10)}"
        said, problem = json.loads(answer)
        assert not problem, f"{code}\n{problem}"
        return str(said)

    def close(self) -> None:
        self.process.kill()
        self.process.wait(10)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
