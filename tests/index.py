"""A package index on a port of its own, with tiny packages made on the spot: what environments are resolved and built from in tests."""

from __future__ import annotations

import base64
import hashlib
import io
import tarfile
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def wheel(
    name: str, version: str, files: Mapping[str, str], *, requires: tuple[str, ...] = (), scripts: Mapping[str, str] | None = None
) -> bytes:
    """`scripts`: console scripts, name -> "module:function"."""
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n" + "".join(f"Requires-Dist: {each}\n" for each in requires)
    content = {**files, f"{info}/METADATA": metadata, f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
    if scripts:
        content[f"{info}/entry_points.txt"] = "[console_scripts]\n" + "".join(f"{key} = {value}\n" for key, value in scripts.items())
    record = "".join(f"{path},sha256={_digest(text)},{len(text.encode())}\n" for path, text in content.items()) + f"{info}/RECORD,,\n"
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for path, text in {**content, f"{info}/RECORD": record}.items():
            archive.writestr(zipfile.ZipInfo(path, (2026, 1, 1, 0, 0, 0)), text)
    return target.getvalue()


BACKEND = """
import base64, hashlib, os, pathlib, zipfile

def build_wheel(folder, config_settings=None, metadata_directory=None):
    {code}
    name = "{name}-{version}-py3-none-any.whl"
    info = "{name}-{version}.dist-info"
    files = {{"{name}.py": "VALUE = " + repr(found) + "\\n",
             info + "/METADATA": "Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n",
             info + "/WHEEL": "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"}}
    with zipfile.ZipFile(pathlib.Path(folder, name), "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
        archive.writestr(info + "/RECORD", "".join(path + ",,\\n" for path in files) + info + "/RECORD,,\\n")
    return name
"""


def source(name: str, version: str, code: str) -> bytes:
    """A source distribution whose build runs `code`, which says in `found` what the package's VALUE is."""
    files = {
        "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        f'[project]\nname = "{name}"\nversion = "{version}"\n',
        "PKG-INFO": f"Metadata-Version: 2.2\nName: {name}\nVersion: {version}\n",
        "backend.py": BACKEND.format(name=name, version=version, code=code),
    }
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as archive:
        for path, text in files.items():
            member = tarfile.TarInfo(f"{name}-{version}/{path}")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return target.getvalue()


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


class Index:
    """`url` of its simple interface; `asked` collects the paths that were asked for. With `gate` cleared a download waits."""

    def __init__(self, url: str, gate: threading.Event) -> None:
        self.url, self.gate = url, gate
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []

    def add(self, name: str, version: str, files: Mapping[str, str] | None = None, **more: object) -> None:
        content = files if files is not None else {f"{name}.py": f"VERSION = {version!r}\n"}
        self.files[f"{name}-{version}-py3-none-any.whl"] = wheel(name, version, content, **more)  # type: ignore[arg-type]

    def add_source(self, name: str, version: str, code: str) -> None:
        self.files[f"{name}-{version}.tar.gz"] = source(name, version, code)

    def answer(self, path: str) -> bytes | None:
        self.asked.append(path)
        words = path.strip("/").split("/")
        if words[0] == "files":
            self.gate.wait(30)
            return self.files.get(words[1])
        found = [name for name in self.files if name.startswith(f"{words[1].replace('-', '_')}-")] if len(words) == 2 else []
        rows = (f'<a href="/files/{name}#sha256={hashlib.sha256(self.files[name]).hexdigest()}">{name}</a>' for name in found)
        return f"<!DOCTYPE html><html><body>{''.join(rows)}</body></html>".encode() if found else None


@contextmanager
def serving(host: str = "127.0.0.1") -> Iterator[Index]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = index.answer(self.path)
            self.send_response(200 if content is not None else 404)
            self.send_header("Content-Type", "text/html" if self.path.startswith("/simple") else "application/octet-stream")
            self.send_header("Content-Length", str(len(content or b"")))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content or b"")

        do_HEAD = do_GET

        def log_message(self, *_: object) -> None:
            pass

    gate = threading.Event()
    gate.set()
    server = ThreadingHTTPServer((host, 0), Handler)
    index = Index(f"http://{host}:{server.server_address[1]}/simple", gate)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield index
    finally:
        gate.set()
        server.shutdown()
        server.server_close()
        thread.join(10)
