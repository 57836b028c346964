"""FABRIC_HOME: the folder in which scripts find `libs/fabric.zip`, and through which a fresh interpreter in the box finds this runtime."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import training_runtime

_PACKAGE = Path(training_runtime.__path__[0]).resolve()
SOURCES = _PACKAGE / "fabric" / "path"


def folder(host_folder: Path) -> Path:
    return host_folder / "fabric"


def archive(fabric_home: Path) -> Path:
    return fabric_home / "libs" / "fabric.zip"


def packages(fabric_home: Path) -> Path:
    """A folder with nothing but a link to this runtime: what stands beside the runtime in its own parent folder is not the user code's
    business."""
    return fabric_home / "python"


def build(host_folder: Path, sources: Path = SOURCES) -> Path:
    """Makes FABRIC_HOME anew from the thin modules in `sources`; readable by every user. Returns it."""
    home = folder(host_folder)
    for part in (home, home / "libs", packages(home)):
        part.mkdir(exist_ok=True)
        part.chmod(0o755)
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as target:
        for source in sorted(sources.rglob("*.py")) if sources.is_dir() else ():
            target.write(source, source.relative_to(sources))
    if not archive(home).is_file() or archive(home).read_bytes() != content.getvalue():  # a full disk has no room for it
        beside = archive(home).with_suffix(".new")
        beside.write_bytes(content.getvalue())
        beside.chmod(0o644)
        beside.replace(archive(home))
    link = packages(home) / "training_runtime"
    if not link.is_symlink() or link.readlink() != _PACKAGE:
        link.unlink(missing_ok=True)
        link.symlink_to(_PACKAGE)
    return home
