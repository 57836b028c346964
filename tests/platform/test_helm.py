"""The Helm chart in deploy/helm, as Helm renders it: against the schemas of Kubernetes, and against what it starts, mounts and allows."""

from __future__ import annotations

import copy
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from experiments.cluster.kubernetes.provider import Kubernetes
from experiments.cluster.providers import EngineProblem, Order
from tests.domain.kubernetes_schemas import VERSIONS
from tests.domain.kubernetes_server import RULES, api_server_of
from tests.e2e.studio import printed_commands
from training_runtime.node.link import LAST_FILES_S, LAST_STATES_S
from training_runtime.node.settings import parse

REPOSITORY = Path(__file__).resolve().parents[2]
CHART = REPOSITORY / "deploy" / "helm" / "edt-studio"
FIRST_LOGIN = "python manage.py person admin --staff"
HELM = REPOSITORY / ".cache" / "helm" / "helm"
needs_helm = pytest.mark.skipif(not HELM.exists(), reason="Helm is not installed in .cache/helm (tools/setup.sh test)")
pytestmark = needs_helm
POD = {"volumes": [{"name": "data", "emptyDir": {}}], "containers": [{"name": "edt-node"}]}
VALUES = {
    "nodes": {"replicas": 2, "nodeSelector": {"gpu": "a100"}},
    "pilots": {"seeNodes": True, "namespace": "machines", "pod": POD},
    "studio": {
        "settings": {"EDT_TRASH_DAYS": "30"},
        "ingress": {"className": "nginx", "annotations": {"a": "b"}},
        "tolerations": [{"key": "a", "operator": "Exists"}],
        "nodeSelector": {"disk": "ssd"},
    },
    "imagePullSecrets": [{"name": "registry"}],
    "storage": {"className": "fast"},
}
EVERYTHING = tuple(word for name, value in VALUES.items() for word in ("--set-json", f"{name}={json.dumps(value)}"))
LEAST = ("--set", "pilots.enabled=false", "--set", "studio.ingress.enabled=false", "--set", "storage.existingClaim=work")


