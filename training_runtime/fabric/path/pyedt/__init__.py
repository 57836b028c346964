"""The package name of later releases; see training_runtime.fabric."""
