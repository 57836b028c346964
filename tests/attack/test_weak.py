"""The levels that do not keep people's code apart: nothing of two people runs there until an administrator has said that they trust each
other (in a browser: tests/e2e/test_trust.py), and what `landlock` promises all the same holds against a script that tries everything."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.attack.conftest import Attack, attack, studio_with_people, vital
from tests.attack.scene import HOSTILE, Scene
from tests.attack.test_box import marked
from tests.e2e.studio import wait_until
from tests.host.box import needs_landlock

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
KEPT_OUT = "not keep people's code apart, and more than one person can run code here"
SAYS_NO_MORE = "an administrator says under Scheduling policy that you trust each other"
# What docs/sandbox.md says of `landlock` under "What is not promised".
OPEN_AT_LANDLOCK = {"mode", "times", "stat", "see", "priority", "processors", "shared memory", "other socket"}


def refuses_both(scene: Scene, level: str) -> None:
    """Alice's job and Bob's wait with a sentence, and no line of either has run."""
    for name in ("alice", "bob"):
        person = scene.meet(name)
        run = scene.submit(person, {"main.py": "open('/tmp/edt-has-run', 'w')\n"}, "main.py", name=name)
        words = f"the box of local ({level}) does {KEPT_OUT}"
        wait_until(lambda run=run, words=words: words in scene.plan(run), lambda run=run: f"it says so, and not: {scene.plan(run)}")
        assert SAYS_NO_MORE in scene.plan(run)
        assert "does not keep" in person.browser.get(f"/runs/{run}/").text
        assert scene.state(run) == "queued"
        assert not (scene.studio.folder(run) / "log").exists()
    assert scene.studio.held() == {}
    assert not Path("/tmp/edt-has-run").exists()


def test_without_a_box_nothing_of_two_people_runs(tmp_path: Path) -> None:
    with studio_with_people(tmp_path, trusting=False, EDT_SANDBOX="off") as scene:
        refuses_both(scene, "off")


@pytest.fixture(scope="module")
def weak(tmp_path_factory: pytest.TempPathFactory) -> Attack:
    """At `landlock`, where everything of everybody has the studio's user: an administrator has said that it is all right."""
    with studio_with_people(tmp_path_factory.mktemp("weak"), EDT_UID_BASE="0") as scene:
        scene.begin_alices_training()
        yield attack(scene)


@needs_landlock
def test_at_landlock_what_is_open_is_what_the_documentation_says(weak: Attack) -> None:
    assert {each.outcome for each in weak.findings["own"]} == {"open"}
    opened = {each.kind for kind in weak.findings for each in weak.opened(kind)} - {"own"}
    answered = {each.said for each in weak.opened("broker socket")}
    assert all("NOAUTH" in said for said in answered), "the broker asks for a password, whoever connects"
    assert opened - {"broker socket"} <= OPEN_AT_LANDLOCK, [each for kind in opened - OPEN_AT_LANDLOCK for each in weak.opened(kind)][:10]


@needs_landlock
def test_at_landlock_alices_job_and_the_studio_are_as_before_and_go_on(weak: Attack) -> None:
    scene = weak.scene
    before = scene.step(scene.hers)
    assert vital(scene) == weak.before
    wait_until(lambda: scene.step(scene.hers) > before, lambda: f"Alice's job trains on\n{scene.studio.tail()}")
    assert marked(weak.mark) == []


@needs_landlock
def test_at_landlock_a_script_that_hears_nothing_is_ended_too(weak: Attack) -> None:
    scene, mark = weak.scene, f"deaf-{weak.mark}"
    code: dict[str, str | Path] = {name: HOSTILE / name for name in ("deaf.py", "results.py")}
    run = scene.submit(scene.charlie, code, f"deaf.py {mark}", name="deaf")
    wait_until(lambda: len(marked(mark)) == 3, lambda: f"it and its helpers are there: {scene.plan(run)}\n{scene.console(run)}")
    assert scene.charlie.browser.post(f"/runs/{run}/stop/", {}).status == 302
    assert scene.until_ended(run) == "stopped"
    assert marked(mark) == []
