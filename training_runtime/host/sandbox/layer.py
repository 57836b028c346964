"""A run's own packages in a process that was forked from the warm one: in front of those of the base, as in a fresh interpreter of the
environment (whose `zz_edt_base.pth` puts the base behind it).

The environment is a virtual environment; torch and numpy are in memory already, and never in it. Only in the box, with the run's own
rights: what lies in the environment is strangers' code, and its .pth files may run some.
"""

from __future__ import annotations

import site
import sys
from pathlib import Path


def enter(environment: Path) -> None:
    """Interpreters that the process starts from now on are those of the environment."""
    before = list(sys.path)
    known = {path for path in before if path}
    folder = site_packages(environment)
    site.addsitedir(str(folder), known_paths=set(known))
    added = [path for path in sys.path if path not in before]
    first = next((n for n, path in enumerate(before) if path.endswith(("site-packages", "dist-packages"))), len(before))
    sys.path[:] = [*before[:first], *added, *before[first:]]
    _forget_what_is_shadowed(folder, [Path(path) for path in before[first:]])
    sys.executable = str(environment / "bin" / "python")
    sys.prefix = sys.exec_prefix = str(environment)
    if spawn := sys.modules.get("multiprocessing.spawn"):  # else it asks sys when it is imported
        spawn.set_executable(sys.executable)


def site_packages(environment: Path) -> Path:
    return environment / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"


def _forget_what_is_shadowed(folder: Path, behind: list[Path]) -> None:
    """Modules of the base that were imported before, and of which the environment has another version: who imports them now gets that.
    torch keeps those that it has."""
    tops = {name.partition(".")[0] for name in sys.modules}
    shadowed = {top for top in tops if (folder / top).is_dir() or (folder / f"{top}.py").is_file()}
    for name in [name for name in sys.modules if name.partition(".")[0] in shadowed]:
        file = getattr(sys.modules[name], "__file__", None)
        if file and any(Path(file).is_relative_to(path) for path in behind):
            del sys.modules[name]
