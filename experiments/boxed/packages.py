"""Job on what code requires: reading its requirements.txt or pyproject.toml. In the child alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from training_runtime.environments import requirements as files_of_packages


def requirements(_files: Sequence[int], path: str, text: str | None, addresses: bool) -> dict[str, object]:
    """The lines of the file `path` below the working folder, or of `text` where that is given."""

    def text_of(name: str) -> bytes:
        if text is not None:
            if name != path:
                raise KeyError(name)
            return text.encode()
        file = Path(name)
        if not file.is_file():  # the code was checked when it came: there are no links in it
            raise KeyError(name)
        return file.read_bytes()

    try:
        lines = files_of_packages.read(path, text_of, allowed=files_of_packages.Allowed(addresses=addresses))
    except files_of_packages.Refused as refusal:
        return {"refused": str(refusal), "lines": []}
    return {"refused": "", "lines": [asdict(line) for line in lines]}
