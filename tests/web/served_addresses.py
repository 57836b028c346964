"""The addresses of the studio that is served to browser tests: a page of each kind, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.web.seed import Seeded


def _tables(of_experiment: str, of_project: str) -> dict[str, str]:
    return {
        "run table": f"{of_experiment}?pin=train.loss",
        "run table with a filter that is none": f"{of_project}?filter=loss+%3C+x",
        "groups of runs": f"{of_project}?group=state&columns=train.loss",
    }


def addresses(studio: Seeded) -> dict[str, str]:
    project, definition = studio.digits.pk, studio.version.definition.pk
    return {
        "projects": "/projects/",
        "new project": "/projects/new/",
        "project": f"/projects/{project}/",
        **{tab: f"/projects/{project}/{tab}/" for tab in ("assets", "jobs", "members", "settings", "triggers")},
        "variables": f"/projects/{project}/variables/?edit=HF_TOKEN",
        "variables of a definition": f"/definitions/{definition}/variables/",
        "tokens": "/profile/tokens/",
        "new definition": f"/projects/{project}/definitions/new/",
        "new experiment": f"/projects/{project}/experiments/new/",
        "edit as new": f"/projects/{project}/experiments/new/?like={studio.experiment.pk}",
        "new data": f"/projects/{project}/data/new/",
        "data": f"/data/{studio.data.pk}/",
        "data folder": f"/data/{studio.data.pk}/?path=train",
        "data file": f"/data/{studio.data.pk}/?path=train/labels.csv",
        "data picture": f"/data/{studio.data.pk}/?path=train/0.png",
        "unfinished upload": f"/uploads/{studio.upload.pk}/",
        "shared data": "/data/shared/",
        "definition": f"/definitions/{definition}/",
        "new version": f"/definitions/{definition}/versions/new/",
        "code": f"/versions/{studio.version.pk}/code/",
        "experiment": f"/experiments/{studio.experiment.pk}/",
        **_tables(f"/experiments/{studio.experiment.pk}/table/", f"/projects/{project}/runs/"),
        "sorted and found": f"/experiments/{studio.experiment.pk}/?sort=train+loss&order=down&q=learning",
        "compare": f"/experiments/{studio.experiment.pk}/compare/",
        "experiment overview": f"/experiments/{studio.experiment.pk}/overview/",
        "cluster": "/cluster/",
        "environments": "/cluster/environments/",
        "environment": f"/cluster/environments/{studio.environment.pk}/",
        "node": "/cluster/nodes/local/",
        "usage": "/cluster/usage/",
        "sharing": "/cluster/sharing/",
        "object store": "/cluster/store/",
        "pilots": "/cluster/pilots/",
        "pool of pilots": "/cluster/pilots/gpu/",
        "pool of pilots of Ray": "/cluster/pilots/shared/",
        "pool of pilots of Kubernetes": "/cluster/pilots/pods/",
        "add a machine": "/cluster/nodes/new/?arriving=beta",
        "instance groups": "/cluster/groups/",
        "instance group": "/cluster/groups/EDT%20Studio/",
        "search": "/search/?q=learning",
        **{name: f"/{name}/" for name in ("profile", "notifications", "shortcuts")},
        "notification choices": "/notifications/choices/",
        "project webhooks": f"/projects/{project}/webhooks/",
        **_addresses_of_runs(studio),
    }


def _addresses_of_runs(studio: Seeded) -> dict[str, str]:
    run, done = studio.running.pk, studio.completed.pk
    return {
        "compare across": f"/compare/?run={studio.completed.pk}&run={studio.other.pk}&run=999999",
        "run with changes": f"/runs/{studio.failed.pk}/again/",
        "run notes": f"/runs/{done}/notes/",
        "run": f"/runs/{run}/",
        "completed run": f"/runs/{done}/",
        "run overview": f"/runs/{run}/overview/",
        "logs": f"/runs/{done}/logs/",
        "all logs": f"/runs/{done}/logs/?name=*",
        "all logs searched": f"/runs/{done}/logs/?name=*&q=0",
        "results": f"/runs/{done}/results/",
        "media": f"/runs/{done}/media/",
        "picture of a run": f"/runs/{done}/look/confusion.png",
        "text of a run": f"/runs/{done}/look/log/driver/console.log",
        "table of a run": f"/runs/{done}/look/tables/wide%20and%20short.csv",
        "odd table of a run": f"/runs/{done}/look/tables/odd.csv",
        "arrays of a run": f"/runs/{done}/look/tables/arrays.npz",
        "json of a run": f"/runs/{done}/look/tables/report.json",
        "failed run": f"/runs/{studio.failed.pk}/",
        "waiting run": f"/runs/{studio.queued.pk}/",
    }
