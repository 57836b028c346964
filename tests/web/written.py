"""Files as runs write them, for the pages that show them: a picture, tables, arrays, JSON."""

from __future__ import annotations

import io
import json
import struct
import zlib

import numpy as np


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
        "odd.csv": odd,
        "steps.jsonl": "".join(json.dumps(line) + "\n" for line in lines).encode(),
        "report.json": json.dumps(report).encode(),
    }


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
