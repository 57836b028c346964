"""One child of the fork server: locks itself in, reads one request, does one job, answers with one line, and ends. What is told of a job
that fails is what happened, in a word; sentences are made by who asked."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from experiments.boxed import jobs, wire
from experiments.boxed.wire import Order
from training_runtime.host.sandbox import file_box
from training_runtime.host.sandbox.file_box import Walls

_CHUNK = 1 << 16


@dataclass(frozen=True)
class Origin:
    """What is the same for all children of a fork server: itself, what holds around them, what they go on reading, and the rules of
    Landlock that say so (a descriptor), where it holds."""

    server: int
    walls: Walls
    libraries: tuple[str, ...]
    ruleset: int | None


def become(order: Order, origin: Origin, *, channel: int, files: Sequence[int]) -> NoReturn:
    """In the forked process. Whatever happens, it ends here."""
    try:
        ruleset = origin.ruleset
        _close_others({0, 1, 2, channel, *files, *(() if ruleset is None else (ruleset,))})
        if order.folder:
            folder, *files = files
            os.fchdir(folder)
            os.close(folder)
            if ruleset is not None:  # not that of the others, which it would be added to
                os.close(ruleset)
                ruleset = file_box.rules(origin.libraries, folder=order.folder)
        file_box.enter(origin.walls, order.limits, ruleset=ruleset, parent=origin.server)
    except BaseException as error:
        _write(channel, _error_line(error))
        os._exit(1)
    try:
        _write(channel, _answer(channel, files))
    finally:
        os._exit(0)


def _answer(channel: int, files: Sequence[int]) -> bytes:
    failed: dict[str, object]
    try:
        asked = json.loads(_line(channel))
        return wire.line({"answer": jobs.do(asked["job"], files, asked["said"])})
    except MemoryError:
        failed = {"failed": "memory"}
    except RecursionError:
        failed = {"failed": "depth"}
    except OSError as error:
        failed = {"failed": "system", "number": error.errno or 0}
    except Exception as error:
        return _error_line(error)
    return wire.line(failed)  # here what the job held in memory is free again


def _error_line(error: BaseException) -> bytes:
    return wire.line({"failed": "error", "said": f"{type(error).__name__}: {error}"[:500]})


def _line(channel: int) -> bytes:
    """Up to the end of the first line. (read and not recv, here and below: the kernel refuses what belongs to sockets.)"""
    pieces: list[bytes] = []
    while not pieces or not pieces[-1].endswith(b"\n"):
        piece = os.read(channel, _CHUNK)
        if not piece:
            os._exit(0)  # nobody asks any more
        pieces.append(piece)
    return b"".join(pieces)


def _write(channel: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(channel, left) :]


def _close_others(kept: set[int]) -> None:
    """The way to the fork server, and those to other callers."""
    begin = 0
    for each in (*sorted(kept), os.sysconf("SC_OPEN_MAX")):
        if begin < each:  # an empty range that ends at 0 would be everything
            os.closerange(begin, each)
        begin = each + 1
