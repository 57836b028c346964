"""Priority, as the people who share the slots live through it: Alice raises hers, sees beforehand what that does to Bob, does it, both
watch it happen, Bob reads why; then it is put back, and Bob's run goes on with the very next step. Pausing and resuming belong to it.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.bundles import DIGITS, digits
from tests.e2e.studio import Studio, wait_until
from tests.e2e.test_mishaps import run_definition, state
from tests.e2e.test_story import journal, make_project, steps_in_journal
from tests.web.browsing import agree

pytestmark = [pytest.mark.e2e, pytest.mark.shared_studio, pytest.mark.timeout(300)]
AS_IT_WAS = """
from experiments import services
from experiments.models import ClusterRules, User
rules = ClusterRules._meta
services.set_policy(by=User.objects.get(username="admin"), policy=rules.get_field("policy").default,
                    priority_ceiling=rules.get_field("priority_ceiling").default)
"""


def starts_a_long_job(page: Page, studio: Studio, code: Path, *, project: str, name: str) -> int:
    make_project(page, project, "")
    number = int(re.findall(r"/projects/(\d+)/", page.url)[0])
    return run_definition(page, studio, number, name=name, code=code, command="main.py --epochs 500", folder="digits")


def admin_changes_the_policy(admin: Page, studio: Studio) -> None:
    admin.goto(f"{studio.url}/cluster/")
    admin.get_by_role("link", name="Scheduling policy").click()
    admin.get_by_role("radio", name="Priority").check()
    expect(admin.locator("#preview")).to_contain_text("Nobody's slots would change now.")
    admin.get_by_label("Highest priority without an administrator").fill("9000")
    admin.get_by_label("Reason").fill("deadlines")
    admin.get_by_role("button", name="Apply").click()
    expect(admin.locator("#history")).to_contain_text("admin changed the policy from fair share to priority")


def opens_priority_and_slots(page: Page) -> None:
    page.get_by_role("link", name="Priority and slots").click()
    expect(page.locator("dialog#change")).to_be_visible()


def types_priority(page: Page, priority: int) -> None:
    """Key by key, as a person does; the preview follows."""
    field = page.get_by_role("spinbutton", name=re.compile("^Priority"))
    field.select_text()
    field.press_sequentially(str(priority), delay=20)


def shows_slots(page: Page, count: int) -> None:
    """The run's page says so by itself, without a reload."""
    expect(page.locator("#tiles")).to_contain_text(f"{count} of 4", timeout=30_000)
    assert page.evaluate("window.notReloaded")


def watches(page: Page, studio: Studio, run: int, *, slots: int) -> None:
    page.goto(f"{studio.url}/runs/{run}/")
    page.evaluate("window.notReloaded = true")
    shows_slots(page, slots)


def makes_steps(studio: Studio, *runs: int) -> None:
    before = {run: len(steps_in_journal(studio, run)) for run in runs}
    wait_until(lambda: all(len(steps_in_journal(studio, run)) > before[run] for run in runs), f"runs {runs} make steps")


def kinds(studio: Studio, run: int) -> list[str]:
    return [event["kind"] for event in journal(studio, run) if event["kind"] in ("suspended", "resumed")]


def alice_takes_all_and_bob_reads_why(alice: Page, bob: Page, studio: Studio, alices: int, bobs: int) -> None:
    opens_priority_and_slots(alice)
    types_priority(alice, 9000)
    preview = alice.locator("#preview")
    expect(preview.get_by_role("row", name="a run in another project bob")).to_contain_text("2 → 0")
    expect(preview.get_by_role("row", name="alices-digits alice")).to_contain_text("2 → 4")
    expect(preview).to_contain_text("gave 2 slots to alice's run in another project (priority 9000)")
    assert studio.held() == {alices: 2, bobs: 2}, "a preview changes nothing"
    alice.get_by_role("button", name="Set priority").click()
    expect(alice.get_by_text("The priority of alices-digits is now 9000.")).to_be_visible()
    expect(alice.locator("dialog#change")).to_be_hidden()
    shows_slots(alice, 4)
    shows_slots(bob, 0)
    expect(bob.locator("#tiles")).to_contain_text("Suspended")
    expect(bob.locator("#head")).to_contain_text("all 4 slots are held by alice at priority 9000 or higher")
    assert studio.held() == {alices: 4}


