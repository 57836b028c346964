"""The manifests in deploy/kubernetes: against the schemas of Kubernetes, and against what they start."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.domain.kubernetes_server import RULES
from training_runtime.node.link import LAST_FILES_S, LAST_STATES_S
from training_runtime.node.settings import parse

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "kubernetes"
FILES = sorted(FOLDER.glob("*.yaml"))
VERSIONS = ("1.31", "1.35")


def objects(kind: str = "") -> list[dict[str, Any]]:
    found = [each for file in FILES for each in yaml.safe_load_all(file.read_text())]
    return [each for each in found if not kind or each["kind"] == kind]


@pytest.mark.parametrize("version", VERSIONS)
def test_they_are_what_kubernetes_takes_and_nothing_is_misspelt(version: str) -> None:
    assert [each["kind"] for each in objects()] == ["Service", "StatefulSet", "Namespace", "ServiceAccount", "Role", "RoleBinding"]
    for each in objects():
        kubernetes_validate.validate(each, version, strict=True)


def test_a_misspelt_one_is_noticed() -> None:
    (pods,) = objects("StatefulSet")
    pods["spec"]["template"]["spec"]["terminationGraceSeconds"] = 3
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(pods, VERSIONS[0], strict=True)


def test_a_pod_runs_a_command_that_there_is_with_its_own_token_and_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (pods,) = objects("StatefulSet")
    (container,) = pods["spec"]["template"]["spec"]["containers"]
    shell, flag, script = container["command"]
    assert (shell, flag) == ("sh", "-c")
    words = shlex.split(script)
    assert words[:4] == ["exec", "python", "-m", "training_runtime.node"]
    assert words[-2:] == ["<", "/run/tokens/$POD_NAME"], "of the secret, whose entries are called as the pods"
    token = tmp_path / "token"
    token.write_text("edtn_secret\n")
    monkeypatch.setattr("sys.stdin", token.open())
    there = {"$EDT_STUDIO": "https://studio.example.org", "$POD_IP": "10.1.2.3", "/var/lib/edt-node": str(tmp_path / "home")}
    settings = parse([there.get(word, word) for word in words[4:-2]], {})
    assert (settings.token, settings.studio, settings.address) == ("edtn_secret", "https://studio.example.org", "10.1.2.3")
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    assert mounts["/var/lib/edt-node"] in [claim["metadata"]["name"] for claim in pods["spec"]["volumeClaimTemplates"]]
    assert mounts["/run/tokens"] == "tokens"


def test_a_pod_has_the_time_that_its_runs_need_to_leave() -> None:
    (pods,) = objects("StatefulSet")
    assert pods["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] > LAST_STATES_S + LAST_FILES_S


def test_a_studio_outside_the_cluster_may_what_pilots_need_and_no_more() -> None:
    (role,), (binding,), (account,), (namespace,) = map(objects, ("Role", "RoleBinding", "ServiceAccount", "Namespace"))
    assert role["rules"] == RULES
    assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) == ("Role", role["metadata"]["name"])
    (who,) = binding["subjects"]
    assert (who["kind"], who["name"], who["namespace"]) == ("ServiceAccount", account["metadata"]["name"], account["metadata"]["namespace"])
    assert {each["metadata"]["namespace"] for each in (role, binding, account)} == {namespace["metadata"]["name"]}
