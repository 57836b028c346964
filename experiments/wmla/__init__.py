"""The REST interface of IBM's WMLA, spoken by our own code, so that notebooks, scripts and command lines written for it run unchanged.

Both of its generations at once: they differ in addresses and in how one logs on, not in what is meant. What arrives here becomes what the
pages make too, by the same services: a training definition, an experiment, a run. See docs/rest.md for the addresses.
"""
