"""What the script of a notebook calls where the notebook has lines of IPython (`notebooks`). A run is nobody's screen: what only draws or
asks is left out, and so is what installs packages: they are there before a run starts (`notebooks.installs`)."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from training_runtime import notebook_modules, notebooks

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


def end_cell() -> None:
    """After a cell: what it has drawn is shown, as a notebook does. Where the script draws by another backend, that is its business."""
    pyplot, figures = sys.modules.get("matplotlib.pyplot"), sys.modules.get("training_runtime.figures")
    if pyplot is not None and figures is not None and pyplot.get_backend() == f"module://{figures.__name__}":
        pyplot.show()


def show(value: object) -> None:
    """What stands at the end of a cell."""
    if value is not None:
        _show(value, repr)


def display(*shown: object, **_: object) -> None:
    for each in shown:
        _show(each, str)


def _show(value: object, in_words: Callable[[object], str]) -> None:
    """Figures and pictures are kept, all else is words."""
    figures = sys.modules.get("training_runtime.figures")  # there where the run's matplotlib is
    if figures is not None and hasattr(value, "savefig"):
        figures.keep_figure(value)
    elif not isinstance(value, notebook_modules.Nothing):
        _say(in_words(value))


class Shell:
    """What get_ipython() gives: as much of a kernel's shell as scripts call that were made of notebooks."""

    config: Mapping[str, object] = {}

    def run_line_magic(self, name: str, line: str = "", *_: object) -> object:
        return _in_script(line) if name == "time" else magic(name, line)

    def run_cell_magic(self, name: str, line: str, body: str) -> object:
        """As the cell that it was; names are those of the script."""
        return _in_script(notebooks.cell_code(f"%%{name} {line}\n{body}"))

    def magic(self, said: str) -> object:
        name, _, line = said.lstrip("%").partition(" ")
        return magic(name, line)

    def system(self, command: str) -> None:
        shell(command, vars(sys.modules["__main__"]))

    def getoutput(self, command: str) -> list[str] | None:
        return shell(command, vars(sys.modules["__main__"]), listed=True)

    def __getattr__(self, name: str) -> notebook_modules.Nothing:
        if name.startswith("__"):
            raise AttributeError(name)
        return notebook_modules.Nothing()


_SHELL = Shell()


def names() -> dict[str, object]:
    """What the head of a notebook's script imports, for a script that nbconvert has made of one."""
    shown: dict[str, object] = {"display": display, "get_ipython": get_ipython}
    return shown | {"_magic": magic, "_shell": shell, "_write_file": write_file}


def get_ipython() -> Shell:
    return _SHELL


def _in_script(code: str) -> object:
    """Run it as if it stood in the script; its value, where it is an expression."""
    try:
        compiled = compile(code, "<cell>", "eval", dont_inherit=True)
    except SyntaxError:
        compiled = compile(code, "<cell>", "exec", dont_inherit=True)
    return eval(compiled, vars(sys.modules["__main__"]))  # noqa: S307 - a part of the script


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


notebook_modules.provide({"display": display, "get_ipython": get_ipython})
