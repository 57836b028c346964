"""What is shown of a file that users or their programs wrote: a text's beginning, a table's or an array's first rows, a picture. Never a
page of its own.

Names are not believed: a picture is what begins as one, of a kind that runs no script; all else is text, or is not shown. A name only
says how text is laid out. Whatever a file holds, a bounded part of it is read.

A boxed child makes it (`plain` is what it answers), and the studio looks at every field before it believes it (`believed`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import BinaryIO

from experiments.boxed import arrays, indented, strict, tables
from experiments.boxed.arrays import Array
from experiments.boxed.tables import Table

TEXT_BYTES = 64 * 1024
JSON_BYTES, JSON_CHARACTERS = 128 * 1024, 256 * 1024  # of it, and of what is made of that
MOST_IMAGE_BYTES = 20 << 20
_IMAGES = ((b"\x89PNG\r\n\x1a\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF87a", "image/gif"), (b"GIF89a", "image/gif"))
_MODEL = "A model or checkpoint of PyTorch, which is not opened here: it may hold code. Download it; torch.load reads it."
_NOT_SHOWN = (  # what it begins with, what is in its name, what is said of it
    (b"PAR1", "", "A Parquet table, which is not shown here. Download it; pandas.read_parquet reads it, for example."),
    (
        b"",
        ".tfevents.",
        "TensorBoard's events, which are not shown here: a run's are on its Monitor and Media. Download them; tensorboard --logdir FOLDER "
        "shows them.",
    ),
    (b"", ".pth", _MODEL),
    (b"", ".pt", _MODEL),
    (b"", ".ckpt", _MODEL),
    (b"", ".onnx", "An ONNX model, which is not shown here. Download it; onnxruntime runs it, Netron draws it."),
    (
        b"",
        ".pkl",
        "A pickle, which is never opened here: it may hold code. Download it; load it only if you trust its script.",
    ),
    (b"\x89HDF", "", "An HDF5 file, which is not shown here. Download it; h5py reads it."),
    (b"PK", "", "A zip, whose files are not shown here. Download it to unpack it."),
    (b"\x1f\x8b", "", "A compressed file (gzip), which is not shown here. Download it to unpack it."),
)
_LAID_OUT = {"csv": "Table", "tsv": "Table", "jsonl": "Table", "ndjson": "Table", "json": "Indented"}


@dataclass(frozen=True)
class Preview:
    """A file. `text` is its beginning, None where it is not text; `image` its type, "" where it is none that can be shown.

    `laid_out` names the other way to show this text, "" where there is none; `as_text`: it is shown as it stands all the same. `said`:
    what a reader must know. `instead`: where nothing can be shown, what it is and what to do with it."""

    size_bytes: int
    text: str | None = None
    whole: bool = True
    image: str = ""
    table: Table | None = None
    arrays: list[Array] = field(default_factory=list)
    laid_out: str = ""
    as_text: bool = False
    said: list[str] = field(default_factory=list)
    instead: str = ""


def preview(file: BinaryIO, size_bytes: int, *, name: str, as_text: bool = False) -> Preview:
    """Of a file that is read from its start. `as_text`: not laid out."""
    head = file.read(TEXT_BYTES)
    suffix = name.rpartition(".")[2].lower() if "." in name else ""
    if size_bytes <= MOST_IMAGE_BYTES and (image := picture(head)):
        return Preview(size_bytes, image=image)
    if head.startswith(arrays.MAGIC):
        return Preview(size_bytes, arrays=[arrays.npy(file, size_bytes)])
    if suffix == "npz" and head.startswith(b"PK"):
        found, said = arrays.npz(file)
        return Preview(size_bytes, arrays=found, said=said)
    laid_out = _LAID_OUT.get(suffix, "") if size_bytes else ""
    if laid_out and not as_text:
        limit = JSON_BYTES if suffix == "json" else tables.READ_BYTES
        data = head + file.read(limit - len(head))
        if not _is_binary(data):
            return _laid_out(data, size_bytes, suffix)
    whole = size_bytes <= len(head)
    if laid_out and not _is_binary(head):
        decoded, said = tables.decoded(head, whole=whole)
        return Preview(size_bytes, decoded, whole, laid_out=laid_out, as_text=True, said=said)
    text = _text(head, whole=whole)
    return Preview(size_bytes, text, whole, instead=_instead(head, name) if text is None else "")


def _instead(head: bytes, name: str) -> str:
    """What a file is that is not shown, by what it begins with where that says so, and what to do with it."""
    base = name.rpartition("/")[2].lower()
    found = (words for magic, ending, words in _NOT_SHOWN if head.startswith(magic) and ending in base)
    return next(found, "This is neither text nor an array nor a picture that browsers show: download it to look into it.")


def picture(head: bytes) -> str:
    """The type of the picture that begins like that; "" where it is none."""
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for magic, kind in _IMAGES if head.startswith(magic)), "")


def _laid_out(data: bytes, size_bytes: int, suffix: str) -> Preview:
    whole = size_bytes <= len(data)
    if suffix == "json":
        text, said = tables.decoded(data, whole=whole)
        problem = indented.problem(text) if whole else ""
        said += [f"This is not valid JSON: {problem}."] if problem else []
        shown, all_of_it = (text, True) if problem else indented.indented(text, limit=JSON_CHARACTERS)
        return Preview(size_bytes, shown, whole and all_of_it, laid_out="" if problem else _LAID_OUT[suffix], said=said)
    lines = suffix in ("jsonl", "ndjson")
    table = tables.json_lines(data, whole=whole) if lines else tables.delimited(data, whole=whole, tabs=suffix == "tsv")
    return Preview(size_bytes, whole=whole, table=table, laid_out=_LAID_OUT[suffix])


def _is_binary(data: bytes) -> bool:
    """Whether it is no text in any encoding that is read here."""
    return b"\0" in data and not data.startswith((b"\xff\xfe", b"\xfe\xff"))


def _text(head: bytes, *, whole: bool) -> str | None:
    """None for what is not text in UTF-8; a character cut in two at the end does not count."""
    if b"\0" in head:
        return None
    try:
        return head.decode()
    except UnicodeDecodeError as error:
        return head[: error.start].decode() if not whole and error.start > len(head) - 4 else None


def plain(shown: Preview) -> dict[str, object]:
    """As JSON has it. Whether a column is one of numbers is said once."""
    arrays_of = [
        {
            "name": each.name,
            "kind": each.kind,
            "shape": each.shape,
            "facts": each.facts,
            "table": _plain_table(each.table),
            "said": each.said,
        }
        for each in shown.arrays
    ]
    return {**shown.__dict__, "table": _plain_table(shown.table), "arrays": arrays_of}


def _plain_table(table: Table | None) -> dict[str, object] | None:
    if table is None:
        return None
    return {"columns": table.columns, "rows": [[label, *(cell for cell, _ in row)] for label, row in table.rows], "said": table.said}


def believed(raw: object) -> Preview:
    """Raises ProtocolError."""
    said = strict.fields(raw, Preview)
    return Preview(
        size_bytes=strict.whole(said["size_bytes"]),
        text=None if said["text"] is None else strict.text(said["text"]),
        whole=strict.flag(said["whole"]),
        image=strict.one_of(said["image"], ("", "image/webp", *(kind for _, kind in _IMAGES))),
        table=_believed_table(said["table"]),
        arrays=[_believed_array(each) for each in strict.items(said["arrays"], arrays.MOST_MEMBERS)],
        laid_out=strict.text(said["laid_out"]),
        as_text=strict.flag(said["as_text"]),
        said=strict.texts(said["said"]),
        instead=strict.text(said["instead"]),
    )


def _believed_array(raw: object) -> Array:
    said = strict.fields(raw, Array)
    facts = [strict.texts(each, exactly=2) for each in strict.items(said["facts"], 20)]
    name, kind, shape = (strict.text(said[each]) for each in ("name", "kind", "shape"))
    return Array(name, kind, shape, [(word, value) for word, value in facts], _believed_table(said["table"]), strict.texts(said["said"]))


def _believed_table(raw: object) -> Table | None:
    if raw is None:
        return None
    said: Mapping[str, object] = strict.fields(raw, Table)
    columns = [strict.items(each, 2, exactly=2) for each in strict.items(said["columns"], tables.MOST_COLUMNS)]
    named = [(strict.text(name), strict.flag(numeric)) for name, numeric in columns]
    numbers = [numeric for _, numeric in named]
    rows = [strict.texts(each, exactly=1 + len(named)) for each in strict.items(said["rows"], tables.MOST_ROWS)]
    return Table(named, [(row[0], list(zip(row[1:], numbers, strict=True))) for row in rows], strict.texts(said["said"]))