def helm(*words: str, home: Path) -> subprocess.CompletedProcess[str]:
    """`home`: where it keeps what it keeps."""
    own = {f"HELM_{kind}_HOME": str(home / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA")}
    return subprocess.run([HELM, *words], env={**own, "PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=False, timeout=60)


def rendered(tmp_path: Path, *values: str, name: str = "edt-studio") -> list[dict[str, Any]]:
    """What Helm makes of it, in the namespace edt where the values name no other."""
    done = helm("template", name, str(CHART), "--namespace", "edt", *values, home=tmp_path)
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def of(objects: list[dict[str, Any]], kind: str, name: str = "edt-studio") -> dict[str, Any]:
    (found,) = [each for each in objects if each["kind"] == kind and each["metadata"]["name"] == name]
    return found


def test_helm_has_nothing_to_say_about_it(tmp_path: Path) -> None:
    done = helm("lint", "--strict", str(CHART), *EVERYTHING, home=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("values", "kinds"), [((), 7), (EVERYTHING, 12), (LEAST, 3)], ids=["as it is", "everything", "the least"])
def test_it_is_what_kubernetes_takes_and_nothing_is_misspelt(tmp_path: Path, values: tuple[str, ...], kinds: int) -> None:
    objects = rendered(tmp_path, *values)
    assert len(objects) == kinds, [each["kind"] for each in objects]
    for each in objects:
        for version in VERSIONS:
            kubernetes_validate.validate(each, version, strict=True)


def test_a_misspelt_object_would_be_noticed(tmp_path: Path) -> None:
    studio = of(rendered(tmp_path), "StatefulSet")
    studio["spec"]["template"]["spec"]["enableServiceLink"] = False
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(studio, VERSIONS[0], strict=True)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (["--set", "studio.hots=a.example.org"], "hots"),
        (["--set", "studio.host=https://a.example.org"], "/studio/host"),
        (["--set", "nodes.replicas=many"], "/nodes/replicas"),
        (["--set", "storage.size=a lot"], "/storage/size"),
        (["--set-string", "pilots.enabled=yes"], "/pilots/enabled"),
        (["--set-json", "pilots.pod=[]"], "/pilots/pod"),
        (["--set", "studio.settings.EDT_KUBERNETES_TOKEN=secret"], "EDT_KUBERNETES_TOKEN"),
        (["--set", "studio.settings.EDT_OIDC_CLIENT_SECRET=secret"], "EDT_OIDC_CLIENT_SECRET"),
        (["--set", "studio.settings.EDT_METRICS_TOKEN=secret"], "EDT_METRICS_TOKEN"),
        (["--set", "studio.settings.DATABASE_URL=postgres://a:b@c/d"], "DATABASE_URL"),
        (["--set", "connections.secretName="], "/connections/secretName"),
    ],
)
def test_values_that_mean_nothing_are_refused(tmp_path: Path, values: list[str], words: str) -> None:
    done = helm("template", "edt-studio", str(CHART), *values, home=tmp_path)
    assert done.returncode != 0
    assert "values don't meet the specifications of the schema" in done.stderr
    assert words in done.stderr


def test_its_processes_are_those_of_the_compose_file(tmp_path: Path) -> None:
    """But for host and agent: no user code runs beside the studio's keys."""
    spec = of(rendered(tmp_path), "StatefulSet")["spec"]["template"]["spec"]
    compose = yaml.safe_load((REPOSITORY / "docker-compose.yml").read_text())["services"]
    (prepare,), containers = spec["initContainers"], {each["name"]: each for each in spec["containers"]}
    assert set(containers) == {"web", "control", "ingest"}
    begins = f"{' '.join(prepare['command'])} && exec {' '.join(containers['web']['command'])}"
    assert begins == compose["web"]["command"][-1]
    for name in ("control", "ingest"):
        assert containers[name]["command"] == compose[name]["command"]
        assert containers[name]["livenessProbe"]["exec"]["command"] == compose[name]["healthcheck"]["test"][1:]


def test_every_setting_that_it_gives_is_one_and_no_password_is_written_down(tmp_path: Path) -> None:
    objects = rendered(tmp_path, *EVERYTHING)
    known = set(re.findall(r'"((?:EDT_|DATABASE_)[A-Z_]+)"', (REPOSITORY / "webapp" / "settings.py").read_text()))
    for container in of(objects, "StatefulSet")["spec"]["template"]["spec"]["containers"]:
        given = {each["name"]: each for each in container["env"]}
        assert set(given) - {"EDT_TRASH_DAYS"} <= known | {"EDT_REDIS_URL"}
        for name in ("DATABASE_URL", "EDT_REDIS_URL"):
            assert given[name]["valueFrom"] == {"secretKeyRef": {"name": "edt-studio", "key": name}}
        assert given["EDT_KUBERNETES_NAMESPACE"]["value"] == "machines"
    assert not [each for each in objects if each["kind"] == "Secret"]


def test_everything_that_is_mounted_or_named_is_there(tmp_path: Path) -> None:
    for values in ((), EVERYTHING, LEAST):
        objects = rendered(tmp_path, *values)
        made = {(each["kind"], each["metadata"]["name"]) for each in objects} | {
            ("PersistentVolumeClaim", "work"),
            ("ConfigMap", "kube-root-ca.crt"),
        }
        for each in (each for each in objects if each["kind"] == "StatefulSet"):
            spec = each["spec"]["template"]["spec"]
            volumes = {volume["name"]: volume for volume in spec["volumes"]}
            volumes |= {claim["metadata"]["name"]: claim for claim in each["spec"].get("volumeClaimTemplates", [])}
            mounts = {mount["name"] for part in spec.get("initContainers", []) + spec["containers"] for mount in part["volumeMounts"]}
            assert mounts == set(volumes)
            for volume in spec["volumes"]:
                if "configMap" in volume:
                    assert ("ConfigMap", volume["configMap"]["name"]) in made
                if "persistentVolumeClaim" in volume:
                    assert ("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]) in made
            assert ("Service", each["spec"]["serviceName"]) in made
            assert each["spec"]["selector"]["matchLabels"].items() <= each["spec"]["template"]["metadata"]["labels"].items()
            assert ("ServiceAccount", spec.get("serviceAccountName", "edt-studio")) in made


def test_services_find_their_own_pods_and_no_others(tmp_path: Path) -> None:
    objects = rendered(tmp_path, *EVERYTHING)
    pods = {each["metadata"]["name"]: each["spec"]["template"]["metadata"]["labels"] for each in objects if each["kind"] == "StatefulSet"}
    assert set(pods) == {"edt-studio", "edt-studio-node"}
    for service in (each for each in objects if each["kind"] == "Service"):
        found = [name for name, labels in pods.items() if service["spec"]["selector"].items() <= labels.items()]
        assert found == [service["metadata"]["name"]]


def test_the_rights_of_the_studio_are_the_least_with_which_pilots_come_and_go(tmp_path: Path, settings: Any) -> None:
    objects = rendered(tmp_path, *EVERYTHING)
    role, binding = of(objects, "Role", "edt-studio-pilots"), of(objects, "RoleBinding", "edt-studio-pilots")
    assert role["rules"] == RULES
    assert (role["metadata"]["namespace"], binding["metadata"]["namespace"]) == ("machines", "machines")
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "edt-studio", "namespace": "edt"}]
    assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) == ("Role", "edt-studio-pilots")
    with api_server_of(settings) as server:
        _comes_and_goes("edt-1-a-1")
        for at, rule in enumerate(RULES):
            for verb in rule["verbs"]:
                server.rules = copy.deepcopy(RULES)
                server.rules[at]["verbs"].remove(verb)
                with pytest.raises(EngineProblem, match=f"cannot {verb} resource|Job edt-1-a-{at}{verb} has been"):
                    _comes_and_goes(f"edt-1-a-{at}{verb}")


