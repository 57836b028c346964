"""The API against its own description: schemathesis sends what it allows and what it forbids, to every call and in sequences of calls.

No answer may be a failure of the server or differ from what is described.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
import requests
import schemathesis
from django.db import transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.transport import Response
from schemathesis.generation.case import Case
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from tests.web import api, wmla
from tests.web.api import Script
from tests.web.seed import Seeded

CHECKS: list[Any] = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
DESCRIBED = json.loads(json.dumps(api.DESCRIBED))
STREAM = "/api/v1/stream"  # does not end: test_api_stream.py
PATHS = {path: calls for path, calls in DESCRIBED["paths"].items() if path != STREAM}
SCHEMA = schemathesis.openapi.from_dict({**DESCRIBED, "paths": PATHS})
CASES = st.one_of(SCHEMA.as_strategy(generation_mode=mode) for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE))
PATIENT = settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture
def script(studio: Seeded) -> Script:
    return api.of(studio.alice)


def test_the_description_is_served_as_it_is_and_is_openapi_3_1(studio: Seeded) -> None:
    served = Script().get("/openapi.json").json()
    assert served == DESCRIBED
    assert served["openapi"].startswith("3.1")
    SCHEMA.validate()
    names = [call["operationId"] for calls in served["paths"].values() for call in calls.values()]
    assert len(set(names)) == len(names), "generated clients name their calls by these"


def test_a_page_describes_it(studio: Seeded) -> None:
    page = Script().get("/docs")
    assert page.status_code == 200
    assert b"swagger-ui/swagger-ui-bundle.js" in page.content


@PATIENT
@given(case=CASES, mine=st.booleans())
def test_every_answer_is_as_it_is_described(studio: Seeded, script: Script, case: Case[Any], mine: bool) -> None:
    if case.path == "/api/v1/tokens/current":  # its own
        return
    if mine and case.method != "DELETE":  # what others go on with
        _name_what_is_there(case, studio)
    refused = [] if mine else [negative_data_rejection]  # what was made up to be wrong may be right with a number that is there
    case.validate_response(_sent(script, case), checks=[*CHECKS, *refused])


def _name_what_is_there(case: Case[Any], studio: Seeded) -> None:
    """Ids of what there is, in the place of made-up ones."""
    known: dict[str, object] = {
        "project": studio.digits.pk, "definition": studio.version.definition.pk, "version": studio.version.pk, "data": studio.data.pk,
        "upload": studio.upload.pk, "number": 0, "experiment": studio.experiment.pk, "run": studio.completed.pk, "username": "bob",
    }  # fmt: skip
    case.path_parameters = {name: known.get(name, value) for name, value in (case.path_parameters or {}).items()}


def _sent(script: Script, case: Case[Any]) -> Response:
    """As a client would send it over the wire, to Django's test client."""
    said = case.as_transport_kwargs(base_url="http://testserver")
    sent = {name: said[name] for name in ("method", "url", "params", "data", "json", "files") if name in said}
    prepared = requests.Request(**sent).prepare()
    body = prepared.body.encode() if isinstance(prepared.body, str) else prepared.body or b""
    kind = str(prepared.headers.get("Content-Type", "application/octet-stream"))
    answer = script.client.generic(case.method, prepared.path_url, body, content_type=kind, headers=script.headers)
    return Response(answer.status_code, {name: [value] for name, value in answer.items()}, wmla.body(answer), prepared, 0.0, verify=False)


def test_sequences_of_calls_are_answered_as_described(studio: Seeded, script: Script) -> None:
    """What one call made, the next ones take by its number."""

    class Workflow(SCHEMA.as_state_machine()):  # type: ignore[misc]  # made at run time
        def setup(self) -> None:
            """Each sequence begins with the same studio: hypothesis makes the next one out of what the last ones met."""
            self.studio = transaction.atomic()
            self.studio.__enter__()

        def teardown(self) -> None:
            transaction.set_rollback(True)
            self.studio.__exit__(None, None, None)

        def call(self, case: Case[Any], **_: Any) -> Response:
            return _sent(script, case)

        def validate_response(self, response: Response, case: Case[Any], **_: Any) -> None:
            case.validate_response(response, checks=CHECKS)

    Workflow.run(settings=settings(PATIENT, max_examples=25, stateful_step_count=12))
