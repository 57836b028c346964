"""A machine that joins a studio with one command, `edt-node join`, and holds nothing of it but its own token.

`settings`     what the command line says
`link`         the process: keeps a node host running and one outbound stream to the studio open
`session`      one connection of that stream: what is wanted comes down, what was seen goes up
`messages`     what is said on the stream (typed, with a version handshake)
`places`       pure: names of folders as the stream has them, and where they are on either machine
`folders`      which run's folder here is whose, and what of it has arrived in the studio, written down
`mirror`       pure: what of a run's folder is to be sent next; `mirroring` sends it
`fetching`     gets code, data and the folders of runs from the studio
`files`        the studio's HTTP addresses for files, with pieces that are gone on with after a lost connection

It uses the standard library, `websockets` and the node host (`training_runtime.host`).
"""
