"""What files are called in an archive. A run's script may call a file as no zip can everywhere: with a backslash, or like another one but
for capitals. Such a file gets a number, and its list says what it is called. Pure."""

from __future__ import annotations

import unicodedata

from experiments.files import zipcheck
from experiments.files.zipcheck import BundleRefused
from experiments.transfer.format import RENAMED

ROOM = 64  # bytes of a path that the folders above it take


class Entries:
    """Of the files of one run or data asset, whose folder in the archive is `top`."""

    def __init__(self, top: str) -> None:
        self._top = top
        self._renamed = 0
        self._spelled: dict[str, str] = {}

    def entry(self, path: str) -> str:
        """Asked once of each path."""
        if self._is_plain(path):
            return f"{self._top}/{path}"
        self._renamed += 1
        return f"{RENAMED}/{self._top}/{self._renamed}"

    def _is_plain(self, path: str) -> bool:
        try:
            zipcheck.checked_paths([path])
        except BundleRefused:
            return False
        parts = path.split("/")
        if len(path.encode()) > zipcheck.MAX_PATH_BYTES - ROOM or zipcheck.CLUTTER & set(parts):
            return False
        spelled = {
            unicodedata.normalize("NFC", way).casefold(): way for way in ("/".join(parts[:depth]) for depth in range(1, len(parts) + 1))
        }
        if any(self._spelled.get(folded, way) != way for folded, way in spelled.items()):
            return False
        self._spelled |= spelled
        return True
