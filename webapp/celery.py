"""The Celery application. JSON only, results ignored, short tasks; experiments.ops.beat is the safety net behind the events."""

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webapp.settings")

app = Celery("edt")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(["experiments"])
