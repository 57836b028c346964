"""Addresses of WMLA and WML that the studio does not have: what to do instead, in a sentence."""

from __future__ import annotations

import re
from typing import NoReturn

from django.http import Http404, HttpRequest

from experiments.wmla.answers import api

SERVE = "Models are not served here: fetch the model (GET execs/ID/result) or register it on the run's page, and serve it elsewhere."
FORMS = (
    "The forms of WMLA's pages (datasets, models, model templates, frameworks and their trainings) have no addresses here: put the data "
    "into a folder below the shared data root, and submit the script with POST /platform/rest/deeplearning/v1/execs."
)
TUNING = "The tuning of a model of WMLA's forms is not here: start the search with POST /platform/rest/deeplearning/v1/hypersearch."
GROUPS = "There is one cluster, and no instance group to be looked at or changed here: its page is Cluster > Instance groups."
NONE = "There is no such address."
_DL = "platform/rest/deeplearning/v1"
SAID = (
    (rf"/{_DL}/(?:edimodels|inferences)|/{_DL}/execs/[^/]+/deploy/?\Z|/dlim/|/ml/v4/(?:deployments|models)", SERVE),
    (rf"/{_DL}/models/[^/]+/hypersearch", TUNING),
    (rf"/{_DL}/(?:models|modeltemplates|datasets|frameworks)", FORMS),
    (r"/platform/rest/conductor/v1/instances", GROUPS),
)
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


def sentence(path: str) -> str:
    """What is said of the path."""
    return next((says for pattern, says in SAID if re.match(pattern, path)), NONE)


def _missing(request: HttpRequest) -> NoReturn:
    raise Http404(sentence(request.path))


unknown = api(**dict.fromkeys(METHODS, _missing))
