"""The arguments that a run's script gets: those of its command, in which a folder of the run may stand by its name, as in a shell. Where
the folders are is known on the run's machine alone, and a script that takes its data's path as an argument reads no environment."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

FOLDERS = ("DATA_DIR", "DATA_PATH", "RESULT_DIR", "LOG_DIR", "SAVED_MODEL_DIR")
_NAMED = re.compile(rf"\$(?:\{{({'|'.join(FOLDERS)})\}}|({'|'.join(FOLDERS)})(?!\w))")


def with_folders(arguments: Iterable[str], environment: Mapping[str, str]) -> list[str]:
    """`$DATA_DIR` and `${DATA_DIR}` (and so on: FOLDERS) replaced; everything else, and a folder that there is not, as it is."""
    return [_NAMED.sub(lambda found: environment.get(found[1] or found[2]) or found[0], each) for each in arguments]
