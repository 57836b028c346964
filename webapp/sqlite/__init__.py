"""Django's database of SQLite with a queue for those who write (`base`)."""
