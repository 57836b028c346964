"""The REST interface against its own description: schemathesis sends what the description allows and what it forbids, to every address.

No answer may be a failure of the server or differ from what is described, and nothing is answered or changed without permission.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.transport import Response
from schemathesis.generation.case import Case
from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance, status_code_conformance

from experiments.models import ModelDraft, Project, TrainingDefinition, TrainingRun, User
from experiments.wmla import openapi
from experiments.wmla.urls import urlpatterns
from tests.web import wmla
from tests.web.seed import Seeded
from tests.web.test_wmla_addresses import SAMPLES
from tests.web.wmla import Script

CHECKS: list[Any] = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
schemathesis.serializer.alias("application/zip", "application/octet-stream")
SCHEMA = schemathesis.openapi.from_dict(openapi.document())
CASES = st.one_of(SCHEMA.as_strategy(generation_mode=mode) for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE))
PATIENT = settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
OURS = {f"{openapi.DL}/openapi.json", "/ui/tools/dlicmd.py"}


def test_every_address_is_described_and_nothing_else() -> None:
    routes = [pattern.pattern.regex for pattern in urlpatterns if pattern.name not in ("wmla_unknown", "dlicmd", "rest_openapi")]
    described = [re.sub(r"{(\w+)}", lambda found: SAMPLES[found[1]], path).lstrip("/") for path in openapi.document()["paths"]]
    assert [route.pattern for route in routes if not any(route.match(path) for path in described)] == []
    assert [path for path in described if not any(route.match(path) for route in routes)] == []


def test_the_description_is_fetched_as_it_is_and_is_openapi(script: Script) -> None:
    fetched = script.client.get(f"{openapi.DL}/openapi.json").json()
    assert fetched == openapi.document()
    SCHEMA.validate()


@pytest.fixture
def script(studio: Seeded) -> Script:
    return wmla.of(studio.alice)


@PATIENT
@given(case=CASES, mine=st.booleans(), slash=st.sampled_from(["", "/"]))
def test_every_answer_is_as_it_is_described(studio: Seeded, script: Script, case: Case[Any], mine: bool, slash: str) -> None:
    if mine:
        _name_what_is_there(case, studio)
    if case.path.endswith("logoff"):
        return
    case.validate_response(_sent(script, case, slash=slash), checks=CHECKS)


@PATIENT
@given(case=CASES)
def test_a_stranger_and_nobody_learn_and_change_nothing(studio: Seeded, stranger: User, case: Case[Any]) -> None:
    _name_what_is_there(case, studio)
    before = _counted()
    if not case.path.endswith(("logon", "validateAuth", "authorize")):
        assert _sent(Script(), case).status_code in (401, 405)
    if {"exec_id", "space", "key"} & set(case.path_parameters or {}):
        answer = _sent(wmla.of(stranger), case)
        assert answer.status_code in (400, 404, 405), answer.content
    assert _counted() == before


def _counted() -> tuple[int, ...]:
    return tuple(each.objects.count() for each in (Project, TrainingDefinition, TrainingRun, ModelDraft))


def _name_what_is_there(case: Case[Any], studio: Seeded) -> None:
    """Ids of what there is, in the place of made-up ones."""
    draft, _ = ModelDraft.objects.get_or_create(project=studio.digits, name="mnist", defaults={"created_by": studio.alice})
    of_training = "trainings" in case.path
    known = {"exec_id": f"wmla-{studio.completed.pk}", "space": str(studio.digits.pk), "executor": "1", "name": "cluster", "group": "g"}
    known["key"] = studio.completed.folder if of_training else str(draft.key)
    found = case.path_parameters or {}
    case.path_parameters = {name: known.get(name, value) for name, value in found.items()}


def _sent(script: Script, case: Case[Any], *, slash: str = "") -> Response:
    """As a client would send it over the wire, to Django's test client."""
    said = case.as_transport_kwargs(base_url="http://testserver")
    said.pop("cookies", None)
    url = said.pop("url") + slash
    sent = {name: said[name] for name in ("method", "headers", "params", "data", "json", "files") if name in said}
    prepared = requests.Request(url=url, **sent).prepare()
    body = prepared.body.encode() if isinstance(prepared.body, str) else prepared.body or b""
    kind = str(prepared.headers.get("Content-Type", "application/octet-stream"))
    headers = {"Accept": "application/json", **script.headers}
    answer = script.client.generic(case.method, prepared.path_url, body, content_type=kind, headers=headers)
    return Response(answer.status_code, {name: [value] for name, value in answer.items()}, wmla.body(answer), prepared, 0.0, verify=False)
