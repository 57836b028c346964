"""What submits to WMLA's REST interface: a script, the words of both generations of clients, and the run that comes of it."""

from __future__ import annotations

import io
import tarfile
from typing import Any

from django.core.files.uploadedfile import SimpleUploadedFile

from experiments.models import TrainingRun
from tests.web.wmla import DL, Script

MAIN = "import argparse\nimport elog\nprint('trains')\n"
GEN_A = (
    "--exec-start edtPyTorch         --cs-datastore-meta type=fs,data_path=pytorch-mnist         --model-dir pytorch-mnist-edt-model"
    "         --edt-options maxWorkers=3         --model-main pytorch_mnist_EDT.py         --epochs 10"
)
GEN_B = "--exec-start edtPyTorch --cs-datastore-meta type=fs  --numWorker 2    --model-main elastic-main.py --model-dir resnet-wmla"


def tar(files: dict[str, str], mode: str = "w:gz", kind: dict[str, bytes] | None = None) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode=mode) as archive:  # type: ignore[call-overload]
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(text.encode())
            info.type = (kind or {}).get(name, tarfile.REGTYPE)
            if info.type != tarfile.REGTYPE:
                info.size, info.linkname = 0, "/etc/passwd"
            archive.addfile(info, io.BytesIO(text.encode()))
    return content.getvalue()


def part(content: bytes, name: str = "model.modelDir.tar", field: str = "file") -> dict[str, Any]:
    return {field: SimpleUploadedFile(name, content)}


def submit(script: Script, args: str, data: dict[str, Any] | None = None, query: str = "", slash: str = "", **headers: str) -> Any:
    """The args stand raw in the address, as the notebooks write them: what quotes them is the HTTP client."""
    address = f"{DL}/execs{slash}?{query}args={args.replace('%', '%25').replace(' ', '%20')}"
    return script.call("post", address, {} if data is None else data, Accept="application/json", **headers)


def run_of(answer: Any) -> TrainingRun:
    assert answer.status_code == 200, answer.content
    return TrainingRun.objects.get(pk=int(answer.json()["id"].removeprefix("wmla-")))
