"""The processes of a run: how workers are forked (`fork_server`) or started anew, what they inherit, and how they learn of each other's
death."""
