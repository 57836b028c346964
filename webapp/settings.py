"""Settings of the studio. Everything that a deployment may change is an environment variable starting with EDT_, or DATABASE_URL, or a
file that is named by one of these with _FILE at its end.

EDT_HOME holds all data (database, code, runs, keys); everything else has a working default: SQLite, an embedded Valkey on a Unix socket.
"""

import json
import sys
from importlib.util import find_spec
from pathlib import Path

import environ
from redis.backoff import NoBackoff
from redis.retry import Retry

from webapp.environment import Env
from webapp.home import allowed_hosts, broker_urls, folder, prepare, secret

env = Env()
BASE_DIR = Path(__file__).resolve().parent.parent
EDT_HOME = folder(env.str("EDT_HOME", default=""), project=BASE_DIR)
prepare(EDT_HOME)
EDT_DATA_ROOT = Path(env.str("EDT_DATA_ROOT", default="") or EDT_HOME / "data").resolve()
EDT_NODE_LEASE_S = env.float("EDT_NODE_LEASE_S", default=10.0)  # for which a machine that has joined may go on unheard
# What starts edt-node in an allocation of another engine, as a shell reads it, and below which folder there its files are.
EDT_PILOT_COMMAND = env.str("EDT_PILOT_COMMAND", default=f"{Path(sys.executable).parent / 'edt-node'} join")
EDT_PILOT_FOLDER = env.str("EDT_PILOT_FOLDER", default="/tmp")  # noqa: S108
EDT_RAY_ADDRESS = env.str("EDT_RAY_ADDRESS", default="").strip().rstrip("/")  # of Ray's dashboard, whose cluster lends machines
EDT_RAY_TOKEN = env.str("EDT_RAY_TOKEN", default="").strip()  # that Ray's own commands have in RAY_AUTH_TOKEN
# Kubernetes, whose cluster lends machines: its API server (empty: the studio's own cluster, where the studio is a pod), who asks, where
# pilots are, and what they are made of. EDT_KUBERNETES_POD: a file with what of its spec is otherwise, as JSON.
EDT_KUBERNETES_ADDRESS = env.str("EDT_KUBERNETES_ADDRESS", default="").strip().rstrip("/")
EDT_KUBERNETES_TOKEN = environ.Env().str("EDT_KUBERNETES_TOKEN", default="").strip()  # the file is read anew at each call
EDT_KUBERNETES_TOKEN_FILE = env.str("EDT_KUBERNETES_TOKEN_FILE", default="")
EDT_KUBERNETES_CA = env.str("EDT_KUBERNETES_CA", default="")
EDT_KUBERNETES_NAMESPACE = env.str("EDT_KUBERNETES_NAMESPACE", default="").strip()
EDT_KUBERNETES_IMAGE = env.str("EDT_KUBERNETES_IMAGE", default="").strip()
EDT_KUBERNETES_COMMAND = (
    env.str("EDT_KUBERNETES_COMMAND", default="").strip() or "edt-node join"
)  # of the image: one command, as a shell reads it
EDT_KUBERNETES_POD = env.str("EDT_KUBERNETES_POD", default="")
EDT_KUBERNETES_GPU = env.str("EDT_KUBERNETES_GPU", default="").strip() or "nvidia.com/gpu"  # the resource that counts GPUs
EDT_KUBERNETES_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"  # where a pod's own token, certificate and namespace are mounted
EDT_NODE = env.str("EDT_NODE", default="local")
EDT_MAX_UPLOAD_BYTES = env.int("EDT_MAX_UPLOAD_BYTES", default=2 << 30)
EDT_MAX_UNPACKED_BYTES = env.int("EDT_MAX_UNPACKED_BYTES", default=8 << 30)
EDT_MAX_UPLOAD_ENTRIES = env.int("EDT_MAX_UPLOAD_ENTRIES", default=20_000)
EDT_MAX_DATA_BYTES = env.int("EDT_MAX_DATA_BYTES", default=64 << 30)  # of a data asset, unpacked
EDT_MAX_DATA_ENTRIES = env.int("EDT_MAX_DATA_ENTRIES", default=500_000)
EDT_MAX_PROJECT_BYTES = env.int("EDT_MAX_PROJECT_BYTES", default=256 << 30)  # of the archive of a project that is imported

