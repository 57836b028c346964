"""The files of a submission as model code: a zip or a tar as it is, or scripts put together in a zip."""

from __future__ import annotations

import contextlib
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import IO, BinaryIO, cast

from django.conf import settings
from django.core.files.uploadedfile import SimpleUploadedFile, UploadedFile
from django.http import HttpRequest

from experiments.wmla import answers
from training_runtime import notebooks

NOT_CODE = (".yml", ".yaml", ".txt")  # lists of packages that some clients send along
NO_NAME = (
    "The part file has no file name, so an archive in it cannot be read: name it, as in requests.post(..., files={'file': open(PATH, "
    "'rb')}), or send a single script."
)
DATE = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class SentCode:
    """`only`: the one script that was sent, where that is all. `unused`: names of files that are not part of the code."""

    file: BinaryIO
    name: str
    only: str
    unused: tuple[str, ...]


@contextlib.contextmanager
def opened(files: Sequence[UploadedFile[bytes]]) -> Iterator[SentCode]:
    """The code, as long as the block lasts. Raises Refused. What is within an archive is checked by `bundles.store_bundle`."""
    scripts = [each for each in files if notebooks.is_script(_name(each))]
    archives = [each for each in files if each not in scripts and _is_archive(each)]
    others = [each for each in files if each not in scripts and each not in archives]
    unknown = [_name(each) for each in others if not _name(each).lower().endswith(NOT_CODE)]
    if unknown:
        answers.refuse(f"{unknown[0]} is no tar, zip, .py file or notebook: pack the folder with the model's code and send that.")
    if len(archives) > 1 or (archives and scripts):
        answers.refuse("Several files with code were sent: pack them into one folder, and send that as one tar or zip.")
    if not archives and not scripts:
        answers.refuse("No code was sent: send the model's folder as a tar or zip, or a .py file or notebook, as a part of a form.")
    unused = tuple(_name(each) for each in others)
    if archives:
        yield SentCode(cast(BinaryIO, archives[0]), _name(archives[0]), "", unused)
        return
    only = _name(scripts[0]) if len(scripts) == 1 else ""
    with tempfile.TemporaryFile(dir=settings.EDT_HOME / "tmp") as draft:
        _together(scripts, draft)
        yield SentCode(cast(BinaryIO, draft), _name(scripts[0]), only, unused)


def in_form(request: HttpRequest, args: str) -> list[UploadedFile[bytes]]:
    """The files of the form. A part `file` without a file name, as IBM's Python SDK sends it, is the script that the args name: Django has
    read it as text, so it is no archive any more. Raises Refused."""
    files = [file for name in request.FILES for file in request.FILES.getlist(name)]
    text = request.POST.get("file", "")
    if files or not text:
        return files
    if "\ufffd" in text or "\0" in text:
        answers.refuse(NO_NAME)
    words = args.split()
    main = words[words.index("--model-main") + 1] if "--model-main" in words[:-1] else "main.py"
    return [SimpleUploadedFile(PurePosixPath(main).name, text.encode())]


def _together(scripts: Sequence[UploadedFile[bytes]], into: IO[bytes]) -> None:
    with zipfile.ZipFile(into, "w", zipfile.ZIP_DEFLATED) as archive:
        for each in scripts:
            info = zipfile.ZipInfo(_name(each), date_time=DATE)
            info.compress_type = zipfile.ZIP_DEFLATED
            with archive.open(info, "w", force_zip64=True) as entry:
                for chunk in each.chunks():
                    entry.write(chunk)


def _is_archive(file: UploadedFile[bytes]) -> bool:
    file.seek(0)
    head = bytes(file.read(512))
    file.seek(0)
    return head.startswith((b"PK", b"\x1f\x8b")) or head[257:262] == b"ustar" or _name(file).endswith(".tar")


def _name(file: UploadedFile[bytes]) -> str:
    """Django has made it the last part of a path."""
    return file.name or "code"
