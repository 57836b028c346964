"""The object store behind the studio's files (EDT_STORE, docs/decisions/object-store.md): what lies in EDT_HOME is copied there, and comes
back where it is missing here.

    objects     objects by name, in whatever store the URL is of
    manifest    pure: what a thing in the store consists of, and how its files become objects
    copies      the only writer of the rows: what is copied, what is asked back, what went wrong
    things      which things there are, where they lie here, and which of them wait
    copying     one thing up
    bringing    one thing back
    turns       what is due, in the order of its worth, for a bounded time
    checking    whether what the rows say is so
"""
