"""Files as runs write them, for the pages that show them: a picture, tables, arrays, JSON, and what TensorBoard's events hold."""

from __future__ import annotations

import io
import json
import struct
import zlib

import numpy as np

from training_runtime import media


def tabular() -> dict[str, bytes]:
    """Files of the kinds that are shown as tables, arrays or indented: wide, long, and with what is markup or no text in any of them."""
    array, arrays = io.BytesIO(), io.BytesIO()
    numbers = np.random.default_rng(1).normal(size=(500, 64)).astype(np.float32)
    np.save(array, numbers)
    np.savez_compressed(arrays, embeddings=numbers, labels=np.arange(500) % 10, names=np.array(["zero", "one", "<b>two</b>"]))
    head = ",".join(f"feature {n}" for n in range(60))
    wide = head + "\n" + "".join(",".join(f"{(row * 7 + n) % 97 / 10}" for n in range(60)) + "\n" for row in range(400))
    odd = "name,says,count\n\u202eabc,<script>alert(1)</script>,3\n\u0634\u0639\u0631,'=1+1',12\n".encode() + b"caf\xe9,latin,7\n"
    lines = [{"step": n, "loss": 1 / (n + 1), "at": {"epoch": n // 10, "slots": [n % 4, 1]}} for n in range(40)]
    classes = [{"name": "zero", "right": 972}, {"name": "one", "right": 1128}]
    report = {"model": "LeNet", "accuracy": 0.9861, "confusion": [[972, 8], [7, 1128]], "classes": classes, "notes": []}
    return {
        "embeddings.npy": array.getvalue(),
        "arrays.npz": arrays.getvalue(),
        "wide.csv": wide.encode(),
        "wide and short.csv": "\n".join(wide.split("\n")[:31]).encode(),
        "odd.csv": odd,
        "steps.jsonl": "".join(json.dumps(line) + "\n" for line in lines).encode(),
        "report.json": json.dumps(report).encode(),
    }


EVENTS = "tb/events.out.tfevents.1"


def looks(steps: tuple[int, ...] = (1, 120, 240)) -> dict[str, bytes]:
    """An event file, as far as pages read it, and the list of what is in it: two pictures, a text, three histograms. Some are odd."""
    content = b""

    def kept(data: bytes) -> tuple[int, int]:
        nonlocal content
        content += b"\0record\0" + data
        return len(content) - len(data), len(data)

    def tag(kind: media.Kind, name: str, *pieces: bytes) -> media.Tag:
        return media.Tag(kind, name, tuple(media.Entry(step, 1_790_000_000.0 + step, EVENTS, tuple(map(kept, pieces))) for step in steps))

    def spread(name: str, drift: float) -> media.Tag:
        entries = []
        for place, step in enumerate(steps):
            values = np.random.default_rng(place).normal(drift * place, 1 + place / 4, 2000)
            counts, edges = np.histogram(values, bins=media.BINS)
            drawn = media.Histogram(float(edges[0]), float(edges[-1]), tuple(map(float, counts)))
            entries.append(media.Entry(step, 1_790_000_000.0, EVENTS, (), drawn))
        return media.Tag("histogram", name, tuple(entries))

    tags = (
        tag("image", "predictions/confusion", squares(10)),
        tag("image", "samples <b>" + "W" * 80, squares(4), squares(6)),
        tag("text", "notes", "| metric | value |\n|---|---|\n<script>alert(1)</script>\n\u202eshould be isolated".encode()),
        tag("text", "long", b"all work and no play " * 400),
        spread("conv1/weights", 0.5),
        spread("conv1/gradients", 0.0),
        spread("fc/" + "W" * 60, -2.0),
    )
    return {EVENTS: content, media.FILE_NAME: media.dump(tags)}


def squares(count: int) -> bytes:
    """A grey picture of that many squares a side, dark along the diagonal."""
    side = 12
    lines = [
        b"\0" + b"".join(bytes([40 if row == column else 200 + (row * 7 + column * 13) % 50]) * side for column in range(count))
        for row in range(count)
    ]
    pixels = zlib.compress(b"".join(line for line in lines for _ in range(side)))
    header = struct.pack(">IIBBBBB", count * side, count * side, 8, 0, 0, 0, 0)
    parts = [(b"IHDR", header), (b"IDAT", pixels), (b"IEND", b"")]
    chunks = (struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts)
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)
