"""What lies in the results for whoever opens them: links, pipes, names, sizes; and what is left running."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

NAMES = (
    "<img src=x onerror=alert(1)>.txt",
    '"onmouseover="alert(1).csv',
    "=cmd|' -C calc'!A0.csv",
    "\u202egnp.exe",
    "line\nbreak.txt",
    "escape\x1b[2J\x1b]0;owned\x07.txt",
    "..\\..\\..\\evil.bat",
    "C:\\evil.bat",
    "a" * 255,
    "%2e%2e%2fetc%2fpasswd",
    "semi;colon",
    "html.html",
    "picture.svg",
    "not-a-picture.png",
)
HTML = b"<html><script>fetch('/projects/')</script></html>"
SVG = b'<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"><script>alert(1)</script></svg>'
LARGE_BYTES = 900 << 30  # of nothing: it takes no room on the disk
LEFT = """
import os, signal, sys
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
if os.fork():
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
while True:
    signal.pause()
"""


def lay_traps(own: Path, targets: dict[str, Any]) -> None:
    model = own / "model"
    for number, path in enumerate(targets["files"]):
        (model / f"link-{number}").symlink_to(path)
    for number, path in enumerate(targets["folders"]):
        (model / f"folder-{number}").symlink_to(path)
    (model / "circle").symlink_to("circle")
    (model / "upwards").symlink_to("../../..")
    os.mkfifo(model / "pipe")
    for name in ("worker-1", "worker-2", "worker-3"):
        (own / "log" / name).mkdir(parents=True)
    (own / "log" / "worker-1" / "console.log").symlink_to(targets["secret"])
    os.mkfifo(own / "log" / "worker-2" / "console.log")
    (own / "log" / "worker-3" / "console.log").write_bytes(b"\x1b]0;owned\x07<script>alert(1)</script>\n" + b"\0" * 70_000)
    (own / "log" / "secrets").symlink_to(os.path.dirname(targets["secret"]))
    for name in NAMES:
        (model / name).write_bytes(SVG if name.endswith("svg") else HTML)
    with suppress(OSError):  # a file system that knows text alone
        Path(os.fsdecode(os.fsencode(model) + b"/\xff\xfe")).touch()
    with open(model / "large.pth", "wb") as large:
        large.truncate(LARGE_BYTES)
    (own / "checkpoint").mkdir(exist_ok=True)
    with suppress(OSError):
        (own / "checkpoint" / "engine.pt").symlink_to(targets["secret"])
    entry = {"step": 1, "t": 1.0, "file": "../../secrets/secret_key", "pieces": [[0, 64]]}
    (own / "log" / "media.json").write_text(
        json.dumps({"tags": [{"kind": "text", "name": "<script>alert(1)</script>", "entries": [entry]}]})
    )
    (own / "bomb.npz").write_bytes(b"PK\x03\x04" + struct.pack("<H", 20) + b"\xff" * 64)


def leave_a_daemon_behind(mark: str) -> None:
    """In a session of its own, with no parent of this run, deaf to every request."""
    subprocess.Popen([sys.executable, "-I", "-S", "-c", LEFT, mark], start_new_session=True, stdin=subprocess.DEVNULL)


def flood_the_log() -> None:
    line = "\x1b[31m\x1b]8;;http://evil\x07<b>owned</b> ERROR Traceback (most recent call last): " + "x" * 900 + "\r"
    for _ in range(4000):
        sys.stdout.write(line)
    sys.stdout.write("\n" + "y" * (1 << 20) + "\n")
