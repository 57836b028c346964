"""The command `edt`.

main      its verbs, and what goes wrong as one sentence
login     who one is
folder    run a folder of code, and many of it
follow    a run's log, states and metrics as they come
look      what there is: runs, logs, metrics, files, compared
act       what is done to runs
cluster   slots and machines
what_if   when runs end, and would end; last week under another policy
output    how things are printed, or as JSON
"""
