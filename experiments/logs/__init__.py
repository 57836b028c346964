"""Logs that pages follow and search."""
