"""The one clock that stored times are compared with: the database's. Machines whose own clocks differ agree on it.

Whoever writes a time that another machine will compare with its own, or compares one, asks here. Durations within one process are measured
with the monotonic clock instead.
"""

from __future__ import annotations

import datetime as dt

from django.db import connection
from django.utils import timezone


def now() -> dt.datetime:
    """The time by the database's clock. SQLite is a file: its clock is this machine's, and every process of the studio is on it."""
    if connection.vendor == "sqlite":
        return timezone.now()
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        found: dt.datetime = cursor.fetchone()[0]
    return found
