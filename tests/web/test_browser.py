"""The pages in a real browser: no error, no violation of the policy, nothing wider than the screen, readable for everybody, live."""

from __future__ import annotations

import zipfile
from functools import cache
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Page, Route, expect

from tests import cast
from tests.web.browsing import BY_LOOK, WCAG, Site, Visit, go, log_in, violations

ADMINISTRATORS = (
    "environments",
    "offered environment, looked after",
    "new offered environment",
    "change of an offered environment",
    "add a machine",
    "object store",
    "pilots",
    "pool of pilots",
    "pool of pilots of Ray",
    "pool of pilots of Kubernetes",
)  # of the cluster: pages of theirs


@pytest.mark.parametrize("part", range(8))  # of a hundred pages
def test_every_page_is_readable_for_everybody_and_fits_the_screen(visit: Visit, site: Site, part: int) -> None:
    person = cache(lambda name: visit(width=360, theme="dark", username=name))
    found = []
    for name in [name for name in site.pages if name != "url"][part::8]:
        page = person("dora" if name in ADMINISTRATORS else "alice")
        show(page, width=360, theme="dark")
        go(page, site, name)
        found += violations(page, BY_LOOK) + too_wide(page, name)  # the rest is the same in both
        show(page, width=1280, theme="light")
        found += violations(page, WCAG) + too_wide(page, name)
    assert not found, "\n".join(found)


def show(page: Page, *, width: int, theme: Literal["dark", "light"]) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    page.emulate_media(color_scheme=theme)


def too_wide(page: Page, name: str) -> list[str]:
    extra = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    return [f"{name} is {extra} pixels too wide"] if extra > 0 else []


def test_a_definition_is_added_in_the_side_panel_and_run(visit: Visit, site: Site, tmp_path: Path) -> None:
    page = visit()
    (tmp_path / "model.zip").write_bytes(cast.zipped({"folder/train.py": "print(1)\n", "folder/net.py": ""}).getvalue())
    go(page, site, "new experiment")
    page.get_by_label("Name").first.fill("From the panel")
    page.get_by_role("button", name="Add training definition").click()
    panel = page.get_by_role("dialog")
    panel.locator("input[type=file]").set_input_files(tmp_path / "model.zip")
    panel.get_by_role("button", name="train.py").click()
    panel.get_by_label("Name").fill(" ")
    panel.get_by_role("button", name="Create").click()
    expect(panel.locator("#panel_name_error")).to_be_visible()
    expect(panel).to_contain_text("model.zip, ")  # it is kept
    panel.get_by_label("Name").fill("net one")
    panel.get_by_role("button", name="Create").click()
    expect(panel).to_be_hidden()
    expect(page.locator("#associated")).to_contain_text("net one")
    page.get_by_role("button", name="Add training definition").click()
    page.get_by_role("tab", name="Existing training definition").click()
    page.get_by_role("dialog").get_by_label("LeNet").check()
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.locator("#associated tr")).to_have_count(2)
    page.get_by_role("button", name="Create and run").click()
    expect(page.get_by_role("heading", name="From the panel")).to_be_visible()
    expect(page.locator("tbody tr", has_text="From the panel")).to_have_count(2)


def test_a_script_with_a_space_in_its_name_is_offered_as_a_command_can_name_it(visit: Visit, site: Site, tmp_path: Path) -> None:
    page = visit()
    (tmp_path / "one.zip").write_bytes(cast.zipped({"my script.py": "print(1)\n"}).getvalue())
    (tmp_path / "two.zip").write_bytes(cast.zipped({"my script.py": "print(1)\n", "it's.py": ""}).getvalue())
    go(page, site, "new definition")
    command = page.get_by_label("Execution command")
    page.locator("input[type=file]").set_input_files(tmp_path / "one.zip")
    expect(command).to_have_value("'my script.py'")
    page.locator("input[type=file]").set_input_files(tmp_path / "two.zip")
    command.fill("python 'my script.py' --note 'two words' --lr {1,2}")
    page.get_by_role("button", name="it's.py").click()
    expect(command).to_have_value("'it'\"'\"'s.py' --note 'two words' --lr {1,2}")
    page.get_by_role("button", name="my script.py").click()
    expect(command).to_have_value("'my script.py' --note 'two words' --lr {1,2}")
    command.fill("--epochs 3")
    page.get_by_role("button", name="my script.py").click()
    expect(command).to_have_value("'my script.py' --epochs 3")
    page.get_by_role("button", name="Create").click()
    expect(page.locator(".notes")).to_contain_text("is saved as version 1")


