"""What kinds of objects there are in the stand-in for Kubernetes, and where."""

from __future__ import annotations

from tests.domain.kubernetes_schemas import Object

GROUPS = {"jobs": "batch", "pods": "", "secrets": "", "nodes": "", "priorityclasses": "scheduling.k8s.io"}
KINDS = {"jobs": "Job", "pods": "Pod", "secrets": "Secret"}


def discovery() -> dict[str, Object]:
    """What there is and where, as kubectl asks first of all."""
    found: dict[str, Object] = {
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
    }
    for group in sorted(set(GROUPS.values())):
        version = f"{group}/v1" if group else "v1"
        there = [
            {"name": kind, "singularName": name.lower(), "namespaced": True, "kind": name, "verbs": ["create", "delete", "get", "list"]}
            for kind, name in KINDS.items()
            if GROUPS[kind] == group
        ]
        found[f"/apis/{version}" if group else "/api/v1"] = {"kind": "APIResourceList", "groupVersion": version, "resources": there}
        if group:
            only = {"groupVersion": version, "version": "v1"}
            found["/apis"]["groups"].append({"name": group, "versions": [only], "preferredVersion": only})
    return found
