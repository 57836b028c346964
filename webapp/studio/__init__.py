"""The supervisor behind `manage.py studio` and `manage.py demo`: it checks, prepares, starts, watches and stops all processes of one
machine.

`checks` refuses what cannot work, `prepare` brings the database and the static files up to date, `broker` finds a Valkey, `programs` says
what is run, `processes` runs one, `supervisor` watches them all, `log` shows what they write. No domain: it knows processes, not
experiments.
"""
