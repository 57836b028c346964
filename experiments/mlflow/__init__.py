"""MLflow's REST interface to what the studio has, for its client on people's own machines. (Inside a run its driver answers instead.)"""
