"""A run on this machine: how it begins (`launcher`, `begin`, `launch`), what its driver is told (`talk`), and how it ends (`ending`)."""
