"""The node agent's ear: a thread of the node's Celery worker that listens to the node host and passes on what it hears. Decides nothing.

It writes through fleet only, and sends tasks for journals that grew. Everything it does is also done by beat, later: it may die at any time.
"""

from __future__ import annotations
