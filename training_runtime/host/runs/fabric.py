"""FABRIC_HOME: the folder in which scripts find `libs/fabric.zip`, and through which a fresh interpreter in the box finds this runtime."""

from __future__ import annotations

import io
import sys
import sysconfig
import zipfile
from pathlib import Path

import training_runtime

_PACKAGE = Path(training_runtime.__path__[0]).resolve()
SOURCES = _PACKAGE / "fabric" / "path"
HELPERS = "fabric/helpers"  # below the runtime
# By the interpreter that comes first: of an environment whose packages its workers need, and not torch's own, which knows none of them.
_TORCHRUN = "#!/usr/bin/env python3\nimport sys\n\nfrom torch.distributed.run import main\n\nsys.exit(main())\n"
COMMANDS = {"edt": "edt_client.cli.main", "edt-node": "training_runtime.node.__main__"}  # where each one's main() is


def folder(host_folder: Path) -> Path:
    return host_folder / "fabric"


def archive(fabric_home: Path) -> Path:
    return fabric_home / "libs" / "fabric.zip"


def packages(fabric_home: Path) -> Path:
    """A folder with nothing but a link to this runtime: what stands beside the runtime in its own parent folder is not the user code's
    business."""
    return fabric_home / "python"


def programs(fabric_home: Path) -> tuple[Path, ...]:
    """Where a script finds the programs that it finds in an activated environment: `python`, `torchrun`."""
    return fabric_home / "bin", Path(sys.executable).parent


def helpers(fabric_home: Path) -> Path:
    """The folder of the modules that a script may bring along itself, by way of that link."""
    return packages(fabric_home) / "training_runtime" / HELPERS


def build(host_folder: Path, sources: Path = SOURCES) -> Path:
    """Makes FABRIC_HOME anew from the thin modules in `sources`; readable by every user. Returns it. The helpers that scripts bring along
    themselves are not in the zip: scripts put that before their own folder."""
    home = folder(host_folder)
    for part in (home, home / "libs", home / "bin", packages(home)):
        part.mkdir(exist_ok=True)
        part.chmod(0o755)
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as target:
        for source in sorted(sources.rglob("*.py")) if sources.is_dir() else ():
            target.write(source, source.relative_to(sources))
    if not archive(home).is_file() or archive(home).read_bytes() != content.getvalue():  # a full disk has no room for it
        _replace(archive(home), content.getvalue(), mode=0o644)
    _replace(home / "bin" / "torchrun", _TORCHRUN.encode(), mode=0o755)
    link = packages(home) / "training_runtime"
    if not link.is_symlink() or link.readlink() != _PACKAGE:
        link.unlink(missing_ok=True)
        link.symlink_to(_PACKAGE)
    return home


def _replace(path: Path, content: bytes, *, mode: int) -> None:
    beside = path.with_suffix(".new")
    beside.write_bytes(content)
    beside.chmod(mode)
    beside.replace(path)


def let_scripts_import(venv: Path) -> None:
    """In this interpreter's environment, the folder `venv`, a script finds `fabric_model`, the helpers and FABRIC_HOME as in a run; the
    commands `edt` and `edt-node` are there too."""
    home = build(venv)
    lines = [str(_PACKAGE.parent), str(SOURCES), str(_PACKAGE / HELPERS)]
    lines += [f"import training_runtime.fabric.{library}_ops as ops; ops.install()" for library in ("torchvision", "torchaudio")]
    lines.append("import training_runtime.elastic.keras.finder as finder; finder.install()")
    lines.append(f"import os; os.environ.setdefault('FABRIC_HOME', {str(home)!r})")
    Path(sysconfig.get_path("purelib"), "edt_studio.pth").write_text("\n".join([*lines, ""]))
    for name, module in COMMANDS.items():
        command = Path(sysconfig.get_path("scripts"), name)
        command.write_text(f"#!{sys.executable}\nimport sys\n\nfrom {module} import main\n\nsys.exit(main())\n")
        command.chmod(0o755)


if __name__ == "__main__":  # tools/setup.sh
    let_scripts_import(Path(sys.argv[1]))
