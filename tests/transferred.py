"""Archives of projects for tests: exported, imported as the studio does it, and changed as somebody hostile would."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django.utils import timezone

from experiments import services
from experiments.files import runfiles
from experiments.metrics import ingest
from experiments.models import DataAsset, MetricSeries, Project, ProjectImport, TrainingRun, User
from experiments.services import imports
from experiments.transfer import exporting, importing
from experiments.transfer.format import MANIFEST
from tests import cast

Entries = dict[str, bytes]


def exported(project: Project) -> bytes:
    return b"".join(exporting.export(project, now=timezone.now(), studio="test"))


def send(archive: bytes, by: User, *, name: str = "") -> ProjectImport:
    """All of it, waiting."""
    order = imports.begin_import(by=by, file_name="project.zip", size_bytes=len(archive), name=name)
    imports.receive_archive(order, offset=0, body=io.BytesIO(archive))
    return imports.finish_archive(order)


def imported(archive: bytes, by: User, *, name: str = "") -> ProjectImport:
    """As it is when the studio has taken it in, or refused it."""
    order = send(archive, by, name=name)
    importing.go_on(timezone.now)
    return ProjectImport.objects.get(pk=order.pk)


def pages(by: User, project: Project) -> dict[str, str]:
    """Of imports in several states, for a look."""
    now, name = timezone.now(), "project-digits-2026-11-24.zip"
    facts = {"created_by": by, "created_at": now, "file_name": name, "size_bytes": 4_200_000_000}
    said = {
        "arriving": {},
        "checking": {"says": "12 of 40 lists are checked."},
        "reading": {"says": "The metrics of 12 of 40 runs are read.", "project": project},
        "done": {"project": project, "notes": ["Set again the secrets of the project: HF_TOKEN.", f"Run 7 ({'W' * 90}) is running."]},
        "refused": {"says": f"runs/7/{'n' * 200} did not arrive as it was exported: send the archive again, or export the project again."},
    }
    made = {state: ProjectImport.objects.create(state=state, **facts, **more) for state, more in said.items()}
    return {"imports": "/projects/import/", **{f"{state} import": f"/imports/{each.pk}/" for state, each in made.items()}}


@dataclass
class Archive:
    """What is in one, to be changed and packed again, with hashes that fit unless a test wants others."""

    entries: Entries
    manifest: dict[str, Any]
    lists: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, packed: bytes) -> Archive:
        with zipfile.ZipFile(io.BytesIO(packed)) as archive:
            entries = {name: archive.read(name) for name in archive.namelist()}
        made = cls(entries, json.loads(entries.pop(MANIFEST)))
        for each in (*made.manifest["data"], *made.manifest["runs"], *made.manifest["models"]):
            made.lists[each["list"]] = json.loads(entries.pop(each["list"]))
        return made

    def run(self, place: int = 0) -> dict[str, Any]:
        return self.lists[self.manifest["runs"][place]["list"]]

    def model(self) -> dict[str, Any]:
        return self.lists[self.manifest["models"][0]["list"]]

    def data(self) -> dict[str, Any]:
        return self.lists[self.manifest["data"][0]["list"]]

    def put(self, run: dict[str, Any], path: str, content: bytes, *, entry: str = "") -> None:
        """A file of a run, in the place of one of its path."""
        entry = entry or f"runs/{run['number']}/{path}"
        run["files"] = [each for each in run["files"] if each["path"] != path]
        digest = hashlib.sha256(content).hexdigest()
        run["files"].append({"entry": entry, "path": path, "size_bytes": len(content), "sha256": digest, "modified": 1.7e9})
        self.entries[entry] = content

    def packed(
        self,
        *,
        compressed: bool = False,
        more: Callable[[zipfile.ZipFile], None] = lambda _: None,
        texts: Mapping[str, bytes] | None = None,
    ) -> bytes:
        """`more`: adds what it likes; `texts`: what stands in the place of lists and of the manifest."""
        into, said = io.BytesIO(), dict(texts or {})
        with zipfile.ZipFile(into, "w", zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED) as archive:
            for name, content in self.entries.items():
                archive.writestr(name, content)
            for name, facts in self.lists.items():
                text = said.get(name, json.dumps(facts).encode())
                archive.writestr(name, text)
                for each in (*self.manifest["data"], *self.manifest["runs"], *self.manifest["models"]):
                    each["sha256"] = hashlib.sha256(text).hexdigest() if each["list"] == name else each["sha256"]
            archive.writestr(MANIFEST, said.get(MANIFEST, json.dumps(self.manifest).encode()))
            more(archive)
        return into.getvalue()


def small(project: Project, *, by: User) -> bytes:
    """The archive of a project with a run that has ended, code and data."""
    now = timezone.now()
    data = services.add_data(project, by=by, name="letters", files=[("a.csv", 4, io.BytesIO(b"1,2\n"))])
    version = cast.definition(project, by=by)
    made = services.create_experiment(project, by=by, name="reads", data_asset=data, versions=[version])
    run = services.run_experiment(made, by=by, now=now)[0]
    cast.write_journal(run, cast.started(), *(cast.step(number) for number in range(1, 6)), cast.finished(), t=now.timestamp() - 100)
    (runfiles.folder(run) / "model").mkdir()
    (runfiles.folder(run) / "model" / "weights.bin").write_bytes(b"\0" * 100)
    ingest.catch_up(run.pk, now=now)
    services.stop_run(run, by=by, now=now)
    cast.empty_trash()
    return exported(project)


def kept(home: Path) -> set[str]:
    """What lies in the stores, and rows."""
    found = {f"{store}/{path.name}" for store in ("runs", "assets", "models", "uploads") for path in cast.stored(home / store)}
    rows = {
        f"{each.__name__} {pk}"
        for each in (Project, TrainingRun, DataAsset, MetricSeries)
        for pk in each.objects.values_list("pk", flat=True)
    }
    return found | rows


def refused(sent: bytes, by: User, home: Path) -> str:
    """Why, of one of which nothing is left."""
    before = kept(home)
    order = imported(sent, by)
    assert order.state == ProjectImport.State.REFUSED, order.says
    assert order.project is None
    cast.empty_trash()
    assert kept(home) == before
    assert not list((home / "tmp").iterdir())
    assert order.says.endswith(".")
    return order.says
