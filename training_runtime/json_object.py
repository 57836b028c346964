"""An object of JSON, as processes of a run send it to one another and to their host. Who sends it is not trusted: code of packages may have
run there."""

from __future__ import annotations

import json
from typing import Any

from training_runtime.errors import ProtocolError
from training_runtime.records import words


def parse(raw: bytes) -> dict[str, Any]:
    """Raises ProtocolError for anything else."""
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ProtocolError(f"no object: {words(found)!r}")
    return found