def test_that_no_definition_is_chosen_is_said_until_one_is(visit: Visit, site: Site) -> None:
    page = visit(width=360)
    go(page, site, "new experiment")
    page.get_by_label("Name").first.fill("Too early")
    page.get_by_role("button", name="Create and run").click()
    missing = page.get_by_text("Choose at least one training definition.")
    expect(missing).to_be_visible()
    page.get_by_role("button", name="Add training definition").click()
    existing = page.get_by_role("tab", name="Existing training definition")
    existing.click()
    expect(existing).to_be_in_viewport(ratio=0.99)
    page.get_by_role("dialog").get_by_label("LeNet").check()
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.locator("#associated tr")).to_have_count(1)
    expect(missing).to_have_count(0)


def test_arguments_are_filled_in_as_a_form_or_as_text(visit: Visit, site: Site) -> None:
    page = visit()
    page.goto(site.pages["url"] + site.pages["new experiment"] + "?like=1")
    row = page.locator("#associated tr")
    row.get_by_text("Arguments of main.py").click()
    command = row.get_by_label("Execution command")
    expect(row.get_by_label("--epochs")).to_have_value("20")
    row.get_by_label("--lr").fill("0.01")
    row.get_by_label("--optimizer").select_option("sgd")
    row.get_by_label("--amp").check()
    row.get_by_label("--note").fill("it's two words")
    expect(command).to_have_value("main.py --epochs 20 --lr 0.01 --optimizer sgd --amp --note 'it'\"'\"'s two words'")
    row.get_by_label("--epochs").fill("10")  # the script's default need not be said
    command.evaluate("input => { input.value = input.value.replace('0.01', '-2e-3').replace(' --amp', ''); }")
    command.press("End")
    command.type(" --other 1")
    expect(row.get_by_label("--lr")).to_have_value("-2e-3")
    expect(row.get_by_label("--amp")).not_to_be_checked()
    page.get_by_role("button", name="Create and run").click()
    page.locator("#runs tbody th a", has_text="Learning rates (copy)").click()
    page.get_by_role("link", name="Overview").click()
    expect(page.get_by_role("main")).to_contain_text("main.py --lr -2e-3 --optimizer sgd --note")
    expect(page.get_by_role("main")).to_contain_text("--other 1")


def test_what_is_filled_in_before_the_pages_script_has_come_is_not_lost(visit: Visit, site: Site) -> None:
    page = visit()
    held: list[Route] = []
    page.route("**/arguments*.js", lambda route: held.append(route))
    page.goto(site.pages["url"] + site.pages["new experiment"] + "?like=1", wait_until="commit")
    row = page.locator("#associated tr")
    row.get_by_text("Arguments of main.py").click()
    row.get_by_label("--lr").fill("0.1, 0.3")
    row.get_by_label("--optimizer").select_option("sgd")
    row.get_by_label("--amp").check()
    for route in held:
        route.continue_()
    expect(row.get_by_label("Execution command")).to_have_value("main.py --epochs 20 --lr {0.1,0.3} --optimizer sgd --amp")
    expect(row.get_by_label("--epochs")).to_have_value("20")
    expect(page.locator("#makes")).to_have_text("Makes 2 runs")


