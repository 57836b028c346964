"""The Django project: settings, ASGI, URLs, Celery. Wiring, no domain.

The first thing it does is to put a sound SQLite in place: versions before 3.51.3 can corrupt a WAL database when two connections
checkpoint at the same instant, and Debian 12 ships 3.40. `pysqlite3` brings its own.
"""

import sqlite3
import sys
import warnings

if sqlite3.sqlite_version_info < (3, 51, 3):
    try:
        import pysqlite3
    except ImportError:
        warnings.warn(
            f"SQLite {sqlite3.sqlite_version} can corrupt a database under load (before 3.51.3): "
            "install pysqlite3, or use PostgreSQL (DATABASE_URL).",
            RuntimeWarning,
            stacklevel=1,
        )
    else:
        sys.modules["sqlite3"] = pysqlite3
        sys.modules["sqlite3.dbapi2"] = pysqlite3.dbapi2

from webapp.celery import app as celery_app

__all__ = ["celery_app"]
