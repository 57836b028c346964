"""Logs that pages follow: what a log gets is sent to the page that looks at it, from the byte where the page stands.

Nothing announces that a log has grown (it is a plain file, maybe of another machine), so each followed log is looked at a few times a
second while somebody looks at it, and less often when it is quiet. Knows no socket: it is handed what sends and what asks for permission.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from asgiref.sync import sync_to_async
from channels.db import database_sync_to_async

from experiments import runfiles
from experiments.models import TrainingRun

LOOK_S, QUIET_LOOK_S = 0.15, 1.0
QUIET_AFTER_S = 30.0
MOST_BYTES = 48 * 1024  # in one message
_TOPIC = re.compile(r"log-(\d{1,18})-([A-Za-z0-9][A-Za-z0-9._-]{0,63})@(\d{1,18})")


@dataclass(frozen=True)
class LogTopic:
    """A log that a page follows from byte `offset` on: "log-7-worker-0@1234"."""

    run: int
    name: str
    offset: int


def parse(topic: str) -> LogTopic | None:
    """None for what is not such a topic."""
    found = _TOPIC.fullmatch(topic)
    return LogTopic(int(found[1]), found[2], int(found[3])) if found else None


async def follow(
    run: int, ends: dict[str, int], *, say: Callable[[Mapping[str, object]], Awaitable[None]], still: Callable[[], Awaitable[bool]]
) -> None:
    """Send what the logs of the run have and get beyond `ends`, until `still` says no. Logs may be added to `ends` meanwhile.

    Each message says which bytes it is: a page that misses some fetches them.
    """
    quiet_s = 0.0
    source = await database_sync_to_async(TrainingRun.objects.filter(pk=run).first)()
    while source is not None:
        news = await sync_to_async(_news, thread_sensitive=False)(source, dict(ends))
        if news and not await still():
            return
        for name, data, size in news:
            begin, end, quiet_s = ends[name], ends[name] + len(data), 0.0
            ends[name] = end
            text = data.decode(errors="replace").replace("\0", "\N{REPLACEMENT CHARACTER}")
            await say({"type": "log", "topic": f"log-{run}-{name}", "begin": begin, "end": end, "size": size, "text": text})
        if any(ends[name] < size for name, _, size in news):
            continue
        pause = LOOK_S if quiet_s < QUIET_AFTER_S else QUIET_LOOK_S
        quiet_s += pause
        await asyncio.sleep(pause)


def _news(run: TrainingRun, ends: Mapping[str, int]) -> list[tuple[str, bytes, int]]:
    """(name, new bytes, size) of each log that has some."""
    found = []
    for name, end in ends.items():
        data, size = runfiles.read(run, f"log/{name}/console.log", begin=end, limit_bytes=MOST_BYTES)
        if whole := whole_characters(data):
            found.append((name, whole, size))
    return found


def whole_characters(data: bytes) -> bytes:
    """Without the beginning of a character at the end, whose rest has not been written or read yet."""
    for back in range(1, min(4, len(data) + 1)):
        byte = data[-back]
        if byte >= 0xC0:  # the first byte of a character of 2, 3 or 4
            needs = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return data[:-back] if needs > back else data
        if byte < 0x80:
            break
    return data
