"""One run on several machines.

The driver's machine is the head node, number 0. On each other machine that takes part runs a remote agent: it has brought the user's script
up to train(), holds a segment of the same layout, and forks the workers there. Workers know nothing of it. A bridge on each side keeps the
two segments equal where it matters: before a worker's arrival at a barrier is passed on, whatever the other side will read past that
barrier. So the barriers, the tree of additions and the handing over of the state are those of one machine, and so are the bits.

`admission` is what a machine is told first; `payloads` says what a worker has made; `replication` what has to travel, and takes it in;
`travelling_files` go along where the machines share no folder; `wire` is the framing, `connection` what two machines send over it,
`bridge` the process at both ends; `remote agent` the other machine, `remote_nodes` the driver's view of all of them, `rendezvous` how they
find each other.
"""
