"""Forms that make something: sent twice as they are, they make it once; with something else in them, they make another."""

from __future__ import annotations

import hashlib
import json
import uuid
from typing import Any

from django import forms

from experiments.forms.wording import Form


class KeyInput(forms.HiddenInput):
    """The hidden key. A page that was open while the studio was upgraded still sends it as `request_id`."""

    def value_from_datadict(self, data: Any, files: Any, name: str) -> Any:
        before = name.removesuffix("idempotency_key") + "request_id"
        return super().value_from_datadict(data, files, name) or super().value_from_datadict(data, files, before)


class RequestForm(Form):
    """A form that makes something, once. `idempotency_key`, when it is clean, stands for what was sent: the hidden one and all beside
    it."""

    idempotency_key = forms.UUIDField(initial=uuid.uuid4, widget=KeyInput)

    def clean(self) -> dict[str, Any]:
        values: dict[str, Any] = super().clean() or self.cleaned_data
        if sent := values.get("idempotency_key"):
            values["idempotency_key"] = uuid.uuid5(sent, self._fingerprint())
        return values

    def _fingerprint(self) -> str:
        """Of everything that came with the form, in fields of it or not, files included; of a form in a form, of its part."""
        part = f"{self.prefix}-" if self.prefix else ""
        texts = {name: self.data.getlist(name) for name in self.data if name.startswith(part) and name != "csrfmiddlewaretoken"}  # type: ignore[attr-defined]
        files = {name: [_digest(file) for file in self.files.getlist(name)] for name in self.files if name.startswith(part)}
        return hashlib.sha256(json.dumps([texts, files], sort_keys=True).encode()).hexdigest()


def _digest(file: Any) -> str:
    file.seek(0)
    found = hashlib.file_digest(file, "sha256").hexdigest()
    file.seek(0)
    return f"{file.name} {found}"
