"""Processes that are ready before a run needs them: the warm one that all are forked from, and spares that have imported a run's
packages."""
