"""What a child can be asked to do, by name. Each job gets the descriptors that were handed over, and what else was said, and gives what
JSON has. In the child alone, and in the process that it is forked from, which has all of this in memory beforehand."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence

from experiments.boxed import archives, code, packages, previews, statedict
from experiments.logs import searching


def _preview(files: Sequence[int], size_bytes: int, name: str, as_text: bool) -> dict[str, object]:
    with open(files[0], "rb") as file:
        file.seek(0)
        return previews.plain(previews.preview(file, size_bytes, name=name, as_text=as_text))


def _nothing(_files: Sequence[int]) -> None:
    """For who measures what a call costs."""


JOBS: dict[str, Callable[..., object]] = {
    "nothing": _nothing,
    "scripts": code.scripts,
    "coloured": code.coloured,
    "differences": code.differences,
    "search": searching.job,
    "preview": _preview,
    "tar_as_zip": archives.tar_as_zip,
    "unpack": archives.unpack,
    "with_line": archives.with_line,
    "requirements": packages.requirements,
    "safetensors": statedict.safetensors,
}


def do(job: str, files: Sequence[int], said: Mapping[str, object]) -> object:
    return JOBS[job](files, **said)


def load() -> None:
    """Have the usual things done once, so that what they bring into memory is there for every child."""
    code.scripts((), {"main.py": "import argparse\nargparse.ArgumentParser().add_argument('--lr', type=float, default=0.1, help='x')\n"})
    for path in ("main.py", "a.json", "a.yaml", "a.toml", "a.md", "a.sh", "a.txt", "a.csv", "a.cfg", "a.cpp"):
        code.coloured((), path, "a = 1\n")
    code.differences((), "a.py", "a\n", "b\n", 10)
    ast.unparse(ast.parse("a = 1"))
