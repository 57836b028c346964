"""Forms that change what is stored: what somebody else has saved since the page was opened is not undone by them.

Beside each field the page carries, hidden, what it showed (Django's `show_hidden_initial`). So of three values it is known who changed
what: a field that was left as it was shown keeps what is stored by now; one that both have changed is refused once, with what the other
wrote."""

from __future__ import annotations

import contextlib
from copy import copy
from typing import Any

from django import forms

from experiments.forms.wording import Form

QUOTED = 200  # characters of what somebody else has saved


class EditForm(Form):
    """`initial` is what is stored now, also where something was sent. Who does not say what was shown (a script) is believed."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.remember()

    def remember(self) -> None:
        """To be called again by a form that has more fields by then."""
        for field in self.fields.values():
            field.show_hidden_initial = not (field.disabled or field.widget.is_hidden)

    def clean(self) -> dict[str, Any]:
        values: dict[str, Any] = super().clean() or self.cleaned_data
        for name in list(values):
            if self.fields[name].show_hidden_initial and self[name].html_initial_name in self.data:
                self._merge(self[name], values)
        return values

    def _merge(self, bound: forms.BoundField, values: dict[str, Any]) -> None:
        field = bound.field
        was = field.hidden_widget().value_from_datadict(self.data, self.files, bound.html_initial_name)
        stored, shown, sent = (_compared(field, value) for value in (bound.initial, was, bound.data))
        if stored in (shown, sent):
            return
        if sent == shown:
            values[bound.name] = field.clean(field.prepare_value(bound.initial))
            return
        now = field.prepare_value(bound.initial)
        told: Any = copy(self.data)
        told[bound.html_initial_name] = "" if now is None else str(now)
        self.data = told
        self.add_error(bound.name, f"Somebody else has saved {_quoted(now)} here since you opened this page. Save again to replace it.")


def _compared(field: forms.Field, value: Any) -> Any:
    """A value of the database, or one that was sent, in the same form."""
    with contextlib.suppress(forms.ValidationError):
        value = field.to_python(field.prepare_value(value))
    if value in field.empty_values:
        return None
    return value.replace("\r\n", "\n").strip() if isinstance(value, str) else value


def _quoted(value: Any) -> str:
    said = " ".join(str("" if value is None else value).split())
    return f"“{said[:QUOTED]}{'…' if len(said) > QUOTED else ''}”" if said else "an empty text"
