"""Scripts that are begun as modules, as `python -m letters.train` does it. Pure, standard library only."""

from __future__ import annotations

from pathlib import Path


def folder_of_imports(script: str, folder: str, module: str) -> Path:
    """In which modules are looked for first: the code's `folder` where the script is begun as `module`, else that in which it lies."""
    return Path(folder) if module else Path(folder, script).parent


def name_of_upload(module: str, script: str) -> str:
    """By which `module` calls the folder of the code itself, as where the only folder of an upload was the package; else empty. `script`:
    its file in the code."""
    parts = _without_main(module.split("."))
    is_it = script.endswith(".py") and parts[1:] == _without_main(script.removesuffix(".py").split("/"))
    return parts[0] if parts and is_it else ""


def _without_main(parts: list[str]) -> list[str]:
    return parts[:-1] if parts[-1] == "__main__" else parts
