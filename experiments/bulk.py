"""Many rows of one table written at once, each with values of its own. Decides nothing and says nothing of it."""

from __future__ import annotations

from collections.abc import Sequence

from django.db import connection
from django.db.models import Model


def update(rows: Sequence[Model], fields: Sequence[str]) -> None:
    """Store these fields of the rows. Inside a transaction of the caller.

    One short statement prepared once; Django's `bulk_update` builds one as long as all rows, which takes a hundred times as long.
    """
    if not rows:
        return
    meta, quote = rows[0]._meta, connection.ops.quote_name
    known = [meta.get_field(name) for name in fields]
    key = meta.pk
    assert key is not None, "a stored row has a key"
    columns = ", ".join(f"{quote(field.column)} = %s" for field in known)
    values = [
        [*(field.get_db_prep_save(getattr(row, field.attname), connection) for field in known), key.get_db_prep_save(row.pk, connection)]
        for row in rows
    ]
    with connection.cursor() as cursor:
        cursor.executemany(f"UPDATE {quote(meta.db_table)} SET {columns} WHERE {quote(key.column)} = %s", values)  # noqa: S608  (names of ours)
