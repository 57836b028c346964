"""How a training ends: completed, stopped, or with the first fatal error."""

from __future__ import annotations

from typing import Literal, NoReturn

from training_runtime import journal
from training_runtime.elastic.driver.recorder import Recorder
from training_runtime.errors import NoRoom, RuntimeFailure

Outcome = Literal["completed", "stopped"]


class TrainingFailed(RuntimeFailure):
    """The training cannot go on; the journal has the traceback."""


class Failure:
    """The run cannot go on. The first error counts; what follows is its consequence."""

    def __init__(self) -> None:
        self._first: tuple[str, str, str] | None = None
        self._no_room = False

    def __bool__(self) -> bool:
        return self._first is not None

    def add(self, where: str, traceback: str, message: str = "", *, advice: str = "", no_room: bool = False) -> None:
        """Without a `message` it is the traceback's last line and the `advice`. `no_room`: it was for want of room on the disk."""
        if self._first is None:
            last = traceback.strip().splitlines()[-1] if traceback.strip() else "unknown error"
            last = last.removeprefix(f"{RuntimeFailure.__module__}.")  # our own word on the script
            self._first, self._no_room = (where, message or f"{last}{advice}", traceback), no_room

    def tell(self, recorder: Recorder) -> NoReturn:
        """Record it in the journal and raise TrainingFailed, or NoRoom if the run is to be started again when the disk has room."""
        assert self._first is not None
        where, message, text = self._first
        if self._no_room:
            recorder.write(journal.Warned(f"The {where} had no room on the disk: {message}. {NoRoom()}"))
            raise NoRoom(text)
        recorder.write(journal.Failed(message, text, where))
        raise TrainingFailed(message if not text else f"{message} ({where})\n{text}")
