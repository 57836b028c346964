"""What keeps the studio's processes going: the installation's key, the clock, loops and their pulse."""
