"""What a script logs or prints of its own, as lines of its run's journal: `logged` follows all of it."""
