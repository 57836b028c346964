"""The journal of a run that has secrets: what its script has said is written without them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from training_runtime import journal, journal_writer
from training_runtime.masking import Mask


@dataclass
class MaskedWriter(journal_writer.Writer):
    """Without what `mask` hides."""

    mask: Mask = dataclasses.field(default_factory=lambda: Mask(()))

    def write(self, event: journal.Event, *, t: float | None = None) -> None:
        super().write(masked(event, self.mask), t=t)


def masked(event: journal.Event, mask: Mask) -> journal.Event:
    """Its words masked where they are a script's; all others are ours."""
    if isinstance(event, journal.Warned):
        return journal.Warned(mask.text(event.message))
    if isinstance(event, journal.Failed):
        return journal.Failed(mask.text(event.message), mask.text(event.traceback), event.where)
    if isinstance(event, journal.Exactness):
        return dataclasses.replace(event, reasons=tuple(map(mask.text, event.reasons)))
    if isinstance(event, journal.Noted):
        parameters, tags = ({mask.text(name): mask.text(text) for name, text in said.items()} for said in (event.parameters, event.tags))
        return journal.Noted(parameters, tags, tuple(map(mask.text, event.dropped)))
    if isinstance(event, journal.Setup):
        return dataclasses.replace(event, arguments={mask.text(name): mask.text(text) for name, text in event.arguments.items()})
    return event
