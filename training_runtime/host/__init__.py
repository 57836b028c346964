"""The node host: one quiet process per machine, parent of every training process there. No Django, no secrets, standard library only.

`reconcile` decides, `supervisor` acts, `warm` holds torch in memory and forks drivers, `launch` is what happens in the forked child before
user code, `sandbox` boxes it in, `client` is what the studio calls.
"""
