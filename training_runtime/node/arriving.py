"""A folder of the studio's on its way to this machine: what an interrupted attempt has brought stays, and the next one goes on from there.

What has come lies in `.arriving-NAME` beside the folder's place, and `.arriving-NAME.json` says of which content it is: a file that is
another one in the studio by now is brought anew from its first byte, never gone on with. Many small files come in one answer.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from training_runtime.node.files import Files, Listed

ARRIVING = ".arriving-"
SMALL_BYTES = 256 << 10
BATCH_BYTES = 8 << 20
BATCH_FILES = 500
BATCH_NAMES = 200_000  # characters of paths: the studio takes requests of about two megabytes
_BOOT = Path("/proc/sys/kernel/random/boot_id")
Say = Callable[[int, int], None]
Came = tuple[int, int, str]  # of a file: size, time of its last change, the studio's mark of its content


def arriving(target: Path) -> Path:
    """Where what comes of a folder lies until it is whole."""
    return target.with_name(f"{ARRIVING}{target.name}")


def bring(files: Files, room: str, name: str, beside: Path, *, say: Say, term: str = "", unchanging: bool = False) -> list[Listed]:
    """All files of the folder into `beside`, and the list of them. `say`: (bytes that have come, bytes in all), again and again.
    `unchanging`: its content never changes, so a file of the same size goes on without a mark. Raises Unreachable, NotOurs, OSError, and
    ValueError for a path that leads out of the folder."""
    found = files.tree(room, name, term=term)
    for each in found:
        _check(each.file.path)
    beside.mkdir(parents=True, exist_ok=True)
    note = _note_of(beside)
    came = {each.file.path: (each.file.size, each.file.mtime_ns, each.mark) for each in found}
    _forget_others(beside, _read(note), came, unchanging=unchanging)
    _write(note, came)
    missing = [each for each in found if _size(beside / each.file.path) != each.file.size]
    total = sum(each.file.size for each in found)
    done = total - sum(each.file.size for each in missing)
    say(done, total)
    for batch in batches(missing):
        if len(batch) == 1:
            files.fetch(room, name, batch[0], beside / batch[0].file.path, term=term)
        else:
            files.fetch_several(room, name, batch, beside, term=term)
        done += sum(each.file.size for each in batch)
        say(done, total)
    return found


def batches(missing: Iterable[Listed]) -> Iterator[list[Listed]]:
    """What is asked for in one request: small files together, any other alone. Pure. A studio that gives no marks knows no batches."""
    batch: list[Listed] = []
    size = names = 0
    for each in missing:
        if each.file.size > SMALL_BYTES or not each.mark:
            yield [each]
            continue
        if len(batch) == BATCH_FILES or size + each.file.size > BATCH_BYTES or names + len(each.file.path) > BATCH_NAMES:
            yield batch
            batch, size, names = [], 0, 0
        batch.append(each)
        size, names = size + each.file.size, names + len(each.file.path)
    if batch:
        yield batch


def forget(beside: Path) -> None:
    """What has come of the folder is of no use any more."""
    shutil.rmtree(beside, ignore_errors=True)
    _note_of(beside).unlink(missing_ok=True)


def forget_old(room: Path, before: float) -> None:
    """What nobody has gone on with since `before` (Unix seconds): the run went elsewhere."""
    for note in room.glob(f"{ARRIVING}*.json"):
        if note.stat().st_mtime < before:
            forget(note.with_suffix(""))


def _note_of(beside: Path) -> Path:
    return beside.with_name(f"{beside.name}.json")


def _read(note: Path) -> dict[str, Came]:
    """What the files there are the beginnings of; nothing of another start of the machine, before whose end they may not have reached the
    disk."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        raw = json.loads(note.read_text())
        if raw["boot"] == _boot():
            return {path: (int(size), int(mtime_ns), str(mark)) for path, (size, mtime_ns, mark) in raw["files"].items()}
    return {}


def _write(note: Path, came: Mapping[str, Came]) -> None:
    """Whole or not at all, and before the first byte of any file in it."""
    new = note.with_suffix(".new")
    new.write_text(json.dumps({"boot": _boot(), "files": came}))
    new.replace(note)


def _boot() -> str:
    with contextlib.suppress(OSError):
        return _BOOT.read_text().strip()
    return ""


def _forget_others(beside: Path, before: Mapping[str, Came], came: Mapping[str, Came], *, unchanging: bool) -> None:
    """Remove all but the beginnings of files that are in the studio what they were."""
    for folder, names, files in os.walk(beside):
        for name in files:
            path = Path(folder, name)
            key = path.relative_to(beside).as_posix()
            now = came.get(key)
            if now is None or before.get(key) != now or not (now[2] or unchanging) or _size(path) > now[0]:
                path.unlink()
        for name in names:  # a file may be where a folder was
            key = Path(folder, name).relative_to(beside).as_posix()
            if key in came:
                shutil.rmtree(Path(folder, name))


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except FileNotFoundError:
        return -1


def _check(path: str) -> None:
    if path.startswith("/") or any(part in ("", ".", "..") for part in path.split("/")) or "\0" in path:
        raise ValueError(f"the studio names a file {path!r}, which leads out of its folder")
