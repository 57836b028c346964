"""What is shown of a file that users or their programs wrote: the beginning of a text, or a picture. Never a page of its own.

Names are not believed: a picture is what begins as one, of a kind that runs no script; all else is text in UTF-8 or is not shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import BinaryIO

TEXT_BYTES = 64 * 1024
MOST_IMAGE_BYTES = 20 << 20
_IMAGES = ((b"\x89PNG\r\n\x1a\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF87a", "image/gif"), (b"GIF89a", "image/gif"))


@dataclass(frozen=True)
class Preview:
    """A file. `text` is its beginning, None where it is not text; `image` its type, "" where it is none that can be shown."""

    size_bytes: int
    text: str | None
    whole: bool
    image: str


def preview(file: BinaryIO, size_bytes: int) -> Preview:
    """Of a file that is read from its start."""
    head = file.read(TEXT_BYTES)
    image = picture(head) if size_bytes <= MOST_IMAGE_BYTES else ""
    whole = size_bytes <= len(head)
    return Preview(size_bytes, None if image else _text(head, whole=whole), whole, image)


def picture(head: bytes) -> str:
    """The type of the picture that begins like that; "" where it is none."""
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for magic, kind in _IMAGES if head.startswith(magic)), "")


def _text(head: bytes, *, whole: bool) -> str | None:
    """None for what is not text in UTF-8; a character cut in two at the end does not count."""
    if b"\0" in head:
        return None
    try:
        return head.decode()
    except UnicodeDecodeError as error:
        return head[: error.start].decode() if not whole and error.start > len(head) - 4 else None
