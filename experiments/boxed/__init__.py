"""Work on files that strangers wrote, in children of a process of their own: one child a file, boxed in, with limits, and gone after it.

pool        what the studio calls: `ask` a job of a child, get its answer or one error
wire        what goes between them
forkserver  the process that children are forked from, with all that they need in memory
child       one of them: locks itself in, does one job, answers, ends
jobs        what they can be asked
folders     what the studio calls to have an archive unpacked, and looks at then

and beside these what the jobs are made of. What knows Django is in no child.
"""
