"""The name under which older scripts import this."""
