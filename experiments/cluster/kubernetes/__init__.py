"""Kubernetes as an engine that lends machines: each pilot is a Job of one pod, asked for of the cluster's API server.

provider    what the studio asks for: see `providers.Provider`
api         the API server over HTTP: where it is, who asks, and how it says no
manifests   pure: the Job and the Secret that a pilot is
options     pure: what an administrator may choose of them
leases      pure: what is made of Jobs and pods as the server has them
nodes       pure: what kinds of nodes there are to ask for
"""