EDT_METRICS_TOKEN = env.str("EDT_METRICS_TOKEN", default="").strip()  # by which Prometheus reads /metrics; empty: nobody does
EDT_API_RATE = env.int("EDT_API_RATE", default=1200)  # requests a minute of one token
EDT_MAX_RUN_POINTS = env.int("EDT_MAX_RUN_POINTS", default=20_000_000)  # of all its curves together
EDT_MAX_JOURNAL_BYTES = env.int("EDT_MAX_JOURNAL_BYTES", default=8 << 30)
EDT_ENVIRONMENT_DAYS = env.float("EDT_ENVIRONMENT_DAYS", default=14.0)  # how long an environment that no run uses stays built
EDT_ENVIRONMENT_BYTES = env.int("EDT_ENVIRONMENT_BYTES", default=50 << 30)  # of all that are built on a machine; unused ones go above it
EDT_ENVIRONMENT_ADDRESSES = env.bool("EDT_ENVIRONMENT_ADDRESSES", default=False)  # requirements may name indexes and addresses
EDT_STORE = env.str("EDT_STORE", default="").strip().rstrip("/")  # URL of the object store that files are copied to; empty: none
EDT_STORE_MINUTES = env.float("EDT_STORE_MINUTES", default=30.0)  # between two copies of a run that trains
EDT_TRASH_DAYS = env.float("EDT_TRASH_DAYS", default=7.0)  # how long files of what was deleted are kept in the trash

EDT_SUSPENDED_PROCESS_S = env.float("EDT_SUSPENDED_PROCESS_S", default=600.0)  # a run without slots keeps its process in memory so long

# Single sign-on by OpenID Connect (docs/operations.md). EDT_OIDC_ALLOW: who gets an account by it;
# EDT_OIDC_ADMINS: groups whose members administer the cluster (none: that is said here alone).
EDT_OIDC_ISSUER = env.str("EDT_OIDC_ISSUER", default="").strip().rstrip("/")
EDT_OIDC_CLIENT_ID = env.str("EDT_OIDC_CLIENT_ID", default="").strip()
EDT_OIDC_CLIENT_SECRET = env.str("EDT_OIDC_CLIENT_SECRET", default="").strip()
EDT_OIDC_NAME = env.str("EDT_OIDC_NAME", default="").strip() or "single sign-on"  # on the log-in page
EDT_OIDC_SCOPES = env.str("EDT_OIDC_SCOPES", default="").strip() or "openid profile email"
EDT_OIDC_USERNAME_CLAIM = env.str("EDT_OIDC_USERNAME_CLAIM", default="").strip() or "preferred_username"
EDT_OIDC_GROUPS_CLAIM = env.str("EDT_OIDC_GROUPS_CLAIM", default="").strip() or "groups"
EDT_OIDC_ALLOW = env.list("EDT_OIDC_ALLOW", default=[])
EDT_OIDC_ADMINS = env.list("EDT_OIDC_ADMINS", default=[])

EDT_PUBLIC_URL = env.str("EDT_PUBLIC_URL", default="").rstrip("/")  # how people reach the studio, for links in e-mails and webhooks
EDT_WEBHOOK_ALLOW = env.list("EDT_WEBHOOK_ALLOW", default=[])  # networks and hosts that webhooks may reach beside the open internet
EDT_GIT_ALLOW = env.list("EDT_GIT_ALLOW", default=[])  # networks and hosts that code may be fetched from beside the open internet
EDT_GIT_FETCH_S = env.float("EDT_GIT_FETCH_S", default=60.0)  # how long that may take
EDT_EMAIL = bool(env.str("EDT_EMAIL_URL", default=""))
vars().update(env.mail("EDT_EMAIL_URL", default="dummymail://"))
EMAIL_TIMEOUT = 10
DEFAULT_FROM_EMAIL = env.str("EDT_EMAIL_FROM", default="EDT Studio <noreply@localhost>")

