"""How the values of compared runs are written in their table. No queries here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

from experiments.selectors.compare import Row
from experiments.templatetags.studio import spell, thousands, value, words

register = template.Library()

_WRITTEN: dict[str, Callable[[Any], str]] = {"metric": value, "duration": spell, "number": thousands}


@register.filter
def compared(found: object, row: Row) -> str:
    """One run's value as its row's kind is written; of a command, a line breaks between its words alone."""
    if found is None or found == "":
        return "–"
    if row.kind in _WRITTEN:
        return _WRITTEN[row.kind](found)
    text: str | SafeString = words(str(found)) if row.name == "Execution command" else str(found)
    return format_html('<bdi class="wrap">{}</bdi>', text)