def test_a_list_of_values_in_an_arguments_field_makes_a_run_of_each(visit: Visit, site: Site) -> None:
    page = visit()
    page.goto(site.pages["url"] + site.pages["new experiment"] + "?like=1")
    row = page.locator("#associated tr")
    row.get_by_text("Arguments of main.py").click()
    command = row.get_by_label("Execution command")
    row.get_by_label("--lr").fill("0.1, 0.3")
    row.get_by_label("--note").fill('"one, two"')
    expect(command).to_have_value("main.py --epochs 20 --lr {0.1,0.3} --note 'one, two'")
    expect(page.locator("#makes")).to_have_text("Makes 2 runs")
    row.get_by_label("--optimizer").select_option(label="each of them (3 runs)")
    expect(row.locator("[data-makes]")).to_have_text("Makes 6 runs")
    command.fill("main.py --lr {1, '2,5'} --optimizer {sgd,adam} --note 'x, y'")
    expect(row.get_by_label("--lr")).to_have_value('1, "2,5"')
    expect(row.get_by_label("--note")).to_have_value('"x, y"')
    expect(row.get_by_label("--optimizer")).to_have_value("sgd, adam")
    row.get_by_label("--optimizer").select_option("sgd")
    row.get_by_label("--lr").fill("0.1, 0.3,")
    expect(command).to_have_value("main.py --lr {0.1,0.3} --optimizer sgd --note 'x, y'")
    row.get_by_role("button", name="once more").click()
    expect(page.locator("#associated tr")).to_have_count(2)
    second = page.locator("#associated tr").nth(1)
    second.get_by_label("--lr").fill("5")
    expect(page.locator("#makes")).to_have_text("Makes 3 runs")
    page.get_by_label("Name").first.fill("A grid")
    page.get_by_role("button", name="Create and run").click()
    rows = page.locator("#runs tbody th a")
    expect(rows).to_have_count(3)
    assert sorted(rows.all_inner_texts()) == ["A grid: lr=0.1", "A grid: lr=0.3", "A grid: lr=5"]


def test_single_keys_lead_around_and_the_bell_rings(visit: Visit, site: Site) -> None:
    page = visit(username="")
    log_in(page, site, "bob")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/projects/*/")
    page.keyboard.press("]")
    page.wait_for_url("**/assets/")
    page.keyboard.press("/")
    page.wait_for_url("**/search/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.type("g")  # typed, not obeyed
    page.get_by_role("searchbox").press("Escape")
    page.get_by_role("heading", name="Search").click()
    page.keyboard.press("g")
    page.keyboard.press("c")
    page.wait_for_url("**/cluster/")
    page.keyboard.press("?")
    page.wait_for_url("**/shortcuts/")
    bell = page.locator("#bell")
    before = bell.inner_text()
    expect(page.locator("#live")).to_have_text("Live")
    site.tell("tell")
    expect(bell).not_to_have_text(before)


def test_ticked_runs_stay_ticked_while_the_tables_change(visit: Visit, site: Site) -> None:
    page = visit()
    go(page, site, "experiment")
    expect(page.locator("#live")).to_have_text("Live")
    expect(page.locator("#selection")).to_be_hidden()
    running, ended = page.locator("#runs .tick input").nth(0), page.locator("#runs .tick input").nth(1)
    where = ended.bounding_box()
    running.check()
    assert ended.bounding_box() == where, "the bar that appears moves nothing under the pointer"
    ended.check()
    site.tell("retell")  # the tables are fetched anew
    expect(page.locator("#runs")).to_contain_text("told again")
    expect(running).to_be_checked()
    expect(page.locator("#selection")).to_contain_text("2 selected")
    page.get_by_role("button", name="Compare").click()
    page.wait_for_url("**/compare/?run=*&run=*")


def test_a_large_file_goes_on_after_a_lost_connection_and_after_the_page_was_closed(visit: Visit, site: Site, tmp_path: Path) -> None:
    page = visit(outage=True)
    (tmp_path / "large.bin").write_bytes(bytes(range(256)) * 40_000)  # two pieces
    tries = []

    def lose_some(route: Route) -> None:
        tries.append(route.request.url)
        outages = {2: 503, 3: 403}  # away for a moment, and then not to be talked to
        if len(tries) in outages:
            route.fulfill(status=outages[len(tries)], body="away")
        else:
            route.continue_()

    page.route("**/files/0?offset=*", lose_some)
    go(page, site, "new data")
    page.get_by_label("Files").set_input_files(tmp_path / "large.bin")
    expect(page.get_by_label("Name")).to_have_value("large.bin")
    page.get_by_role("button", name="Upload").click()
    expect(page.get_by_role("alert")).to_contain_text("no longer logged in")
    go(page, site, "assets")
    page.get_by_role("link", name="Resume or remove it").first.click()
    expect(page.get_by_role("main")).to_contain_text("8.4 MB of 10.2 MB")
    page.get_by_label("Files").set_input_files(Path(__file__))
    page.get_by_role("button", name="Resume upload").last.click()
    expect(page.get_by_role("alert")).to_contain_text("large.bin is missing")
    page.get_by_label("Files").set_input_files(tmp_path / "large.bin")
    page.get_by_role("button", name="Resume upload").last.click()
    expect(page.get_by_role("heading", name="large.bin v1", exact=True)).to_be_visible()
    expect(page.get_by_role("main")).to_contain_text("10.2 MB")
    assert len(tries) == 4


def test_a_large_zip_of_code_goes_on_where_it_stopped(visit: Visit, site: Site, tmp_path: Path) -> None:
    page = visit(outage=True)
    weights = bytes(range(256)) * 40_000  # two pieces
    with zipfile.ZipFile(tmp_path / "heavy.zip", "w") as archive:
        archive.writestr("main.py", cast.MAIN_PY)
        archive.writestr("weights.bin", weights)
    tries: list[str] = []

    def lose_some(route: Route) -> None:
        tries.append(route.request.url.split("?")[1])
        if len(tries) == 2:
            route.fulfill(status=403, body="away")
        else:
            route.continue_()

    page.route("**/files/0?offset=*", lose_some)
    go(page, site, "new experiment")
    page.get_by_role("button", name="Add training definition").click()
    panel = page.get_by_role("dialog")
    panel.locator("input[type=file]").set_input_files(tmp_path / "heavy.zip")
    panel.get_by_label("Name").fill("heavy")
    panel.get_by_role("button", name="Create").click()
    expect(panel.get_by_role("alert")).to_contain_text("no longer logged in")
    go(page, site, "assets")
    page.get_by_role("link", name="Resume or remove it").first.click()
    page.get_by_label("Files").set_input_files(tmp_path / "heavy.zip")
    page.get_by_role("button", name="Resume upload").last.click()
    expect(page.get_by_role("heading", name="New training definition")).to_be_visible()
    expect(page.get_by_role("main")).to_contain_text("heavy.zip, 10.2 MB, uploaded")
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("heading", name="heavy")).to_be_visible()
    assert tries == ["offset=0", "offset=8388608", "offset=8388608"]
    go(page, site, "new experiment")
    page.get_by_role("button", name="Add training definition").click()
    panel.locator("input[type=file]").set_input_files(tmp_path / "heavy.zip")
    panel.get_by_label("Name").fill("heavy too")
    panel.get_by_role("button", name="Create").click()
    expect(panel).to_be_hidden()
    expect(page.locator("#associated")).to_contain_text("heavy too")


