"""What a training definition says: its script's arguments, its launcher and trainer, its variables, and code from git."""
