"""The interface as an OpenAPI 3.1 document, from which clients are made and tests are drawn: every address, what it takes and answers.

What is answered with an error has one shape everywhere. Whole groups of addresses take anything as an id: one that is not there is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from experiments.wmla import answers
from experiments.wmla.described import STATES

Schema = dict[str, Any]
DL = "/platform/rest/deeplearning/v1"
SC = "/platform/rest/conductor/v1"
TEXT: Schema = {"type": "string"}
OBJECT: Schema = {"type": "object"}
COUNT: Schema = {"type": "integer", "minimum": 0}
STATE: Schema = {"enum": sorted(set(STATES.values()))}
ERROR: Schema = {
    "type": "object",
    "properties": {"statusCode": {"type": "integer"}, "message": {"type": "string", "minLength": 1}},
    "required": ["statusCode", "message"],
    "additionalProperties": False,
}
TOKEN: Schema = {
    "type": "object",
    "properties": {"accessToken": TEXT, "token": TEXT, "username": TEXT},
    "required": ["accessToken", "token", "username"],
}
EXEC: Schema = {
    "type": "object",
    "properties": {
        **dict.fromkeys(
            ("id", "args", "submissionId", "creator", "appId", "appName", "framework", "createTime", "reason", "sigName"), TEXT
        ),
        "state": STATE,
        "elastic": {"type": "boolean"},
        "numWorker": COUNT,
    },
    "required": ["id", "args", "state", "creator", "appId", "framework", "createTime"],
    "additionalProperties": {"type": ["string", "number", "boolean"]},
}
SEARCH: Schema = {
    "type": "object",
    "properties": {
        **dict.fromkeys(("hpoName", "creator", "createtime", "duration", "progress"), TEXT),
        "state": {"enum": ["SUBMITTED", "RUNNING", "STOPPED", "FINISHED", "FAILED"]},
        "experiments": {"type": "array", "items": OBJECT},
        "best": OBJECT,
        **dict.fromkeys(("running", "complete", "failed"), COUNT),
    },
    "required": ["hpoName", "creator", "state", "progress", "experiments", "algoDef"],
}
APPLICATION: Schema = {
    "type": "object",
    "properties": {
        **dict.fromkeys(("applicationid", "applicationname", "username", "submittedtime", "endtime"), TEXT),
        **dict.fromkeys(("slots", "gpuslots", "cpuslots", "demandslots", "timestamp"), COUNT),
        "state": STATE,
        "driver": OBJECT,
        "executors": {"type": "array", "items": OBJECT},
    },
    "required": ["applicationid", "state", "driver", "executors", "slots"],
}
ENGINE_APPLICATION: Schema = {"type": "object", "properties": {"id": TEXT, "state": STATE, "used_gpu": COUNT}, "required": ["id", "state"]}
RESOURCE: Schema = {"type": "object", "properties": {"metadata": OBJECT, "entity": OBJECT}, "required": ["metadata", "entity"]}
RESOURCES: Schema = {
    "type": "object",
    "properties": {"resources": {"type": "array", "items": RESOURCE}, "limit": COUNT},
    "required": ["resources", "limit"],
}
PLAN: Schema = {"type": "object", "properties": {"id": TEXT, "childTreeDto": {"type": "array"}}, "required": ["id", "childTreeDto"]}
NAMED: Schema = {"type": "object", "properties": {"name": TEXT, "description": TEXT}, "required": ["name"]}
SPACE_ID: Schema = {"type": "object", "properties": {"name": TEXT, "space_id": TEXT, "command": TEXT}, "required": ["name", "space_id"]}
TRAINING: Schema = {
    "type": "object",
    "properties": {
        "name": TEXT,
        "space_id": TEXT,
        "tags": {"type": "array", "items": TEXT},
        "model_definition": {"type": "object", "properties": {"id": TEXT, "command": TEXT}, "required": ["id"]},
        "training_data_references": {"type": "array", "items": OBJECT},
    },
    "required": ["space_id", "model_definition"],
}
SUBMISSION: Schema = {"type": "object", "properties": {"data": TEXT, "file": {"type": "string", "format": "binary"}}, "required": ["file"]}
KIND: Schema = {"enum": ["stdout", "stderr", "launcherlog"]}


def document() -> Schema:
    """OpenAPI 3.1."""
    return {
        "openapi": "3.1.0",
        "info": {"title": "EDT Studio: the REST interface of WMLA and WML v4", "version": "1", "description": "See docs/rest.md."},
        "security": [{"token": []}, {"bearer": []}, {"basic": []}],
        "paths": {path: {method: _operation(path, **said) for method, said in methods.items()} for path, methods in _paths().items()},
        "components": {
            "securitySchemes": {
                "token": {"type": "apiKey", "in": "header", "name": "X-Auth-Token"},
                "bearer": {"type": "http", "scheme": "bearer"},
                "basic": {"type": "http", "scheme": "basic"},
            }
        },
    }


def _paths() -> dict[str, dict[str, dict[str, Any]]]:
    """By path and method: `ok`, what is answered (a schema, or a media type for a file, or nothing); `query`; `takes`, by media type."""
    return {**_logon(), **_execs(), **_searches(), **_scheduler(), **_wml()}


def _logon() -> dict[str, dict[str, dict[str, Any]]]:
    by_body = {"type": "object", "properties": {"username": TEXT, "password": TEXT}, "required": ["username", "password"]}
    log_on = {"get": {"ok": TOKEN}, "post": {"ok": TOKEN, "takes": {"application/json": by_body}}}
    paths = ("/auth/v1/logon", "/v1/preauth/validateAuth", "/icp4d-api/v1/authorize", f"{SC}/auth/logon")
    off = {method: {"ok": OBJECT} for method in ("get", "post", "delete")}
    return {**dict.fromkeys(paths, log_on), "/auth/v1/logoff": off}


def _execs() -> dict[str, dict[str, dict[str, Any]]]:
    one, files = f"{DL}/execs/{{exec_id}}", {"multipart/form-data": SUBMISSION}
    listed = {"state": TEXT, "sort_by": TEXT, "limit": {"type": "integer", "minimum": 1, "maximum": 1000}}
    return {
        f"{DL}/conf": {"get": {"ok": OBJECT}},
        f"{DL}/status": {"get": {"ok": OBJECT}},
        f"{DL}/execs/frameworks": {"get": {"ok": {"type": "array", "items": OBJECT}}},
        f"{DL}/execs": {
            "get": {"ok": {"type": "array", "items": EXEC}, "query": listed},
            "post": {"ok": EXEC, "query": {"args": TEXT, "sigName": TEXT}, "takes": files},
            "delete": {},
        },
        one: {"get": {"ok": EXEC}, "delete": {}},
        f"{one}/stop": {"post": {}, "put": {}},
        f"{one}/log": {"get": {"ok": TEXT, "file": "text/plain", "query": {"logType": {"enum": ["outlog", "errlog", "outerrlog"]}}}},
        f"{one}/result": {"get": {"file": "application/zip"}},
    }


def _searches() -> dict[str, dict[str, dict[str, Any]]]:
    top = f"{DL}/hypersearch"
    one, algorithm, algorithms = f"{top}/{{search}}", f"{top}/algorithm/{{algorithm}}", {"type": "array", "items": NAMED}
    return {
        top: {
            "get": {"ok": {"type": "array", "items": SEARCH}},
            "post": {"ok": {"type": ["string", "object"]}, "takes": {"multipart/form-data": SUBMISSION}},
            "delete": {},
        },
        f"{top}/algorithm": {"get": {"ok": algorithms, "query": {"type": {"enum": ["BUILD_IN", "USER_PLUGIN"]}}}},
        f"{top}/algorithm/install": {"post": {}},
        algorithm: {"get": {"ok": NAMED}, "delete": {}},
        one: {"get": {"ok": SEARCH}, "put": {}, "delete": {}},
        **{f"{one}/{verb}": {"put": {}, "post": {}} for verb in ("stop", "force", "restart")},
    }


def _scheduler() -> dict[str, dict[str, dict[str, Any]]]:
    apps, engine, of_group = f"{DL}/scheduler/applications", f"{DL}/scheduler/engine/applications", f"{SC}/instances/{{group}}/applications"
    names = ("applicationid", "driverid", "applicationname", "search", "state", "sort", "order")
    query = {**dict.fromkeys(names, TEXT), "start": COUNT, "length": {"type": "integer", "minimum": 1, "maximum": 200}}
    log = {"get": {"ok": TEXT, "file": "text/plain", "query": {"lastlines": COUNT}}}
    listed = {"get": {"ok": {"type": "array", "items": APPLICATION}, "query": query}}
    logs = (f"{apps}/{{exec_id}}/driver", f"{apps}/{{exec_id}}/executor/{{executor}}", f"{of_group}/{{exec_id}}")
    addresses = [f"{each}/logs/{{kind}}" for each in (*logs, f"{of_group}/{{exec_id}}/{{executor}}")]
    return {
        apps: listed,
        of_group: listed,
        f"{apps}/{{exec_id}}": {"get": {"ok": APPLICATION}},
        f"{apps}/{{exec_id}}/stop": {"put": {}, "post": {}},
        engine: {"get": {"ok": {"type": "array", "items": ENGINE_APPLICATION}, "query": query}},
        f"{engine}/{{exec_id}}": {"get": {"ok": ENGINE_APPLICATION}},
        f"{DL}/scheduler/applicationStatistic": {"get": {"ok": {"type": "object", "additionalProperties": COUNT}}},
        f"{DL}/scheduler/instances": {"get": {"ok": {"type": "array", "items": OBJECT}}},
        f"{DL}/scheduler/kubernetesobjects": {"get": {"ok": {"type": "array"}}},
        f"{DL}/resplans/resplantree": {"get": {"ok": PLAN}},
        f"{DL}/resplans/resplan/{{name}}": {"get": {"ok": PLAN}},
        **dict.fromkeys([*addresses, *(f"{each}/download" for each in addresses)], log),
    }


def _wml() -> dict[str, dict[str, dict[str, Any]]]:
    definitions, trainings = "/ml/v4/model_definitions", "/ml/v4/trainings"
    attached = {"type": "object", "properties": {"attachment_id": TEXT}, "required": ["attachment_id"]}
    listed: dict[str, Any] = {"ok": RESOURCES, "query": {"limit": {"type": "integer", "minimum": 1, "maximum": 200}, "space_id": TEXT}}
    return {
        "/v2/spaces": {"get": {"ok": RESOURCES}, "post": {"made": RESOURCE, "takes": {"application/json": NAMED}}},
        "/v2/spaces/{space}": {"get": {"ok": RESOURCE}},
        definitions: {
            "get": {"ok": {**OBJECT, "required": ["resources"]}},
            "post": {"made": RESOURCE, "takes": {"application/json": SPACE_ID}},
        },
        f"{definitions}/{{key}}": {"get": {"ok": RESOURCE}, "delete": {}},
        f"{definitions}/{{key}}/model": {
            "put": {"made": attached, "takes": {"application/zip": {"type": "string", "format": "binary"}}},
        },
        trainings: {"get": listed, "post": {"made": RESOURCE, "takes": {"application/json": TRAINING}}},
        f"{trainings}/{{key}}": {"get": {"ok": RESOURCE}, "delete": {"query": {"hard_delete": {"enum": ["true", "false"]}}}},
    }


def _operation(
    path: str,
    *,
    ok: Schema | None = None,
    made: Schema | None = None,
    file: str = "",
    query: Mapping[str, Schema] | None = None,
    takes: Mapping[str, Schema] | None = None,
) -> Schema:
    content = {"application/json": {"schema": ok}} if ok is not None else {}
    content |= {file: {"schema": TEXT}} if file else {}
    answer: Schema = {"description": "Done.", "content": content} if content else {"description": "Done."}
    if made is not None:
        answers_by: Schema = {"201": {"description": "Made.", "content": {"application/json": {"schema": made}}}}
    else:
        answers_by = {"200" if content else "204": answer}
    error = {"description": "Refused: the message says what to do.", "content": _either(ERROR)}
    answers_by |= dict.fromkeys(("400", "401", "403", "404", "405", "429", "507"), error)
    said: Schema = {"parameters": _parameters(path, query or {}), "responses": answers_by}
    if takes:
        said["requestBody"] = {"required": False, "content": {kind: {"schema": schema} for kind, schema in takes.items()}}
    return said


def _either(schema: Schema) -> Schema:
    return {"application/json": {"schema": schema}, "text/plain": {"schema": TEXT}}


def _parameters(path: str, query: Mapping[str, Schema]) -> list[Schema]:
    names = [part[1:-1] for part in path.split("/") if part.startswith("{")]
    found = [{"name": name, "in": "path", "required": True, "schema": KIND if name == "kind" else TEXT} for name in names]
    return found + [{"name": name, "in": "query", "schema": schema} for name, schema in query.items()]


@login_not_required
@require_safe
def description(request: HttpRequest) -> HttpResponse:  # noqa: ARG001
    return answers.json_response(document())
