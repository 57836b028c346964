"""An S3 server of one's own for tests: rclone's, which checks signatures as Amazon's does and keeps its objects as files in a folder, where
a test can look at them and spoil them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.e2e.studio import wait_until

KEY, SECRET = "studio-key", "studio-secret-9c1f"
BUCKET = "studio"


class S3Server:
    """`folder`: where objects lie. `environment`: what its users need, for the bucket that there is."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / BUCKET
        self.folder.mkdir(parents=True)
        self._log = folder.with_suffix(".log")
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0
        self.start()

    @property
    def url(self) -> str:
        return f"s3://{BUCKET}/edt"

    @property
    def environment(self) -> dict[str, str]:
        return self.through(self.port)

    @staticmethod
    def through(port: int) -> dict[str, str]:
        return {
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    def start(self) -> None:
        """Also after `stop`, at the same address."""
        program = shutil.which("rclone", path=str(Path(sys.executable).parent)) or "rclone"
        address = f"127.0.0.1:{self.port}"
        command = [program, "serve", "s3", "--config", "", "--addr", address, "--auth-key", f"{KEY},{SECRET}", str(self.folder.parent)]
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        said = wait_until(lambda: re.search(r"127\.0\.0\.1:(\d+)", self._log.read_text()), self._log.read_text, deadline_s=30, every_s=0.02)
        self.port = int(said[1])

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def objects(self) -> dict[str, int]:
        """Names below the store's folder, and their sizes."""
        top = self.folder / "edt"
        return {path.relative_to(top).as_posix(): path.stat().st_size for path in top.rglob("*") if path.is_file()}

    def __enter__(self) -> S3Server:
        return self

    def __exit__(self, *_: Any) -> None:
        self.stop()
