"""The addresses, each with and without a slash at its end: a redirect would lose the body of what is posted."""

from django.urls import URLPattern, re_path

from experiments.wmla import execs, logon, logs
from experiments.wmla.answers import Do

DEEP_LEARNING = "platform/rest/deeplearning/v1"
EXEC = "(?P<exec_id>[^/]+)"
CONDUCTOR = "platform/rest/conductor/v1"


def _at(route: str, view: Do, name: str) -> URLPattern:
    return re_path(f"^{route}/?$", view, name=f"wmla_{name}")


urlpatterns = [
    _at("auth/v1/logon", logon.log_on, "logon"),
    _at("auth/v1/logoff", logon.log_off, "logoff"),
    _at("v1/preauth/validateAuth", logon.log_on, "validate_auth"),
    _at("icp4d-api/v1/authorize", logon.log_on, "authorize"),
    _at(f"{CONDUCTOR}/auth/logon", logon.log_on, "conductor_logon"),
    _at(f"{DEEP_LEARNING}/conf", logon.conf, "conf"),
    _at(f"{DEEP_LEARNING}/status", logon.status, "status"),
    _at(f"{DEEP_LEARNING}/execs/frameworks", execs.all_frameworks, "frameworks"),
    _at(f"{DEEP_LEARNING}/execs", execs.execs, "execs"),
    _at(f"{DEEP_LEARNING}/execs/{EXEC}", execs.one, "exec"),
    _at(f"{DEEP_LEARNING}/execs/{EXEC}/stop", execs.stop, "stop_exec"),
    _at(f"{DEEP_LEARNING}/execs/{EXEC}/log", logs.train_log, "exec_log"),
    _at(f"{DEEP_LEARNING}/execs/{EXEC}/result", logs.result, "exec_result"),
    re_path("^(?:platform/rest|auth/v1)/", logon.unknown, name="wmla_unknown"),
]
