"""For how long a machine may use its slots without a word of the studio. One that cannot be heard is given up after a while, and its runs
go on elsewhere; so it stops by itself before that (self-fencing, as with the leases of Nomad or of Kubernetes' leader election)."""

from __future__ import annotations


class Lease:
    """Of `limit_s` seconds from each renewal; 0: for good. All times are monotonic."""

    def __init__(self, limit_s: float, *, now: float) -> None:
        self.limit_s = limit_s
        self._renewed_at = now

    def renew(self, now: float) -> None:
        self._renewed_at = now

    def problem(self, now: float) -> str:
        """Why nothing here may hold a slot; empty while the lease lasts."""
        if not self.limit_s or now < self._renewed_at + self.limit_s:
            return ""
        return f"the studio has not been heard of for {self.limit_s:g} s, so it may give these slots up for lost"

    def due(self, now: float) -> float | None:
        """When it ends, if that is still to come."""
        end = self._renewed_at + self.limit_s
        return end if self.limit_s and now < end else None