def alice_puts_it_back(alice: Page, bob: Page, studio: Studio, alices: int, bobs: int) -> None:
    opens_priority_and_slots(alice)
    types_priority(alice, 5000)
    expect(alice.locator("#preview").get_by_role("row", name="a run in another project bob")).to_contain_text("0 → 2")
    alice.get_by_role("button", name="Set priority").click()
    expect(alice.locator("dialog#change")).to_be_hidden()
    shows_slots(bob, 2)
    shows_slots(alice, 2)
    expect(bob.locator("#tiles")).to_contain_text("Running")
    makes_steps(studio, alices, bobs)


def bob_pauses_and_resumes(alice: Page, bob: Page, studio: Studio, alices: int, bobs: int) -> None:
    bob.get_by_role("button", name="Pause").click()
    shows_slots(bob, 0)
    expect(bob.locator("#head")).to_contain_text("paused: holds nothing until somebody resumes it")
    shows_slots(alice, 4)
    bob.get_by_role("button", name="Resume").click()
    shows_slots(bob, 2)
    shows_slots(alice, 2)
    makes_steps(studio, alices, bobs)


def the_history_says_who_did_what(alice: Page, bob: Page, studio: Studio, alices: int, bobs: int) -> None:
    alice.goto(f"{studio.url}/runs/{alices}/overview/")
    expect(alice.locator("main")).to_contain_text("alice changed the priority from 5000 to 9000.")
    expect(alice.locator("main")).to_contain_text("alice changed the priority from 9000 to 5000.")
    bob.goto(f"{studio.url}/runs/{bobs}/overview/")
    for words in ("gave 2 slots to alice's run in another project (priority 9000)", "Paused by bob.", "Resumed by bob."):
        expect(bob.locator("main")).to_contain_text(words)


def stops(page: Page, studio: Studio, run: int) -> None:
    page.goto(f"{studio.url}/runs/{run}/")
    page.get_by_role("button", name="Stop").click()
    agree(page)  # "Stop alices-digits?"


def no_step_was_lost_or_repeated(studio: Studio, *runs: int) -> None:
    for run in runs:
        steps = steps_in_journal(studio, run)
        assert steps == list(range(1, len(steps) + 1))
        stored = studio.rows(
            "SELECT COUNT(*), COUNT(DISTINCT m.step) FROM experiments_metric m JOIN experiments_metricseries s ON s.id = m.series_id"
            " WHERE s.name = 'loss' AND s.\"group\" = 'train' AND s.run_id = ?",
            run,
        )
        assert stored == [(len(steps), len(steps))]


def test_alice_raises_her_priority_and_bob_reads_why_and_loses_no_step(studio: Studio, person: Callable[..., Page], tmp_path: Path) -> None:
    shutil.copytree(DIGITS / "data", studio.home / "data" / "digits", dirs_exist_ok=True)
    code = digits(tmp_path)
    admin, alice, bob = person("admin", staff=True), person("alice"), person("bob")
    admin_changes_the_policy(admin, studio)

    alices = starts_a_long_job(alice, studio, code, project="Raised", name="alices-digits")
    bobs = starts_a_long_job(bob, studio, code, project="Patient", name="bobs-digits")
    watches(alice, studio, alices, slots=2)  # equals share
    watches(bob, studio, bobs, slots=2)
    makes_steps(studio, alices, bobs)

    alice_takes_all_and_bob_reads_why(alice, bob, studio, alices, bobs)
    makes_steps(studio, alices)
    alice_puts_it_back(alice, bob, studio, alices, bobs)
    assert kinds(studio, bobs) == ["suspended", "resumed"]
    bob_pauses_and_resumes(alice, bob, studio, alices, bobs)
    assert kinds(studio, bobs) == ["suspended", "resumed"] * 2
    assert kinds(studio, alices) == []
    the_history_says_who_did_what(alice, bob, studio, alices, bobs)

    stops(alice, studio, alices)
    stops(bob, studio, bobs)
    wait_until(lambda: {state(studio, alices), state(studio, bobs)} == {"stopped"}, "both are stopped")
    wait_until(lambda: not studio.held(), "every slot is free")
    busy = studio.rows("SELECT busy_s FROM experiments_trainingrun WHERE id IN (?, ?)", alices, bobs)
    assert all(busy_s for (busy_s,) in busy), "the machine has counted their work"
    no_step_was_lost_or_repeated(studio, alices, bobs)
    studio.shell(AS_IT_WAS)
