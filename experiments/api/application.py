"""The API itself: its routers, what is around each call, and how it is described."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.urls import URLPattern, re_path
from django.views.decorators.csrf import csrf_exempt
from ninja import NinjaAPI, Schema
from ninja.openapi.docs import DocsBase
from ninja.openapi.schema import OpenAPISchema

from experiments.api import (
    checkpoints,
    cluster,
    code,
    comments,
    data,
    data_versions,
    definitions,
    environments,
    experiments,
    files,
    history,
    live,
    media,
    metrics,
    nodes,
    notifications,
    outside,
    people,
    pilots,
    points,
    previews,
    projects,
    receipts,
    registry,
    run_table,
    runs,
    searches,
    searching,
    setup,
    store,
    thresholds,
    tokens,
    transfers,
    triggers,
    uploads,
    usage,
    what_if,
)
from experiments.api.auth import ANYBODY
from experiments.api.problems import MEDIA_TYPE, Problem, handle, problem
from experiments.api.requests import Rate, conditional, remember_key
from experiments.ops import installation

ABOUT = """All that the pages can do. Send a token as `Authorization: Bearer edt_...`; your profile makes one, or `POST /api/v1/tokens` with
name and password. Lists come a page at a time (`limit`, `cursor`), errors as application/problem+json with a sentence that says what to do.
An `Idempotency-Key` makes a thing once, however often it is sent; `ETag`, `If-None-Match` and `If-Match` are understood."""
REFUSALS = {
    400: "The studio refuses: `detail` says why and what to do, `errors` by field.",
    401: "No token, or one that has ended.",
    403: "Who asks may not, or not by this token.",
    404: "It is not there, or in a project that the caller is no member of.",
    409: "The file ends elsewhere.",
    412: "It has changed since it was read.",
    413: "Too large.",
    422: "The request has not the form that is described.",
    429: "Too many requests: `Retry-After` says how long to wait.",
    503: "Too many requests are open.",
    507: "The disk is full.",
}


class About(Schema):
    name: str
    version: str
    api: str


class Page(DocsBase):
    """Where people read of the calls, and try them: Swagger UI, from this studio."""

    def render_page(self, request: HttpRequest, api: NinjaAPI, **given: Any) -> HttpResponse:
        return render(request, "api.html", {"described_at": self.get_openapi_url(api, given)})


class Api(NinjaAPI):
    def get_openapi_operation_id(self, operation: Any) -> str:
        """The name of the function: what generated clients call it."""
        return str(operation.view_func.__name__)

    def get_openapi_schema(self, **given: Any) -> OpenAPISchema:
        """With the refusals that any call may answer."""
        described = super().get_openapi_schema(**given)
        described["components"]["schemas"]["Problem"] = Problem.model_json_schema()
        said = {"content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}}
        for calls in described["paths"].values():
            for call in calls.values():
                for status, words in REFUSALS.items():
                    call["responses"].setdefault(status, {"description": words, **said})
        _link(described)
        return described


def _link(described: dict[str, Any]) -> None:
    """Say of each call that makes or shows one thing which calls take its number: what clients, and tests, go on with."""
    takers: dict[str, list[str]] = {}
    for path, calls in described["paths"].items():
        for name in PARAMETER.values():
            if f"{{{name}}}" in path:
                takers.setdefault(name, []).extend(call["operationId"] for call in calls.values())
    answers = [
        call["responses"].get(status, {}) for calls in described["paths"].values() for call in calls.values() for status in (200, 201)
    ]
    for answer in answers:
        kind = answer.get("content", {}).get("application/json", {}).get("schema", {}).get("$ref", "").rpartition("/")[2]
        if kind in PARAMETER:
            number = {f"path.{PARAMETER[kind]}": "$response.body#/id"}
            answer["links"] = {taker: {"operationId": taker, "parameters": number} for taker in takers[PARAMETER[kind]]}


# What is named by its number in addresses: the schema that shows it, and the name there.
PARAMETER = {
    **{"Project": "project", "Definition": "definition", "Version": "version", "Upload": "upload", "DataAsset": "data"},
    **{"Experiment": "experiment", "Run": "run", "Webhook": "webhook", "MadeTrigger": "trigger", "MadeToken": "token"},
    **{"Import": "imported", "Threshold": "threshold", "OfferedEnvironment": "offered", "Environment": "environment", "View": "view"},
    "RegisteredModel": "model",
}
MODULES = (
    projects,
    transfers,
    definitions,
    code,
    uploads,
    data,
    data_versions,
    experiments,
    run_table,
    runs,
    checkpoints,
    comments,
    history,
    receipts,
    registry,
    setup,
    outside,
    metrics,
    points,
    files,
    previews,
    media,
    cluster,
    nodes,
    people,
    pilots,
    store,
    notifications,
    thresholds,
    environments,
    searches,
    searching,
    triggers,
    tokens,
    what_if,
    usage,
    live,
)


def make() -> Api:
    api = Api(title="EDT Studio", version="1", description=ABOUT, docs=Page(), urls_namespace="api", auth=ANYBODY, throttle=Rate())
    handle(api)
    for each in MODULES:
        api.add_router("", each.router)

    @api.get("/", response=About, auth=None, throttle=[])
    def about(request: HttpRequest) -> About:  # noqa: ARG001  (ninja passes it)
        """What answers here."""
        return About(name="EDT Studio", version=installation.version(), api="v1")

    return api


def missing(request: HttpRequest) -> HttpResponse:  # noqa: ARG001  (the router passes it)
    return problem(404, "There is no such call: /api/v1/docs lists them.")


def addresses() -> tuple[list[URLPattern], str, str]:
    """Of the API, for the app's urls, with their names' space."""
    urls, app, namespace = make().urls
    found = [each for each in urls if isinstance(each, URLPattern) and each.callback is not None]
    for pattern in found:
        pattern.callback = _around(pattern.callback)
    return [*found, re_path(r"[\s\S]*", csrf_exempt(login_not_required(missing)), name="missing")], app, namespace


def _around(call: Callable[..., Any]) -> Callable[..., Any]:
    """No page's login is wanted, since each call has its own; a method that is not possible is a problem; what is read has a tag."""
    if iscoroutinefunction(call):

        async def view(request: HttpRequest, *given: Any, **named: Any) -> HttpResponseBase:
            return _answered(request, await call(request, *given, **named))

        markcoroutinefunction(view)
        return csrf_exempt(login_not_required(view))

    def plain(request: HttpRequest, *given: Any, **named: Any) -> HttpResponseBase:
        return _answered(request, call(request, *given, **named))

    return csrf_exempt(login_not_required(plain))


def _answered(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    if response.status_code == 405:
        refusal = problem(405, f"{request.method} is not possible here, but {response['Allow']}.")
        refusal["Allow"] = response["Allow"]
        return refusal
    response.headers.setdefault("Cache-Control", "private, no-cache")
    remember_key(request, response)
    return conditional(request, response)
