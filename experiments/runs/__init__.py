"""Runs: changes of state (`states`, the only way), arguments and tags as rows (`run_values`), digests, and the comparison of repeated
runs."""
