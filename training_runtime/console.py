"""What a run's processes print, where the disk is full: telemetry, so it never costs a step. It is dropped, and how much is said later."""

from __future__ import annotations

import io
import sys
from typing import Any

from training_runtime import storage


class _Forgiving(io.FileIO):
    lost_bytes = 0

    def write(self, data: Any, /) -> int:
        try:
            if self.lost_bytes:
                super().write(f"\n[the disk was full: {self.lost_bytes} bytes of output are missing here]\n".encode())
                self.lost_bytes = 0
            return super().write(data) or 0
        except OSError as error:
            if error.errno not in storage.UNAVAILABLE:
                raise
            self.lost_bytes += len(data)
            return len(data)


def forgive_full_disks() -> None:
    """Replace Python's standard output and standard error. Forked processes inherit it."""
    for name, fd in (("stdout", 1), ("stderr", 2)):
        before = getattr(sys, name)
        before.flush()
        stream = io.BufferedWriter(_Forgiving(fd, "wb", closefd=False))
        after = io.TextIOWrapper(stream, encoding=before.encoding, errors=before.errors, line_buffering=True, write_through=True)
        setattr(sys, name, after)
