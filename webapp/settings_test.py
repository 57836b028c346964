"""Settings for tests: a home of its own in a temporary folder for each process, no static manifest, cheap password hashes."""

import atexit
import os
import shutil
import tempfile

if "EDT_HOME" not in os.environ:
    os.environ["EDT_HOME"] = tempfile.mkdtemp(prefix="edt-test-")
    atexit.register(shutil.rmtree, os.environ["EDT_HOME"], ignore_errors=True)

from webapp.settings import *

if DATABASES["default"]["ENGINE"] == "webapp.sqlite":
    DATABASES["default"]["TEST"] = {"NAME": str(EDT_HOME / "test.sqlite3")}  # a file: other processes must see it
CHANNEL_LAYERS = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}
CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
}
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
