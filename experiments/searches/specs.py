"""What is stored of a search, as facts: what the studio's own pages, API and command line ask for, or what WMLA's clients do. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.searches import studio_spec, wmla_spec
from experiments.searches.wishes import Wishes


def parse(spec: Mapping[str, Any]) -> Wishes:
    """Raises WrongWishes."""
    return studio_spec.parse(spec) if "method" in spec else wmla_spec.parse(spec)
