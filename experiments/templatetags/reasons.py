"""Why a run has the slots that it has, as its page says it: other runs that the sentence names are links."""

from __future__ import annotations

import re
from collections.abc import Mapping

from django import template
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from experiments.templatetags.studio import isolated

register = template.Library()

AFTER = r"(?=$|[,;:.]| \(priority | and | ends)"  # a name that goes on otherwise is another one (training_runtime/scheduling/reasons.py)


@register.filter
def with_links(text: str, runs: Mapping[str, int]) -> SafeString:
    """`runs`: the number of each, by what a sentence calls it (`run_pages.companions`), asked for where one may be named."""
    known = [name for name in sorted(runs, key=len, reverse=True) if name in text] if "'s run " in text else []
    if not known:
        return isolated(text)
    parts = re.split(f"({'|'.join(map(re.escape, known))}){AFTER}", text)
    return format_html_join("", "{}", ((_link(part, runs[part]) if place % 2 else isolated(part),) for place, part in enumerate(parts)))


def _link(words: str, number: int) -> SafeString:
    return format_html('<a href="{}"><bdi>{}</bdi></a>', reverse("run", args=[number]), words)
