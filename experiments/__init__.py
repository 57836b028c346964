"""The studio's one Django app: what is stored, who may, what is shown."""
