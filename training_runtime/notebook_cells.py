"""What the script of a notebook calls where the notebook has lines of IPython (`notebooks`). A run is nobody's screen: what only draws or
asks is left out, and so is what installs packages: they are there before a run starts (`notebooks.installs`)."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_INSTALLS = re.compile(r"\s*(?:sudo\s+)?(?:python3?\s+-m\s+|uv\s+)?(?:pip3?|conda|mamba|apt|apt-get)\s")
_NAMED = re.compile(r"\$?\{(\w+)\}|\$(\w+)")
_ONLY_FOR_SCREENS = {"matplotlib", "pylab", "config", "tensorboard", "html", "javascript", "js", "latex", "markdown", "svg"}
_ONLY_FOR_SCREENS |= {"load_ext", "reload_ext", "unload_ext", "autoreload", "aimport", "timeit", "who", "whos", "history", "xmode"}


def shell(command: str, names: Mapping[str, Any] | None = None, *, listed: bool = False) -> list[str] | None:
    """Run it as a notebook does, with values of `names` in the place of {name}, ${name} and $name; what it prints is the run's, or comes
    back as lines where it is `listed`. That it fails is no error, as there."""
    names = names or {}
    if _INSTALLS.match(command):
        _say(f"Not run: {command.strip()}. A run's packages are there before it starts.")
        return [] if listed else None
    command = _NAMED.sub(lambda found: str(names[found[1] or found[2]]) if (found[1] or found[2]) in names else found[0], command)
    sys.stdout.flush()
    words = [shutil.which("bash") or "/bin/sh", "-c", command]
    done = subprocess.run(words, check=False, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE if listed else None)
    return done.stdout.decode(errors="replace").splitlines() if listed else None


def magic(name: str, said: str) -> list[str] | None:
    """A line that begins with %, or the first one of a cell of another language."""
    if name == "cd":
        os.chdir(Path(said.strip("'\"") or "~").expanduser())
    elif name in ("env", "set_env") and "=" in said:
        variable, _, value = said.partition("=")
        os.environ[variable.strip()] = value.strip()
    elif name in ("pip", "conda", "mamba"):
        return shell(f"{name} {said}")
    elif name not in _ONLY_FOR_SCREENS:
        _say(f"Not run: %{name} {said}".rstrip() + ". A run understands no such line.")
    return None


def write_file(said: str, text: str) -> None:
    """`said`: the path, with -a before it where the text is added."""
    words = shlex.split(said)
    path = Path(words[-1]).expanduser()
    with path.open("a" if "-a" in words or "--append" in words else "w") as file:
        file.write(text)


def display(*shown: object, **_: object) -> None:
    for each in shown:
        _say(str(each))


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
