"""A folder as the zip that is sent: all that git would keep, in the same bytes each time."""

from __future__ import annotations

import io
import os
import re
import stat
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pathspec

from edt_client.errors import ClientError

IGNORE_FILES = (".gitignore", ".edtignore")
NEVER = (
    ".git",
    ".hg",
    ".svn",
    "__pycache__",
    ".venv",
    "venv",
    "node_modules",
    ".ipynb_checkpoints",
    ".mypy_cache",
    ".pytest_cache",
    ".DS_Store",
)
MOST_FILES = 20_000
MOST_BYTES = 512 << 20
NAMED_LINKS = 5
_PYTHON = re.compile(r"python(3(\.\d+)?)?")
EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Packed:
    """`name`: the folder's; `size_bytes`: of the files before they were packed; `left_out`: links that are not followed."""

    name: str
    zip: bytes
    files: tuple[str, ...]
    size_bytes: int
    left_out: tuple[str, ...] = ()


def pack(folder: Path) -> Packed:
    """Raises ClientError for what is no folder of code."""
    folder = folder.resolve()
    if not folder.is_dir():
        raise ClientError(f"{folder} is no folder: name the one with your code, or . for this one.")
    found, links = split_links(folder, _files(folder))
    check_names([folder.name], "send it as another one")
    check_names(found, "name it in .edtignore")
    sizes = {path: (folder / path).stat().st_size for path in found}
    _check(folder, sizes)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as target:
        for path in found:
            info = zipfile.ZipInfo(path, EPOCH)
            executable = (folder / path).stat().st_mode & stat.S_IXUSR
            info.external_attr = (stat.S_IFREG | (0o755 if executable else 0o644)) << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            target.writestr(info, (folder / path).read_bytes())
    return Packed(folder.name or "code", out.getvalue(), tuple(found), sum(sizes.values()), tuple(links))


def split_links(folder: Path, paths: Iterable[str]) -> tuple[list[str], list[str]]:
    """What is sent of a folder, and links that are not: all but those to a file that is sent, too, which go as that file."""
    paths = sorted(paths)
    top = os.path.realpath(folder)
    plain = {f"{top}/{path}" for path in paths if not (folder / path).is_symlink()}
    out = [path for path in paths if (folder / path).is_symlink() and os.path.realpath(folder / path) not in plain]
    return sorted({*paths} - {*out}), out


def said_of_links(links: Sequence[str]) -> str:
    """For who sends a folder; empty where there are none."""
    if not links:
        return ""
    named = ", ".join(os.fsencode(link).decode(errors="backslashreplace") for link in links[:NAMED_LINKS])
    more = f" and {len(links) - NAMED_LINKS} more" if len(links) > NAMED_LINKS else ""
    what = "1 link is" if len(links) == 1 else f"{len(links)} links are"
    return f"{what} not sent, for they name nothing that is: {named}{more}. Put files in their places where they are needed."


def check_names(paths: Iterable[str], otherwise: str) -> None:
    """Raises ClientError for the first that is no text: nothing that is sent can say it. `otherwise`: what to do, but for another name."""
    for path in paths:
        try:
            path.encode()
        except UnicodeEncodeError:
            shown = os.fsencode(path).decode(errors="backslashreplace")
            raise ClientError(f"{shown} has a name that is no text (UTF-8): rename it, or {otherwise}.") from None


def _check(folder: Path, sizes: dict[str, int]) -> None:
    if not sizes:
        raise ClientError(f"{folder} has no files to send (what .gitignore and .edtignore name is left out).")
    if len(sizes) > MOST_FILES:
        raise ClientError(f"{folder} has {len(sizes):,} files: name what is no code in .edtignore (more than {MOST_FILES:,} are not sent).")
    if sum(sizes.values()) > MOST_BYTES:
        largest = max(sizes, key=lambda path: sizes[path])
        size = f"{sum(sizes.values()) >> 20} MiB, {largest} alone {sizes[largest] >> 20} MiB"
        raise ClientError(f"{folder} has {size}: name data in .edtignore and upload it as a data asset (edt run --data).")


def _files(folder: Path) -> Iterator[str]:
    """Paths of what is sent, with / between their parts, and of links."""
    rules: dict[str, pathspec.GitIgnoreSpec] = {}
    for at, folders, names in os.walk(folder):
        here = Path(at).relative_to(folder).as_posix()
        here = "" if here == "." else f"{here}/"
        lines = [line for path in _rules_in(at, names) for line in path.read_text("utf-8-sig", "replace").splitlines()]
        if lines:
            rules[here] = pathspec.GitIgnoreSpec.from_lines(lines)
        links = [each for each in folders if Path(at, each).is_symlink()]
        folders[:] = sorted(each for each in folders if each not in NEVER and not _ignored(rules, f"{here}{each}/"))
        for name in [*names, *links]:
            path = Path(at) / name
            if name not in NEVER and (path.is_file() or path.is_symlink()) and not _ignored(rules, here + name):
                yield here + name


def _rules_in(folder: str, names: list[str]) -> list[Path]:
    return [Path(folder, name) for name in IGNORE_FILES if name in names and not Path(folder, name).is_symlink()]


def _ignored(rules: dict[str, pathspec.GitIgnoreSpec], path: str) -> bool:
    """By the files of the folders above it; the nearest that says something wins."""
    for base in sorted((base for base in rules if path.startswith(base)), key=len, reverse=True):
        verdict = rules[base].check_file(path[len(base) :]).include
        if verdict is not None:
            return bool(verdict)
    return False


def without_python(words: tuple[str, ...]) -> tuple[str, ...]:
    """`python train.py ...` as `train.py ...`, and `python -m package.train ...` as `-m package.train ...`."""
    return words[1:] if words and _PYTHON.fullmatch(words[0]) else words


def script_of(files: tuple[str, ...]) -> str:
    """The script that is meant where none is named. Raises ClientError where that is not plain."""
    top = [path for path in files if "/" not in path and path.endswith(".py")]
    top = top or [path for path in files if "/" not in path and path.endswith(".ipynb")]
    for usual in ("main.py", "train.py"):
        if usual in top:
            return usual
    if len(top) == 1:
        return top[0]
    raise ClientError(f"Say which script to run: edt run . {top[0] if top else 'SCRIPT.py'}.")