def test_the_story_works_without_script(visit: Visit, site: Site, tmp_path: Path) -> None:
    page = visit(script=False, username="")
    log_in(page, site, "bob")
    (tmp_path / "model.zip").write_bytes(cast.zipped().getvalue())
    page.goto(site.pages["url"] + site.pages["new experiment"])
    page.get_by_label("Name").first.fill("Without script")
    page.get_by_role("checkbox", name="LeNet").check()
    page.get_by_role("button", name="Create and run").click()
    expect(page.get_by_role("heading", name="Without script")).to_be_visible()
    page.locator("#runs tbody th a", has_text="Without script").click()
    expect(page.get_by_text("Queued").first).to_be_visible()


def test_the_theme_changes_at_once_and_stays(visit: Visit, site: Site) -> None:
    page = visit(username="bob")
    go(page, site, "projects")
    page.locator("summary", has_text="Account menu").click()
    page.get_by_role("button", name="Dark").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.wait_for_load_state("networkidle")
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to main content")).to_be_focused()


def test_the_time_that_is_left_for_leaving_a_slot_counts_down(visit: Visit, site: Site) -> None:
    page = visit()
    go(page, site, "cluster")
    page.evaluate("""() => {
      const left = Object.assign(document.createElement('p'), { id: 'left' });
      left.dataset.until = String(Date.now() / 1000 + 5.9);
      const said = () => { left.dataset.said = `${left.dataset.said || ''}${left.textContent};`; };
      new MutationObserver(said).observe(left, { childList: true, characterData: true, subtree: true });
      document.body.append(left);
    }""")
    expect(page.locator("#left")).to_have_text("now", timeout=20_000)
    *counted, last = (page.locator("#left").get_attribute("data-said") or "").strip(";").split(";")
    left = [int(each.removeprefix("within ").removesuffix(" s")) for each in counted]  # a slow browser may leave some out
    assert (last, left) == ("now", sorted(set(left), reverse=True))
    assert left
    assert left[0] <= 5
