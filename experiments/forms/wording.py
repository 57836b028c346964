"""Forms refuse numbers and lengths in the studio's words, which say what is possible, in place of Django's "Ensure this value ...".

What a field says of its own (`error_messages`) stays, and so does what Django says well enough."""

from __future__ import annotations

from django import forms

NUMBERS = (forms.IntegerField, forms.FloatField, forms.DecimalField)


class Form(forms.Form):
    """The one that all forms are made of."""

    def full_clean(self) -> None:
        for field in self.fields.values():
            for code, words in _words(field).items():
                if field.error_messages.get(code) in (None, _usual(field).get(code)):
                    field.error_messages[code] = words
        super().full_clean()

    def problems(self) -> str:
        """All that is wrong with what was sent, where that is not said beside the fields: each sentence names its field."""
        found = [(name, message) for name, messages in self.errors.items() for message in messages]
        return " ".join(f"{self[name].label}: {message}" if name in self.fields else str(message) for name, message in found)


def _words(field: forms.Field) -> dict[str, str]:
    if isinstance(field, NUMBERS):
        wanted = f"Give {_possible(field)}."
        return {"invalid": wanted, "min_value": wanted, "max_value": wanted}
    if isinstance(field, forms.CharField):
        return {"max_length": "This has %(show_value)s characters: use at most %(limit_value)s."}
    return {}


def _possible(field: forms.IntegerField | forms.FloatField | forms.DecimalField) -> str:
    """ "a whole number from 1 to 4096"."""
    kind = "a number" if isinstance(field, forms.FloatField | forms.DecimalField) else "a whole number"
    least, most = (None if each is None else f"{each:.10g}" for each in (field.min_value, field.max_value))
    if least is not None and most is not None:
        return f"{kind} from {least} to {most}"
    if least is not None:
        return f"{kind} of at least {least}"
    return kind if most is None else f"{kind} of at most {most}"


def _usual(field: forms.Field) -> dict[str, object]:
    """What Django says where a field says nothing of its own."""
    found: dict[str, object] = {}
    for each in reversed(type(field).__mro__):
        found |= getattr(each, "default_error_messages", {})
    return found
