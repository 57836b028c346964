"""Everything that is not the run's own: read, listed, changed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

Try = tuple[str, str, Callable[[], object]]
OF_FILES = ("read", "write", "cut", "link", "mode", "times", "stat")
OF_FOLDERS = ("list", "make", "stat")


def read(path: str) -> bytes:
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        return os.read(handle, 64)
    finally:
        os.close(handle)


def write(path: str) -> None:
    """Opened for it; nothing is written."""
    os.close(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK))


def cut(path: str) -> None:
    """To the size that it has."""
    os.truncate(path, os.stat(path).st_size)


def link(path: str) -> None:
    """Under a name in the results, where the studio would read it for whoever asks."""
    to = Path(os.environ["RESULT_DIR"], "model", "stolen")
    to.unlink(missing_ok=True)
    os.link(path, to, follow_symlinks=False)


def mode(path: str) -> None:
    os.chmod(path, os.stat(path).st_mode & 0o7777)


def times(path: str) -> None:
    found = os.stat(path)
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))


def make(folder: str) -> None:
    path = Path(folder, ".edt-intruder")
    path.touch(exist_ok=False)
    path.unlink()


DO: dict[str, Callable[[str], object]] = {
    **{"read": read, "write": write, "cut": cut, "link": link, "mode": mode, "times": times},
    **{"stat": lambda path: os.stat(path).st_size, "list": os.listdir, "make": make},
}


def tries(targets: dict[str, Any]) -> Iterator[Try]:
    own = Path(os.environ["RESULT_DIR"])
    os.makedirs(own / "model", exist_ok=True)
    yield "own", "results", (own / "file").touch  # so that a script that can do nothing at all is no proof
    yield "own", "code", lambda: len(Path(__file__).read_bytes())
    yield "own", "data", lambda: os.listdir(os.environ["DATA_DIR"])
    for path in targets["files"]:
        for kind in OF_FILES:
            yield kind, path, partial(DO[kind], path)
    for path in targets["folders"]:
        for kind in OF_FOLDERS:
            yield kind, path, partial(DO[kind], path)
    for path in targets["read-only"]:
        yield "write", path, partial(write, path)
    for path in targets["read-only folders"]:
        yield "make", path, partial(make, path)
    for path in targets["machine"]:
        yield "read", path, partial(read, path)
    for path in (f"{targets['run']}/../{name}" for name in ("", "..", "../secrets", "../../../../etc/shadow")):
        yield "list", path, partial(os.listdir, path)
