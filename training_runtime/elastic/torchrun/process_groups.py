"""Process groups that a script destroys stay until its process ends.

torch waits for the threads of gloo's as it frees one, and does so with the interpreter's lock where DistributedDataParallel is freed behind
it: a thread that wants that lock for a tensor of its last operation is waited for, and waits, for ever. A worker that had done all its work
was seen to hang so, in the last line of its script.
"""

from __future__ import annotations

from collections import deque
from functools import wraps
from typing import Any

import torch.distributed
from torch.distributed import distributed_c10d

_destroyed: deque[object] = deque(maxlen=64)  # those before have no thread that is at work any more


def keep_destroyed() -> None:
    """Before the script, once in a process."""
    destroy = distributed_c10d.destroy_process_group
    if hasattr(destroy, "__wrapped__"):
        return

    @wraps(destroy)
    def keeping(group: Any = None) -> None:
        _destroyed.extend(distributed_c10d._world.pg_map)
        destroy(group)

    for module in (torch.distributed, distributed_c10d):
        module.destroy_process_group = keeping  # type: ignore[attr-defined]