def _comes_and_goes(name: str) -> None:
    provider = Kubernetes()
    provider.hold(Order(name, "a", "https://studio.example.org", "edtn_x", 60, 10, 1, ["--cpu=1"]))
    assert name in provider.leases()
    if not provider.ending(name):  # it says nothing where it may not look
        raise EngineProblem("cannot get resource")
    provider.release(name, begun=True, hurry=True)


def test_a_pilot_is_pulled_with_the_secrets_of_the_studio_and_made_as_the_values_say(tmp_path: Path) -> None:
    pulled = [{"name": "registry"}]
    assert json.loads(of(rendered(tmp_path, *EVERYTHING), "ConfigMap", "edt-studio-pod")["data"]["pod.json"]) == {
        **POD,
        "imagePullSecrets": pulled,
    }
    objects = rendered(tmp_path, "--set", "imagePullSecrets[0].name=registry")
    assert json.loads(of(objects, "ConfigMap", "edt-studio-pod")["data"]["pod.json"]) == {"imagePullSecrets": pulled}
    assert "ConfigMap" not in {each["kind"] for each in rendered(tmp_path)}
    (web, *_) = of(objects, "StatefulSet")["spec"]["template"]["spec"]["containers"]
    (file,) = [each["value"] for each in web["env"] if each["name"] == "EDT_KUBERNETES_POD"]
    assert [file.rpartition("/")[0]] == [each["mountPath"] for each in web["volumeMounts"] if each["name"] == "pod"]


def test_only_the_processes_that_ask_the_cluster_can(tmp_path: Path) -> None:
    spec = of(rendered(tmp_path), "StatefulSet")["spec"]["template"]["spec"]
    assert spec["automountServiceAccountToken"] is False
    asks = {each["name"] for each in spec["containers"] if any(mount["name"] == "account" for mount in each["volumeMounts"])}
    assert asks == {"web", "control"}
    none = rendered(tmp_path, *LEAST)
    assert {each["kind"] for each in none} == {"ServiceAccount", "Service", "StatefulSet"}
    assert not [each for each in of(none, "StatefulSet")["spec"]["template"]["spec"]["volumes"] if "projected" in each]


