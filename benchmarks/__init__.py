"""Every figure in the documents comes from a command here: `python -m benchmarks.NAME`. Each ends in one line of JSON."""
