"""Logs that pages follow: what a log gets is sent to the page that looks at it, from the byte where the page stands.

Nothing announces that a log has grown (it is a plain file, maybe of another machine), so each followed log is looked at a few times a
second while anybody looks at it, and less often when it is quiet. Knows no socket: it is handed what sends and what asks for permission.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from channels.db import database_sync_to_async

from experiments.files import runfiles
from experiments.models import TrainingRun

log = logging.getLogger(__name__)

LOOK_S, QUIET_LOOK_S = 0.15, 1.0
QUIET_AFTER_S = 30.0
MOST_BYTES = 48 * 1024  # in one message
_READERS = ThreadPoolExecutor(max_workers=2, thread_name_prefix="logs")  # not the threads that downloads have
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


@dataclass(eq=False)
class Follower:
    """A page that follows logs of a run: where it stands in each, what sends to it, and what says whether it still may be sent to."""

    ends: dict[str, int]
    say: Callable[[Mapping[str, object]], Awaitable[None]]
    still: Callable[[], Awaitable[bool]]
    sending: asyncio.Task[None] | None = None

    def is_free(self) -> bool:
        """A page that is slow to take what it is sent is left out until it has."""
        return self.sending is None or self.sending.done()


class Tails:
    """The runs whose logs are followed from this event loop. However many pages follow a run, its logs are looked at by one task, and each
    stretch of them is read once."""

    def __init__(self) -> None:
        self._followers: dict[int, set[Follower]] = {}
        self._woken: dict[int, asyncio.Event] = {}
        self._looking: set[asyncio.Task[None]] = set()

    def follow(self, run: int, follower: Follower) -> None:
        """Send what the logs have and get beyond `follower.ends`, to which more may be added (then `wake`).

        Each message says which bytes it is: a page that misses some fetches them. One without text and with a smaller `size` says that the
        log was cut, and goes on from there.
        """
        if run not in self._followers:
            self._followers[run], self._woken[run] = set(), asyncio.Event()
            task = asyncio.create_task(self._look(run))
            self._looking.add(task)
            task.add_done_callback(self._looking.discard)
        self._followers[run].add(follower)
        self.wake(run)

    def wake(self, run: int) -> None:
        if run in self._woken:
            self._woken[run].set()

    def leave(self, run: int, follower: Follower) -> None:
        self._followers.get(run, set()).discard(follower)
        if follower.sending and follower.sending is not asyncio.current_task():
            follower.sending.cancel()
        self.wake(run)

    def has(self, run: int, follower: Follower) -> bool:
        return follower in self._followers.get(run, ())

    async def _look(self, run: int) -> None:
        """Until nobody follows the run any more."""
        loop, quiet_s, woken = asyncio.get_running_loop(), 0.0, self._woken[run]
        source: TrainingRun | None = None
        while self._followers[run]:
            woken.clear()
            free = [each for each in self._followers[run] if each.is_free()]
            asked = {(name, end) for each in free for name, end in each.ends.items()}
            try:
                source = source or await database_sync_to_async(TrainingRun.objects.filter(pk=run).first)()
                news = await loop.run_in_executor(_READERS, _news, source, asked) if source else {}
            except Exception:  # a loop's edge: what is wrong with this file now must not end the following of it
                log.exception("The logs of run %s cannot be read.", run)
                news = {}
            for each in free:
                mine = [(name, end, *news[name, end]) for name, end in each.ends.items() if (name, end) in news]
                if mine and self.has(run, each):
                    each.sending = asyncio.create_task(self._send(run, each, mine))
            pause = LOOK_S if quiet_s < QUIET_AFTER_S else QUIET_LOOK_S
            quiet_s = 0.0 if news else quiet_s + pause
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(woken.wait(), pause)
        del self._followers[run], self._woken[run]

    async def _send(self, run: int, follower: Follower, news: list[tuple[str, int, bytes, int]]) -> None:
        try:
            if not await follower.still():
                self.leave(run, follower)
                return
            for name, known, data, size in news:
                begin = min(known, size)
                end = follower.ends[name] = begin + len(data)
                text = data.decode(errors="replace").replace("\0", "\N{REPLACEMENT CHARACTER}")
                await follower.say({"type": "log", "topic": f"log-{run}-{name}", "begin": begin, "end": end, "size": size, "text": text})
                if end < size:
                    self.wake(run)
        except Exception:  # a task's edge: the page has gone, or the database that says what it may read
            log.info("A page that follows run %s is left.", run, exc_info=True)
            self.leave(run, follower)


def _news(run: TrainingRun, asked: Iterable[tuple[str, int]]) -> dict[tuple[str, int], tuple[bytes, int]]:
    """(new bytes, size) of each log, by (name, where it is known to), that has some, or none and is shorter: its middle was left out."""
    found = {}
    for name, end in asked:
        data, size = runfiles.read(run, f"log/{name}/console.log", begin=end, limit_bytes=MOST_BYTES)
        if (whole := whole_characters(data)) or 0 < size < end:
            found[name, end] = whole, size
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
