"""The Celery application. JSON only, results ignored, short tasks; experiments.ops.beat is the safety net behind the events."""

import os

# The supervisor names its workers itself (webapp.studio.forked). Celery looks at this when it is imported.
os.environ.setdefault("NOSETPS", "1")

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webapp.settings")
# Django's checks import every page and the whole API: half of a worker's start, and memory that no task needs. `manage.py check` is for who
# changes the code, and a test.
os.environ.setdefault("CELERY_SKIP_CHECKS", "1")

app = Celery("edt")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(["experiments"])
