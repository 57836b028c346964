"""A run's state (`states`, the one way it changes), what it was told as rows, and what says that two runs came out the same."""