def test_a_pod_that_is_there_all_the_time_joins_with_its_own_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = of(rendered(tmp_path, *EVERYTHING), "StatefulSet", "edt-studio-node")["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    words = container["command"][-1].split()
    assert words[:2] == ["exec", "edt-node"]
    assert words[-2:] == ["<", '"/run/tokens/$POD_NAME"']
    token = tmp_path / "token"
    token.write_text("edtn_secret\n")
    monkeypatch.setattr("sys.stdin", token.open())
    there = {"$EDT_STUDIO": "https://studio.example.org", "$POD_IP": "10.1.2.3", "/var/lib/edt-node": str(tmp_path / "home")}
    settings = parse([there.get(word.strip('"'), word) for word in words[2:-2]], {})
    assert (settings.token, settings.studio, settings.address) == ("edtn_secret", "https://studio.example.org", "10.1.2.3")
    assert spec["terminationGracePeriodSeconds"] > LAST_STATES_S + LAST_FILES_S


def test_two_releases_do_not_meet(tmp_path: Path) -> None:
    one, other = (rendered(tmp_path, *EVERYTHING, name=name) for name in ("edt-studio", "lab"))
    names = [{(each["kind"], each["metadata"]["name"]) for each in objects} for objects in (one, other)]
    assert not names[0] & names[1]


def test_what_is_printed_to_install_it_is_what_kubectl_and_helm_take(tmp_path: Path) -> None:
    """Without a cluster: they say what they would make."""
    section = (REPOSITORY / "docs" / "operations.md").read_text().split("## In Kubernetes\n", 1)[1].split("\n## ", 1)[0]
    (connections,) = re.findall(r"```\n(.*?)```", section, flags=re.DOTALL)
    (tmp_path / "connections.env").write_text(connections)
    (tmp_path / "deploy").symlink_to(REPOSITORY / "deploy")
    namespace, secret, install, login = printed_commands("## In Kubernetes")
    (made,) = yaml.safe_load_all(_dry(f"{namespace} --output yaml", tmp_path))
    assert (made["kind"], made["metadata"]["name"]) == ("Namespace", "edt")
    (made,) = yaml.safe_load_all(_dry(f"{secret} --output yaml", tmp_path))
    assert (made["kind"], made["metadata"]["name"], set(made["data"])) == ("Secret", "edt-studio", {"DATABASE_URL", "EDT_REDIS_URL"})
    said = _dry(install, tmp_path)
    objects = [each for each in yaml.safe_load_all(said[said.index("MANIFEST:") :].split("NOTES:")[0].partition("\n")[2]) if each]
    container = next(each for each in of(objects, "StatefulSet")["spec"]["template"]["spec"]["containers"] if each["name"] == "web")
    given = {each["name"]: each for each in container["env"]}
    assert container["image"] == "registry.example.org/edt-studio:0.1.0"
    assert given["EDT_PUBLIC_URL"]["value"] == "https://studio.example.org"
    assert given["DATABASE_URL"]["valueFrom"]["secretKeyRef"]["name"] == made["metadata"]["name"]
    assert login in said, "the notes say it too"
    before, after = login.split(" -- ")
    assert before == "kubectl --namespace edt exec edt-studio-0 --container web"
    assert after == FIRST_LOGIN  # tests/e2e/test_chart.py runs it


def _dry(command: str, folder: Path) -> str:
    own = {"PATH": f"{HELM.parent}:/usr/bin:/bin", "HOME": str(folder), "KUBECONFIG": str(folder / "none")}
    done = subprocess.run(
        ["sh", "-c", f"{command} --dry-run=client"], env=own, cwd=folder, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
