"""What a GPU's driver says of its health, and whether that takes its slots out of service: facts in, reason out. Pure.

Of Xids those count that NVIDIA's "Xid Errors" puts down to the device, its memory or its links: 13, 31, 43 and 45, say, come from programs,
and a script must not be able to take a slot out by itself.
"""

from __future__ import annotations

from dataclasses import dataclass

HARDWARE_XIDS = {
    48: "uncorrectable ECC error",
    64: "a row could not be remapped",
    74: "NVLink error",
    79: "the GPU has fallen off the bus",
    92: "high rate of single-bit ECC errors",
    95: "uncontained ECC error",
    119: "the GPU's system processor does not answer",
    120: "error of the GPU's system processor",
    140: "unrecovered ECC error",
}


@dataclass(frozen=True)
class GpuHealth:
    """Of the GPU of this number: `uncorrected_errors` of its memory since its driver was loaded, None where it does not count them; the
    last `xid` of HARDWARE_XIDS that its host heard of, `xid_age_s` seconds ago; 0: none."""

    gpu: int
    uncorrected_errors: int | None = None
    xid: int = 0
    xid_age_s: float = 0.0


def fault(health: GpuHealth, *, accepted_errors: int, trusted_for_s: float | None) -> str:
    """Why nothing should run there; empty where nothing is known. What an administrator has put the slot back after counts no more:
    `accepted_errors` by then, and Xids older than `trusted_for_s` (None: it was never out)."""
    if health.xid in HARDWARE_XIDS and (trusted_for_s is None or health.xid_age_s < trusted_for_s):
        return f"The driver of GPU {health.gpu} reports Xid {health.xid}: {HARDWARE_XIDS[health.xid]}."
    if (health.uncorrected_errors or 0) > accepted_errors:
        count = health.uncorrected_errors
        return f"The driver of GPU {health.gpu} counts {count} uncorrected ECC error{'' if count == 1 else 's'} of its memory."
    return ""
