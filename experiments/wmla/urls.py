"""The addresses, each with and without a slash at its end: a redirect would lose the body of what is posted."""

from django.urls import URLPattern, path, re_path

from experiments.wmla import definitions, execs, logon, logs, not_here, openapi, program, scheduler, searches, trainings
from experiments.wmla.answers import Do

DEEP_LEARNING = "platform/rest/deeplearning/v1"
EXEC = "(?P<exec_id>[^/]+)"
KEY = "(?P<key>[^/]+)"
EXECUTOR = "(?P<executor>[^/]+)"
LOG = "(?P<kind>stdout|stderr|launcherlog)(?P<download>/download)?"
SEARCH = f"{DEEP_LEARNING}/hypersearch"
SCHEDULER = f"{DEEP_LEARNING}/scheduler"
CONDUCTOR = "platform/rest/conductor/v1"
GROUP = f"{CONDUCTOR}/instances/(?P<group>[^/]+)"


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
    _at(SEARCH, searches.searches, "searches"),
    _at(f"{SEARCH}/algorithm", searches.algorithms, "algorithms"),
    _at(f"{SEARCH}/algorithm/install", searches.install, "install_algorithm"),
    _at(f"{SEARCH}/algorithm/(?P<algorithm>[^/]+)", searches.one_algorithm, "algorithm"),
    _at(f"{SEARCH}/(?P<search>[^/]+)", searches.one, "search"),
    _at(f"{SEARCH}/(?P<search>[^/]+)/stop", searches.stop, "stop_search"),
    _at(f"{SEARCH}/(?P<search>[^/]+)/force", searches.stop, "force_search"),
    _at(f"{SEARCH}/(?P<search>[^/]+)/restart", searches.restart, "restart_search"),
    _at(f"{SCHEDULER}/applications", scheduler.all_applications, "applications"),
    _at(f"{SCHEDULER}/applications/{EXEC}", scheduler.one_application, "application"),
    _at(f"{SCHEDULER}/applications/{EXEC}/stop", scheduler.stop, "stop_application"),
    _at(f"{SCHEDULER}/applications/{EXEC}/driver/logs/{LOG}", scheduler.driver_log, "driver_log"),
    _at(f"{SCHEDULER}/applications/{EXEC}/executor/{EXECUTOR}/logs/{LOG}", scheduler.executor_log, "executor_log"),
    _at(f"{SCHEDULER}/applicationStatistic", scheduler.statistic, "statistic"),
    _at(f"{SCHEDULER}/instances", scheduler.instances, "instances"),
    _at(f"{SCHEDULER}/kubernetesobjects", scheduler.objects, "objects"),
    _at(f"{SCHEDULER}/engine/applications", scheduler.engine_applications, "engine_applications"),
    _at(f"{SCHEDULER}/engine/applications/{EXEC}", scheduler.engine_application, "engine_application"),
    _at(f"{DEEP_LEARNING}/resplans/resplantree", scheduler.resource_tree, "resource_tree"),
    _at(f"{DEEP_LEARNING}/resplans/resplan/(?P<name>[^/]+)", scheduler.resource_plan, "resource_plan"),
    _at(f"{GROUP}/applications", scheduler.all_applications, "group_applications"),
    _at(f"{GROUP}/applications/{EXEC}/logs/{LOG}", scheduler.driver_log, "group_driver_log"),
    _at(f"{GROUP}/applications/{EXEC}/{EXECUTOR}/logs/{LOG}", scheduler.executor_log, "group_executor_log"),
    _at("v2/spaces", definitions.spaces, "spaces"),
    _at("v2/spaces/(?P<space>[^/]+)", definitions.one_space, "space"),
    _at("ml/v4/model_definitions", definitions.all_definitions, "model_definitions"),
    _at(f"ml/v4/model_definitions/{KEY}", definitions.one_definition, "model_definition"),
    _at(f"ml/v4/model_definitions/{KEY}/model", definitions.code, "model_code"),
    _at("ml/v4/trainings", trainings.trainings, "trainings"),
    _at(f"ml/v4/trainings/{KEY}", trainings.one, "training"),
    path(f"{DEEP_LEARNING}/openapi.json", openapi.description, name="rest_openapi"),
    path("ui/tools/dlicmd.py", program.dlicmd, name="dlicmd"),
    re_path("^(?:platform/rest|auth/v1|ml/v4|v2)/", not_here.unknown, name="wmla_unknown"),
]
