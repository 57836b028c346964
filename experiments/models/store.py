"""What is known here of the object store behind the studio's files. Written by files.store.copies."""

from __future__ import annotations

from django.db import models


class StoreCopy(models.Model):
    """Of a thing whose files are copied to the object store: how far that is. `kind` and `key`: as a Tombstone calls its files."""

    kind = models.CharField(max_length=8)
    key = models.CharField(max_length=64)
    copied_at = models.DateTimeField(null=True)  # what is there was read here then
    size_bytes = models.BigIntegerField(default=0)
    again = models.BooleanField(default=False)  # it has changed since in a way that no date tells
    tidy_at = models.DateTimeField(null=True)  # when objects that no list names any more may go
    wanted_at = models.DateTimeField(null=True)  # it is missing here and was asked back
    absent = models.BooleanField(default=False)  # and is not there either
    remove_at = models.DateTimeField(null=True)  # it was deleted, and its trash here was emptied then: it goes there too
    tried_at = models.DateTimeField(null=True)  # when something of this failed last
    error = models.CharField(max_length=500, blank=True)  # and how; empty: it did not

    class Meta:
        constraints = [models.UniqueConstraint(fields=["kind", "key"], name="one_store_copy_per_thing")]
        indexes = [
            models.Index(fields=["remove_at"], condition=models.Q(remove_at__isnull=False), name="store_copies_to_remove"),
            models.Index(fields=["wanted_at"], condition=models.Q(wanted_at__isnull=False), name="store_copies_wanted"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.key}"


class StoreState(models.Model):
    """One row: which store it is, and how it was when last asked. `store`: the key in its own marker, to which the rows of StoreCopy
    belong."""

    store = models.CharField(max_length=36, blank=True)
    asked_at = models.DateTimeField(null=True)
    reached_at = models.DateTimeField(null=True)
    error = models.CharField(max_length=500, blank=True)
    away_since = models.DateTimeField(null=True)
