"""MLflow's REST interface, as far as its client needs it to log a run: inside a run it is answered by the run's own driver."""
