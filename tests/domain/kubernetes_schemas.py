"""What Kubernetes takes: by its own schemas, and by its rules for names, which these do not have."""

from __future__ import annotations

import re
from typing import Any

import kubernetes_validate

VERSIONS = ("1.31", "1.35")
SUBDOMAIN = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
LABEL = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?)?")

Object = dict[str, Any]


class Invalid(Exception):
    """What a real server would not take either."""


def check(sent: Object) -> None:
    """By the schemas of Kubernetes, with nothing in it that they do not name, and by the rules for names that schemas do not have."""
    for version in VERSIONS:
        try:
            kubernetes_validate.validate(sent, version, strict=True)
        except kubernetes_validate.ValidationError as problem:
            raise Invalid(str(problem)) from None
    name = sent["metadata"]["name"]
    longest = 63 if sent["kind"] == "Job" else 253  # of a Job it is a label of its pods
    if not SUBDOMAIN.fullmatch(name) or len(name) > longest:
        raise Invalid(f"metadata.name: {name}: must be no more than {longest} characters")
    for value in sent["metadata"].get("labels", {}).values():
        if len(value) > 63 or not LABEL.fullmatch(value):
            raise Invalid(f"metadata.labels: {value}")
    if sent["kind"] == "Job" and not all(each.get("image") for each in sent["spec"]["template"]["spec"]["containers"]):
        raise Invalid("spec.template.spec.containers[0].image: Required value")
    for owner in sent["metadata"].get("ownerReferences", []):
        if not owner["uid"]:
            raise Invalid("metadata.ownerReferences.uid: must not be empty")