DEBUG = env.bool("EDT_DEBUG", default=False)
SECRET_KEY = secret(EDT_HOME, "secret_key")
ALLOWED_HOSTS = allowed_hosts(env.list("EDT_ALLOWED_HOSTS", default=[]))
CSRF_TRUSTED_ORIGINS = env.list("EDT_TRUSTED_ORIGINS", default=[])
# Addresses or networks of proxies whose X-Forwarded-For and X-Forwarded-Proto are believed. Nobody else's: training code reaches the port.
EDT_TRUSTED_PROXIES = env.list("EDT_TRUSTED_PROXIES", default=[])
CSRF_FAILURE_VIEW = "experiments.views.errors.csrf_failure"

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "channels",
    "django_htmx",
    "experiments",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "csp.middleware.CSPMiddleware",
    "webapp.static_files.StaticFiles",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "experiments.views.middleware.LoggedIn",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "experiments.views.errors.Explained",
]
ROOT_URLCONF = "webapp.urls"
ASGI_APPLICATION = "webapp.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "experiments.views.notifications.bell",
            ]
        },
    }
]

# SQLite: one writer at a time, so write transactions take the lock at their start (IMMEDIATE) and wait for it; never ATOMIC_REQUESTS.
SQLITE_OPTIONS = {
    "transaction_mode": "IMMEDIATE",
    "timeout": 20,
    "init_command": (
        "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA busy_timeout=20000; "
        "PRAGMA cache_size=-20000; PRAGMA mmap_size=134217728; PRAGMA journal_size_limit=67108864;"
    ),
}
# PostgreSQL: a client whose machine is gone, or that hangs in a transaction, keeps its locks until the server gives it up, and every plan
# takes the same one. So after 30 s without a word, as long as the watchdog waits here; and who asks a server that is gone knows in ten.
POSTGRESQL_OPTIONS = {
    "options": "-c idle_in_transaction_session_timeout=30s -c tcp_keepalives_idle=5 -c tcp_keepalives_interval=2 -c tcp_keepalives_count=3",
    "connect_timeout": 10,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
DATABASES = {"default": env.database("DATABASE_URL", default=f"sqlite:///{EDT_HOME / 'db.sqlite3'}")}
if DATABASES["default"]["ENGINE"].endswith("sqlite3"):
    DATABASES["default"] |= {"ENGINE": "webapp.sqlite", "OPTIONS": dict(SQLITE_OPTIONS)}
else:
    DATABASES["default"]["CONN_HEALTH_CHECKS"] = True
    DATABASES["default"]["OPTIONS"] = POSTGRESQL_OPTIONS | DATABASES["default"].get("OPTIONS", {})
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

EDT_REDIS_URL = env.str("EDT_REDIS_URL", default="")
BROKER_URL, REDIS_URL = broker_urls(EDT_HOME, EDT_REDIS_URL)
CHANNEL_LAYERS = {"default": {"BACKEND": "experiments.live.page_layer.PageLayer", "CONFIG": {"host": REDIS_URL, "prefix": "edt"}}}
# It holds nothing but which tasks wait to begin. As JSON: what is pickled would run here for whoever can write to the server. One that does
# not answer is not waited for (redis-py would try for many seconds).
CACHES = {
    "default": {
        "BACKEND": "django.core.cache.backends.redis.RedisCache",
        "LOCATION": REDIS_URL,
        "KEY_PREFIX": "edt",
        "OPTIONS": {"serializer": json, "socket_timeout": 0.5, "socket_connect_timeout": 0.5, "retry": Retry(NoBackoff(), 1)},
    }
}

CELERY_BROKER_URL = BROKER_URL
# A writer that cannot reach the broker goes on within a moment (beat makes up for it); workers have their own, patient way to reconnect.
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "max_retries": 1,
    "interval_start": 0,
    "interval_step": 0.05,
    "interval_max": 0.1,
    "connect_retries_timeout": 1,
    "socket_connect_timeout": 2,
    "socket_timeout": 5,
}
CELERY_TASK_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_DEFAULT_QUEUE = "control"
CELERY_TASK_CREATE_MISSING_QUEUES = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_TIMEZONE = "UTC"
CELERY_BEAT_SCHEDULE = {
    # These do not pile up while nobody takes them: the next one does the same.
    "schedule": {"task": "experiments.tasks.schedule", "schedule": 5.0, "options": {"expires": 5.0}},
    "end-leases": {"task": "experiments.tasks.end_leases", "schedule": 5.0, "options": {"expires": 5.0}},
    "hold-capacity": {"task": "experiments.tasks.hold_capacity", "schedule": 5.0, "options": {"expires": 5.0}},
    "look-at-slots": {"task": "experiments.tasks.look_at_slots", "schedule": 20.0, "options": {"expires": 20.0}},
    "ingest-all": {"task": "experiments.tasks.ingest_all", "schedule": 5.0, "options": {"queue": "ingest", "expires": 5.0}},
    "pull_triggers": {"task": "experiments.tasks.pull_triggers", "schedule": 60.0},
    "advance-searches": {"task": "experiments.tasks.advance_searches", "schedule": 5.0, "options": {"expires": 5.0}},
    "import_projects": {"task": "experiments.tasks.import_projects", "schedule": 60.0, "options": {"expires": 60.0}},
    "deliver": {"task": "experiments.tasks.deliver", "schedule": 30.0},
    "count-disk": {"task": "experiments.tasks.count_disk", "schedule": 30.0, "options": {"expires": 30.0}},
    "use-store": {"task": "experiments.tasks.use_store", "schedule": 60.0, "options": {"expires": 60.0}},
    "prune": {"task": "experiments.tasks.prune", "schedule": 3600.0},
}

