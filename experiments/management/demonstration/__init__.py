"""The demonstration behind `make demo`: two people's jobs share the slots of one machine, and nobody stops.

`story` makes the people and their experiments with the services that the browser uses, `picture` draws what the database says, `verdict`
judges from the grants and the journals whether it really happened. The command runs them beside the studio.
"""
