"""The way from a fork to a loop of the script's. Workers are forked somewhere below the script's `for`; one that is to run the body of that
loop has to go back up to it, through everything that was going on in the process it was forked from, of which nothing is its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from training_runtime.elastic.processes.worker_context import WorkerContext

_kept: list[BaseException] = []
_conclude: Callable[[BaseException | None], None] | None = None


class Becomes(BaseException):
    """This process is a worker now, with this `context`. `lengths` of both datasets in samples."""

    def __init__(self, context: WorkerContext, lengths: tuple[int, int]) -> None:
        super().__init__("a worker goes on in its loop")
        self.context, self.lengths = context, lengths


@contextmanager
def at_the_end(close: Callable[[], None]) -> Iterator[None]:
    """`close` is called however what is inside ends, but not in a worker that leaves it for its loop: there it is not its own to close."""
    try:
        yield
    except Becomes as worker:
        _kept.append(worker)  # and with it all frames on its way: what they hold must not be closed either
        raise
    except BaseException:
        close()
        raise
    else:
        close()


def concluded_by(conclude: Callable[[BaseException | None], None]) -> None:
    """This process is a worker, and the script must not come to its end in it: `conclude` is called with what ended it, and ends the
    process."""
    global _conclude
    _conclude = conclude


def conclude(error: BaseException | None) -> None:
    """The script has come to its end, by `error` or by itself. In a worker this ends the process; elsewhere nothing happens."""
    if _conclude is not None:
        _conclude(error)
