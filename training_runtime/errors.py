"""Every error that the runtime raises on purpose. The class docstring is the default message, so the tree reads as a manual."""


class RuntimeFailure(Exception):
    """The training runtime could not go on."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or "").strip())


class ProtocolError(RuntimeFailure):
    """A message between two processes of the runtime is malformed."""


class UnknownMessage(ProtocolError):
    """A message is of a kind that is not known here; a newer version may have sent it, and whoever gets it goes on without it."""

    def __init__(self, message: str, *, kind: str = "") -> None:
        super().__init__(message)
        self.kind = kind


class JournalError(RuntimeFailure):
    """A journal line is malformed."""


class HostUnavailable(RuntimeFailure):
    """The node host does not answer on its socket; is `manage.py studio` running on this machine?"""


class UserError(RuntimeFailure):
    """The user's script asks for something that cannot be done; the message says what to change."""


class NoRoom(RuntimeFailure):
    """The disk is full: the run waits and goes on by itself, from its last checkpoint, when there is room."""


class PullFailed(RuntimeFailure):
    """A new worker asked for the state of the training EDT_PULL_FAILED_LIMITS times and did not get it."""


class HostBusy(RuntimeFailure):
    """Another node host already serves this node on this machine."""


class SandboxRefused(RuntimeFailure):
    """User code may not run here: the sandbox that the settings ask for cannot be had."""


class RootlessUnavailable(RuntimeFailure):
    """Runs cannot have users of their own without root here, and EDT_ROOTLESS asks for that."""


class ExportFailed(RuntimeFailure):
    """The final model could not be exported in ONNX format; the training itself is not touched."""
