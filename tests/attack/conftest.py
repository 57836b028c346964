"""A studio for each level of the box that this machine can have, its people, and what became of the attack on it."""

from __future__ import annotations

import json
import secrets
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.attack.scene import HURRIED, SLOTS, Scene, hostile_files
from tests.e2e.studio import Studio, keeps_people_apart

REFUSED = {"EACCES", "EPERM", "ENOENT", "ESRCH", "EXDEV", "ENOSYS", "EROFS", "ENOTDIR", "ENOTTY", "EAFNOSUPPORT"}
REFUSED |= {"ECONNREFUSED", "ENETUNREACH", "EHOSTUNREACH", "ConnectionAbortedError", "TimeoutError", "gaierror"}


@dataclass(frozen=True)
class Finding:
    """One try of the attacker's script: what came of it, and what that said."""

    kind: str
    what: str
    outcome: str
    said: str


@dataclass
class Attack:
    """What Charlie's script has tried next to Alice's job: a run that has ended, and its findings."""

    scene: Scene
    run: int
    poisoned: int
    mark: str
    before: dict[str, object] = field(default_factory=dict, repr=False)
    findings: dict[str, list[Finding]] = field(default_factory=lambda: defaultdict(list), repr=False)

    def opened(self, *kinds: str) -> list[Finding]:
        """What was not refused. There was something to try of each kind."""
        untried = [kind for kind in kinds if not self.findings[kind]]
        assert not untried, f"nothing was tried: {untried}"
        return [each for kind in kinds for each in self.findings[kind] if each.outcome not in REFUSED]


@contextmanager
def studio_with_people(folder: Path, *, trusting: bool = True, **settings: str) -> Iterator[Scene]:
    studio = Studio(slots=SLOTS, settings={**HURRIED, **settings}, trusting=trusting)
    try:
        studio.start()
        yield Scene(studio, folder)
    finally:
        studio.close()


def vital(scene: Scene) -> dict[str, object]:
    """What of Alice's job and of the studio must be the same after an attack."""
    wanted = "SELECT b.sha256 FROM experiments_bundle b JOIN experiments_definitionversion v ON v.bundle_id = b.id"
    ((sha256,),) = scene.studio.rows(
        f"{wanted} JOIN experiments_trainingrun r ON r.version_id = v.id WHERE r.id = ?",
        scene.hers,
    )
    columns = "state, attempt, error_message, outcome, version_id, submitted_by_id, priority, max_slots"
    return {
        "run": scene.studio.rows(f"SELECT {columns} FROM experiments_trainingrun WHERE id = ?", scene.hers),
        "driver": sorted(each.pid for each in scene.processes_of(scene.hers)),
        "studio": sorted(each.pid for each in scene.studio.processes("edt-studio: web")),
        "host": sorted(each.pid for each in scene.studio.processes("training_runtime.host")),
        "code": sorted((path.name, path.read_bytes()) for path in (scene.studio.home / "code" / sha256).iterdir()),
        "secrets": sorted((path.name, path.read_bytes()) for path in (scene.studio.home / "secrets").iterdir()),
        "people": scene.studio.rows("SELECT username, is_staff, password FROM experiments_user ORDER BY username"),
    }


def attack(scene: Scene) -> Attack:
    """Charlie runs what he has, and looks at what it found, as a user would."""
    charlie = scene.meet("charlie")
    added = charlie.browser.post(f"/projects/{charlie.project}/members/", {"username": "alice", "role": "editor"})
    assert added.status == 302, added.text[:500]
    (scene.studio.home / "data" / "shared.txt").write_text("everybody's")
    mark = f"left-behind-{secrets.token_hex(8)}"
    outside = Path("/dev/shm", mark)
    outside.write_text(scene.mark)
    try:
        before = vital(scene)
        poisoned = scene.submit(charlie, hostile_files(scene, mark), "poisoned.py 1", name="poisoned", distributed="elastic", max_slots=1)
        run = scene.submit(charlie, hostile_files(scene, mark), "main.py", name="main")
        scene.until_ended(run)
    finally:
        outside.unlink()
    found = Attack(scene, run, poisoned, mark, before)
    answer = charlie.browser.get(f"/runs/{run}/files/findings.jsonl")
    assert answer.status == 200, scene.console(run)[-3000:]
    for line in answer.text.splitlines():
        each: Mapping[str, str] = json.loads(line)
        found.findings[each["kind"]].append(Finding(**each))
    return found


@pytest.fixture(scope="package")
def strongest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """A studio whose box keeps people apart, and Alice's job in it."""
    if not keeps_people_apart():
        pytest.skip("no box of this machine keeps people apart: that needs root, and Landlock")
    with studio_with_people(tmp_path_factory.mktemp("strongest")) as scene:
        scene.begin_alices_training()
        yield scene


@pytest.fixture(scope="package")
def attacked(strongest: Scene) -> Attack:
    return attack(strongest)
