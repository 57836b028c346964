"""Trainers of other libraries that a run goes on with when its processes are started again: Transformers' and Lightning's, in scripts
that say nothing of it.

`finder` changes the two libraries as they are imported; `of_transformers` and `of_lightning` say what is done then; `interruption` agrees
with the other workers on the step at which all stop; `trainings` keeps what each training of the run has saved. Trainers are imported by
none of them.
"""
