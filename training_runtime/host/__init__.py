"""The node host: one quiet process per machine, parent of every training process there. No Django, no secrets, standard library only.

`reconcile` decides, `supervisor` acts, `runs` begins and ends drivers, `spares` has the warm process, which holds torch in memory and forks
them, `sandbox` confines what is forked, `client` is what the studio calls.
"""
