"""Jobs on archives that people uploaded: checked and unpacked into the folder that is handed over, or made into another one. The rules are
those of `zipcheck` and `tarcheck`. In the child alone."""

from __future__ import annotations

import os
import shutil
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, cast

from experiments.files import tarcheck, zipcheck
from experiments.files.zipcheck import BundleRefused, Limits


def tar_as_zip(files: Sequence[int], name: str, limits: Mapping[str, Any]) -> dict[str, object]:
    """`files`: the tar, where the zip goes, and room for what is between them."""
    source, into, scratch = _opened(files[0], "rb"), _opened(files[1], "r+b"), _opened(files[2], "r+b")
    try:
        tarcheck.tar_as_zip(source, name=name, into=into, scratch=scratch, limits=Limits(**limits))
        into.flush()
    except BundleRefused as refusal:
        return {"refused": str(refusal)}
    return {"refused": ""}


def unpack(files: Sequence[int], name: str, limits: Mapping[str, Any], is_code: bool, room: int) -> dict[str, object]:
    """Into the working folder. `is_code`: it must be what a run can be made of. `needs`: the bytes for which there is no room; then nothing
    is unpacked."""
    allowed = Limits(**limits)
    try:
        with zipcheck.opened(_opened(files[0], "rb"), name=name) as archive:
            found = zipcheck.contents(archive, limits=allowed).files if is_code else zipcheck.checked(archive, limits=allowed)
            declared = sum(info.file_size for info in found)
            if declared > room:
                return {"refused": "", "needs": declared}
            zipcheck.unpack(archive, found, into=Path(), limits=allowed)
    except BundleRefused as refusal:
        return {"refused": str(refusal), "needs": 0}
    return {"refused": "", "needs": 0}


def with_line(files: Sequence[int], path: str, line: str) -> None:
    """The zip with a line more in the text file at `path`, which is made where it is missing. `files`: the zip, and where the new one
    goes."""
    text = ""
    with (
        zipfile.ZipFile(_opened(files[0], "rb")) as before,
        _opened(files[1], "r+b") as into,
        zipfile.ZipFile(into, "w", zipfile.ZIP_DEFLATED) as after,
    ):
        for entry in before.infolist():
            zipcheck.with_slashes(entry)
            if entry.filename == path:
                text = before.read(entry).decode("utf-8-sig", "replace")
            elif entry.is_dir():
                after.writestr(entry, b"")
            else:
                with before.open(entry) as source, after.open(entry, "w", force_zip64=entry.file_size > 1 << 31) as target:
                    shutil.copyfileobj(source, target, 1 << 20)
        after.writestr(path, f"{text}{'' if not text or text.endswith(chr(10)) else chr(10)}{line}\n")


def _opened(descriptor: int, mode: str) -> BinaryIO:
    """From its start, wherever whoever handed it over had got to."""
    os.lseek(descriptor, 0, os.SEEK_SET)
    return cast(BinaryIO, os.fdopen(descriptor, mode))
