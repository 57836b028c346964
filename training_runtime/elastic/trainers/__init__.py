"""Trainers of other libraries that a run goes on with when its processes are started again: Transformers', Lightning's, Keras' and
Ultralytics', in scripts that say nothing of it.

`finder` changes the libraries as they are imported; `of_transformers`, `of_lightning`, `of_keras` and `of_ultralytics` say what is done
then; `interruption` agrees with the other workers, by `meeting`, on the step at which all stop; `trainings` keeps what each training of the
run has saved, by its `identity`; `recording` keeps what is logged, and `reporting` says how far it is. Trainers are imported by none of
them. Of Lightning `lightning_batches` and `lightning_places` keep what its checkpoints have not. Keras leaves more to do: `keras_fit`
follows one fit, `keras_data` its way through the data, by `generators`, and `keras_state` is what is saved, by `plain`.
"""
