"""`manage.py doctor`: looks at a studio, changes nothing, and says what an administrator should know and do.

Each part reads its facts and decides by itself: settings, the folder, the database, the files that the database names, the cluster.
"""
