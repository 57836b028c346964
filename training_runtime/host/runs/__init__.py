"""A run on this machine: how it begins (`begin`, `launch`), what its driver is told (`talk`), and how it ends (`ending`)."""
