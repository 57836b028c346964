"""Uploaded model code: checked before it is kept, stored by content hash, unpacked once, read-only. What is kept is a zip: a tar or a
single Python file becomes one first.

The checks are in `zipcheck` and `tarcheck`, and boxed children make them (`experiments.boxed`); here is the way from an upload to
`EDT_HOME/bundles/SHA.zip`, `EDT_HOME/code/SHA/` and a Bundle row, and from a command to its script. Nothing here knows projects or people.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, BinaryIO

from django.conf import settings

from experiments.boxed import folders
from experiments.definitions import launchers, programs
from experiments.files import stores, tarcheck, zipcheck
from experiments.files.store import copies
from experiments.files.zipcheck import BundleRefused, Limits, Shape
from experiments.models import Bundle, DefinitionVersion, Tombstone
from experiments.models.definitions import BY_CODE, torchrun
from training_runtime import notebooks

__all__ = [
    "BundleRefused",
    "check_type",
    "code_dir",
    "entry",
    "entry_among",
    "files_stay",
    "launcher",
    "module",
    "needs_script",
    "parse_command",
    "program",
    "store_bundle",
    "unpacked",
]

CHUNK_BYTES = 1 << 20
UNPACKING = ".unpacking-"
NAMED_SCRIPTS = 8  # so many are listed in a message
_PYTHON = re.compile(r"python(3(\.\d+)?)?$")
_SHELL = {"&&", "||", "|", ";", "&", ">", ">>", "<", "2>", "2>&1"}


class OnItsWay(BundleRefused, copies.NotHere):
    """The code is missing here and comes back from the object store: a run waits for it, a page says so."""


def store_bundle(file: BinaryIO, *, file_name: str, needs_script: bool = True) -> Bundle:
    """Check the upload (a zip, a tar, a gzipped tar or a Python file), keep it as `EDT_HOME/bundles/SHA.zip` and unpack it to
    `EDT_HOME/code/SHA/`. The same content is one bundle. `needs_script`: no program of a package is to be run on it.

    `file` is read from its start (an open binary file or Django's UploadedFile). Raises BundleRefused; then nothing is left behind.
    """
    shown = "".join(c if c.isprintable() else "?" for c in file_name)[:120] or "The upload"
    with contextlib.ExitStack() as cleanup:
        draft, sha256, size_bytes = _draft(file, shown, cleanup)
        limits = _limits()
        if (kind := tarcheck.kind_of(draft, name=shown)) != "zip":
            draft, sha256, size_bytes = _repacked(draft, kind, shown, limits, cleanup)
        known = Bundle.objects.filter(sha256=sha256).first()
        if known is not None and code_dir(known).is_dir() and zip_path(sha256).is_file():
            _check_scripts(known.scripts, needs_script=needs_script)
            return known
        folder, found = _unpack(draft, shown, limits, cleanup)
        _check_scripts(found.scripts, needs_script=needs_script)
        with files_stay():
            _move_into_place(folder, sha256)
            draft.replace(zip_path(sha256))
            return _row(sha256, size_bytes, found)


def _check_scripts(scripts: Sequence[str], *, needs_script: bool) -> None:
    if needs_script and not scripts:
        raise BundleRefused("The zip holds no Python file and no notebook: it must contain the script that the execution command names.")


@contextlib.contextmanager
def files_stay() -> Iterator[None]:
    """Held while files of bundles come or go with their rows: one that is uploaded again just when it was deleted keeps its files."""
    with open(settings.EDT_HOME / "bundles" / ".lock", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def code_dir(bundle: Bundle) -> Path:
    """The folder that the bundle's scripts are relative to."""
    folder: Path = settings.EDT_HOME / "code" / stores.named(bundle.sha256)
    return stores.inside(folder, bundle.root) if bundle.root else folder


def unpacked(bundle: Bundle) -> Path:
    """`code_dir`, unpacked anew from the kept zip where it is missing, as after a restore. Two at once do no harm.

    Raises BundleRefused where that cannot be done, with what an administrator can do about it, and OnItsWay while the zip comes back from
    the object store.
    """
    folder = code_dir(bundle)
    if folder.is_dir():
        return folder
    if not zip_path(bundle.sha256).is_file():
        try:
            copies.missing(Tombstone.Kind.BUNDLE, bundle.sha256)
        except copies.NotHere as error:
            raise OnItsWay(str(error)) from None
    limits = _limits()
    name = f"bundles/{bundle.sha256}.zip"
    try:
        with contextlib.ExitStack() as cleanup:
            _move_into_place(_unpack(zip_path(bundle.sha256), name, limits, cleanup)[0], stores.named(bundle.sha256))
    except OSError as error:
        raise BundleRefused(f"The code of this run is not there and cannot be unpacked from {name} ({error.strerror}).") from None
    return folder


def parse_command(command: str) -> tuple[str, ...]:
    """A command as (script, arguments...), without python or PyTorch's launcher before it, or as (program of a package, arguments...).
    Never a shell.

    Raises BundleRefused for bad quoting, an interpreter option, no script, or a script that leaves the code folder.
    """
    launched, words = _divided(command)
    is_program = _program(launched, words) != ""
    words = _interpreted(launched, words)
    if words[:1] == ("-m",):
        words = _of_module(words[1:])
    if not words:
        raise BundleRefused("The command names no script: write it as main.py --epochs 5.")
    if shell := next((word for word in words if word in _SHELL), None):
        raise BundleRefused(f"The command is not run by a shell, so {shell} does not work: name one script and its arguments.")
    script = words[0]
    if is_program:
        return words
    if script.startswith("-"):
        raise BundleRefused(f"Options of Python itself such as {script} are not possible: begin with the script, as in main.py --epochs 5.")
    if not notebooks.is_script(script):
        raise BundleRefused(f"{script} is not a Python file or a notebook: begin with the script, as in main.py --epochs 5.")
    parts = [part for part in script.split("/") if part != "."]
    if script.startswith("/") or ".." in parts or "" in parts:
        raise BundleRefused(f"{script} is not inside the zip: name the script by its path in the zip.")
    return ("/".join(parts), *words[1:])


def _interpreted(launched: launchers.Launcher | None, words: tuple[str, ...]) -> tuple[str, ...]:
    """Without Python itself before them."""
    if launched is not None or not words or not _PYTHON.match(words[0].rsplit("/", 1)[-1]):
        return words
    return words[2:] if words[1:2] == ("-u",) else words[1:]  # output is unbuffered anyway


def _of_module(words: tuple[str, ...]) -> tuple[str, ...]:
    """`python -m package.train`: the file of the module, and what follows."""
    if not words:
        return ()
    if words[0] in programs.NOT_OF_PACKAGES:
        raise BundleRefused(f"python -m {words[0]} trains nothing: packages are named in requirements.txt, and other work is a script's.")
    if not all(part.isidentifier() for part in words[0].split(".")):
        raise BundleRefused(f"{words[0]} is no name of a module: write it as python -m package.train, or name the script by its path.")
    return (f"{words[0].replace('.', '/')}.py", *words[1:])


def module(command: str) -> str:
    """The module that the command begins with, as in `python -m package.train`; empty where it names a script or a program. Raises
    BundleRefused as `parse_command` does."""
    words = _interpreted(*_divided(command))
    return words[1] if words[:1] == ("-m",) and words[1:] else ""


def needs_script(command: str) -> bool:
    """Whether the command cannot be run with code that has no Python file. Raises BundleRefused as `parse_command` does."""
    return not (command and (program(command) or module(command)))


def program(command: str) -> str:
    """The program of a package that the command begins with; empty where it names a script. Raises BundleRefused as `parse_command`
    does."""
    return _program(*_divided(command))


def _program(launched: launchers.Launcher | None, words: Sequence[str]) -> str:
    is_one = launched is None and words and not _PYTHON.match(words[0]) and programs.is_program(words[0])
    return words[0] if is_one else ""


def launcher(command: str) -> launchers.Launcher | None:
    """PyTorch's, if the command begins with it. Raises BundleRefused as `parse_command` does."""
    return _divided(command)[0]


def check_type(command: str, distributed: str, *, begins: str = "") -> None:
    """Raises BundleRefused for a command that begins with PyTorch's launcher, a program, or a module of a package, where the type of
    training is not one for it. `begins`: the first of its `entry`, where there is code."""
    is_open = distributed == BY_CODE
    name = program(command) or ("" if torchrun(distributed) or notebooks.is_script(begins) else begins)
    if name and not is_open and distributed != DefinitionVersion.Distributed.SINGLE:
        raise BundleRefused(
            f'{name} is no Python file or notebook of the code. If it is a program or a module of a package choose "Single process" as the '
            "distributed training type; else begin with the script, as in main.py --epochs 5."
        )
    found = launcher(command)
    if found is not None and not (is_open or torchrun(distributed)):
        raise BundleRefused(
            f'The command begins with {found.name}: choose "torchrun elastic" or "torchrun" as the distributed training type, or begin '
            "with the script."
        )


def _divided(command: str) -> tuple[launchers.Launcher | None, tuple[str, ...]]:
    if "\0" in command:
        raise BundleRefused("The command has a NUL character in it: type it anew.")
    try:
        return launchers.divided(shlex.split(command))
    except launchers.WrongLauncher as wrong:
        raise BundleRefused(str(wrong)) from None
    except ValueError:
        raise BundleRefused("The command has a quotation mark without its partner: close the quotes.") from None


def entry(bundle: Bundle, command: str) -> tuple[str, ...]:
    """`parse_command`, and the script is one of the bundle's, or a module of a package by its name. Raises BundleRefused naming the
    scripts there are."""
    return entry_among(bundle.scripts, command, root=bundle.root)


def entry_among(scripts: Sequence[str], command: str, *, root: str = "") -> tuple[str, ...]:
    """The same of code that is not kept yet. `scripts`: its Python files, relative to `root`, its one top folder."""
    script, *arguments = parse_command(command)
    if program(command):
        if f"{script}.py" in scripts:
            raise BundleRefused(f"{script} is not a Python file or a notebook: write {script}.py.")
        return (script, *arguments)
    within, named = script.removeprefix(f"{root}/") if root else script, module(command)
    main = f"{script.removesuffix('.py')}/__main__.py" if named else script
    for candidate in (script, within, main, main.removeprefix(f"{root}/")):
        if candidate in scripts:
            return (candidate, *arguments)
    if named and named.partition(".")[0] not in {root, *(each.partition("/")[0].removesuffix(".py") for each in scripts)}:
        return (named, *arguments)
    names = ", ".join(scripts[:NAMED_SCRIPTS]) + (", ..." if len(scripts) > NAMED_SCRIPTS else "")
    raise BundleRefused(f"{script} is not in the zip: name one of its Python files ({names}), or add {script} and upload again.")


def _limits() -> Limits:
    return Limits(entries=settings.EDT_MAX_UPLOAD_ENTRIES, unpacked_bytes=settings.EDT_MAX_UNPACKED_BYTES)


def _repacked(upload: Path, kind: str, shown: str, limits: Limits, cleanup: contextlib.ExitStack) -> tuple[Path, str, int]:
    """The zip of a tar or of a script, as `_draft` gives it."""
    handle, name = tempfile.mkstemp(prefix="upload-", suffix=".zip", dir=settings.EDT_HOME / "tmp")
    cleanup.callback(Path(name).unlink, missing_ok=True)
    with os.fdopen(handle, "w+b") as target:
        if kind == "tar":
            folders.repack(upload, into=target, name=shown, limits=limits)
        else:
            tarcheck.script_as_zip(upload, name=shown.rsplit("/", 1)[-1], into=target)
        target.flush()
        os.fsync(target.fileno())
        target.seek(0)
        digest = hashlib.file_digest(target, "sha256")
        return Path(name), digest.hexdigest(), target.seek(0, os.SEEK_END)


def _draft(file: BinaryIO, shown: str, cleanup: contextlib.ExitStack) -> tuple[Path, str, int]:
    """The upload on disk, its SHA-256 and its size; removed when `cleanup` ends, unless it was moved into place."""
    handle, name = tempfile.mkstemp(prefix="upload-", suffix=".zip", dir=settings.EDT_HOME / "tmp")
    cleanup.callback(Path(name).unlink, missing_ok=True)
    with os.fdopen(handle, "wb") as draft:
        sha256, size_bytes = _copy(file, draft, shown)
        os.fsync(draft.fileno())
    return Path(name), sha256, size_bytes


def _copy(file: BinaryIO, draft: IO[bytes], shown: str) -> tuple[str, int]:
    digest, size_bytes = hashlib.sha256(), 0
    file.seek(0)
    while chunk := file.read(CHUNK_BYTES):
        size_bytes += len(chunk)
        if size_bytes > settings.EDT_MAX_UPLOAD_BYTES:
            most = settings.EDT_MAX_UPLOAD_BYTES >> 20
            raise BundleRefused(f"{shown} is larger than {most} MiB: leave data sets out and upload them as a data asset.")
        digest.update(chunk)
        draft.write(chunk)
    if not size_bytes:
        raise BundleRefused(f"{shown} is empty: choose the file with your model code.")
    return digest.hexdigest(), size_bytes


def _unpack(zipped: Path, name: str, limits: Limits, cleanup: contextlib.ExitStack) -> tuple[Path, Shape]:
    """Into a folder beside its place, which may be a volume of its own; removed when `cleanup` ends, unless it was moved into place. What
    it is, is read from what lies there, not from what was said of it."""
    folder = Path(tempfile.mkdtemp(prefix=UNPACKING, dir=settings.EDT_HOME / "code"))
    cleanup.callback(shutil.rmtree, folder, ignore_errors=True)
    return folder, zipcheck.shape(folders.unpack(zipped, into=folder, name=name, limits=limits, is_code=True))


def _move_into_place(folder: Path, sha256: str) -> None:
    """By renaming. Two of the same code may both come here: the content is the same, whoever is first stays."""
    target = settings.EDT_HOME / "code" / sha256
    with contextlib.suppress(OSError):  # the folder is there and not empty: the other was faster
        folder.rename(target)
    if not target.is_dir():
        raise OSError(f"{target} could not be made")


def _row(sha256: str, size_bytes: int, found: Shape) -> Bundle:
    facts = {"size_bytes": size_bytes, "entries": found.entries, "root": found.root, "scripts": list(found.scripts)}
    return Bundle.objects.get_or_create(sha256=sha256, defaults=facts)[0]


def zip_path(sha256: str) -> Path:
    """The kept upload."""
    path: Path = settings.EDT_HOME / "bundles" / f"{stores.named(sha256)}.zip"
    return path