AUTH_USER_MODEL = "experiments.User"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "experiments.accounts.validators.MoreThanTheName"},
]
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "projects"
LOGOUT_REDIRECT_URL = "login"

SESSION_ENGINE = "experiments.accounts.sessions"  # Django's own, which also knows whose each is
SESSION_COOKIE_AGE = int(env.float("EDT_SESSION_HOURS", default=14 * 24.0) * 3600)
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = env.bool("EDT_HTTPS", default=False)
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": ["'none'"],
        "script-src": ["'self'"],
        "style-src": ["'self'"],
        "img-src": ["'self'", "data:"],
        "font-src": ["'self'"],
        "connect-src": ["'self'"],
        "form-action": ["'self'"],
        "base-uri": ["'none'"],
        "frame-ancestors": ["'none'"],
        "manifest-src": ["'self'"],
    }
}

LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True
STATIC_URL = "static/"
# Swagger UI, of the page that describes the API, comes with django-ninja. Only a web server imports that: it takes a third of a second.
NINJA = Path(str(getattr(find_spec("ninja"), "origin", ""))).parent
STATICFILES_DIRS = [BASE_DIR / "static", ("swagger-ui", NINJA / "static" / "ninja")]
STATICFILES_FINDERS = ["django.contrib.staticfiles.finders.FileSystemFinder"]  # no app brings files that our pages use
STATIC_ROOT = EDT_HOME / "static"
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "webapp.static_files.HashedStaticFiles"},
}
FILE_UPLOAD_HANDLERS = ["django.core.files.uploadhandler.TemporaryFileUploadHandler"]  # streamed to disk, whatever the size
FILE_UPLOAD_TEMP_DIR = EDT_HOME / "tmp"
DATA_UPLOAD_MAX_MEMORY_SIZE = 2 << 20
MESSAGE_STORAGE = "django.contrib.messages.storage.session.SessionStorage"

# A line for every task and tick says nothing; failures of tasks are logged as errors.
CELERY_QUIET = {f"celery.{name}": {"level": "WARNING"} for name in ("worker.strategy", "app.trace", "worker.consumer.connection")}
QUIET = ("django.channels.server", "httpx", "botocore", "aiobotocore")
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)-7s %(name)s: %(message)s"}},
    "filters": {"outages": {"()": "webapp.outages.Outages"}},
    "handlers": {"stderr": {"class": "webapp.outages.Stderr", "formatter": "line", "filters": ["outages"]}},
    "root": {"handlers": ["stderr"], "level": env.str("EDT_LOG_LEVEL", default="INFO")},
    "loggers": {**{name: {"level": "WARNING"} for name in QUIET}, **CELERY_QUIET},
}
