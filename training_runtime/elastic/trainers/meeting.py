"""What the workers of a start agree on, by the store that they have met at: the first says it."""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Mapping
from typing import Any

PATIENCE = dt.timedelta(seconds=5)  # for the store
LONGEST = dt.timedelta(minutes=30)  # that workers may be apart, as for a process group of torch's


@functools.lru_cache(maxsize=1)
def store(address: str, port: str) -> Any:
    """RuntimeError, ValueError where there is none."""
    from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

    return PrefixStore("edt", TCPStore(address, int(port), is_master=False, timeout=PATIENCE))


def has_several(environment: Mapping[str, str]) -> bool:
    return int(environment.get("WORLD_SIZE") or 1) > 1


def store_of(environment: Mapping[str, str]) -> Any:
    """KeyError, RuntimeError, ValueError where there is none."""
    return store(environment["MASTER_ADDR"], environment["MASTER_PORT"])


def agreed(environment: Mapping[str, str], key: str, number: int) -> int:
    """The first worker's number, which the others wait for; one's own where there is no store."""
    if not has_several(environment):
        return number
    try:
        if environment.get("RANK") == "0":
            store_of(environment).set(key, str(number))
            return number
        store_of(environment).wait([key], LONGEST)
        return int(store_of(environment).get(key))
    except (KeyError, ValueError, RuntimeError):
        return number
