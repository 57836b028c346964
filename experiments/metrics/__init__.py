"""Journals of runs into the database (`ingest`)."""
