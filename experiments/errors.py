"""What the domain refuses, in words for whoever asked. Services raise it and each edge says it in its own way: a form beside its fields, a
page beside the button, the API and IBM's routes as an answer, a command as its last line. It knows neither Django nor HTTP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


class DomainError(Exception):
    """A rule of the domain stands against what was asked.

    messages: sentences that say what is wrong and what to do.
    fields: the same by field of what was asked, in the order in which they are said; empty where they are about the whole of it.
    """

    def __init__(self, says: str | Sequence[str] | Mapping[str, str | Sequence[str]]) -> None:
        super().__init__(says)
        self.fields = {field: _sentences(of) for field, of in says.items()} if isinstance(says, Mapping) else {}
        self.messages = [each for of in self.fields.values() for each in of] if isinstance(says, Mapping) else _sentences(says)

    def by_field(self, whole: str) -> dict[str, list[str]]:
        """The sentences by field; where they are about the whole, under the name `whole`."""
        return self.fields or {whole: self.messages}

    def __str__(self) -> str:
        return " ".join(self.messages)


def _sentences(says: str | Sequence[str]) -> list[str]:
    return [says] if isinstance(says, str) else list(says)
