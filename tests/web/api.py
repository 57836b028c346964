"""The API as scripts see it: a token of somebody, and calls with it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from django.http import HttpResponse
from django.test import Client
from django.utils import timezone

from experiments import services
from experiments.api import application
from experiments.models import Project, TrainingRun, User

ROOT = "/api/v1"
DESCRIBED = application.make().get_openapi_schema(path_prefix=f"{ROOT}/")


@dataclass
class Script:
    """Calls with one token, or as nobody."""

    token: str = ""
    client: Client = field(default_factory=Client)

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}

    def send(self, method: str, path: str, body: Any = None, **headers: str) -> HttpResponse:
        content = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = {**self.headers, **headers}
        answer: HttpResponse = self.client.generic(method, ROOT + path, content, content_type="application/json", headers=sent)
        return answer

    def get(self, path: str, **headers: str) -> HttpResponse:
        return self.send("GET", path, **headers)

    def post(self, path: str, body: Any = None, **headers: str) -> HttpResponse:
        return self.send("POST", path, {} if body is None else body, **headers)

    def upload(self, path: str, fields: dict[str, Any], **headers: str) -> HttpResponse:
        """As a form with files."""
        answer: HttpResponse = self.client.post(ROOT + path, fields, headers={**self.headers, **headers})
        return answer


def of(user: User, scope: str = "admin", *, project: Project | None = None, run: TrainingRun | None = None) -> Script:
    _, token = services.create_token(by=user, name="test", scope=scope, project=project, run=run, days=1, now=timezone.now())
    return Script(token)
