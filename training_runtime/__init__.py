"""The elastic training runtime: scheduler, node host, engine and the API that user scripts import.

Runs with torch and the standard library alone (Python 3.11 and newer); nothing in here imports Django, Celery or Redis.
"""
