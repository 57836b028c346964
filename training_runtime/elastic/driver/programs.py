"""A program of a package as the script of a run: `yolo`, `nnUNetv2_train`, `accelerate`. It is run as the script that its package has
installed, in this process."""

from __future__ import annotations

import shutil
from pathlib import Path

from training_runtime import notebooks

MOST_BYTES = 1 << 16  # of what an installer writes for a program
LONG_PATH = (b"'''exec' ", b'"exec" ')


def is_program(name: str) -> bool:
    """Whether this is no script of the code, by its name."""
    return not notebooks.is_script(name)


def path_of(name: str) -> Path | None:
    """The script that is installed for it; None where there is none, or something else than Python has this name."""
    found = shutil.which(name)
    if found is None:
        return None
    try:
        with open(found, "rb") as file:
            text = file.read(MOST_BYTES + 1)
    except OSError:
        return None
    return Path(found) if _is_pythons(text) and len(text) <= MOST_BYTES else None


def _is_pythons(text: bytes) -> bool:
    """By its first line; or by the second, behind one for a shell, where the path to the interpreter is long."""
    first, second, *_ = *text[:4096].splitlines()[:2], b"", b""
    return first.startswith(b"#!") and b"python" in (second if second.startswith(LONG_PATH) else first)


def missing(name: str) -> str:
    return (
        f"{name} is no program of the run's packages: name the package that it comes with in requirements.txt, or begin the command with a "
        "script of the code."
    )
