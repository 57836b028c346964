"""What somebody does in the first hour, in a real browser: names come from files, nothing is lost, forms say what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, Request, expect

from tests import cast
from tests.runtime.test_notebooks import code, notebook
from tests.web.browsing import Site, Visit, go, violations


@pytest.fixture
def mnist(tmp_path: Path) -> Path:
    path = tmp_path / "mnist-v2.zip"
    path.write_bytes(cast.zipped({"mnist/train.py": "print(1)\n", "mnist/net.py": ""}).getvalue())
    return path


def typing_in(page: Page, name: str) -> None:
    """The keyboard is at the field of that name, or will be: a browser gets there when it has drawn the page."""
    expect(page.locator(":focus")).to_have_attribute("name", name)


def test_a_file_gives_an_empty_name_and_never_one_that_was_typed(visit: Visit, site: Site, mnist: Path, tmp_path: Path) -> None:
    page = visit()
    other = tmp_path / "letters.tar.gz"
    other.write_bytes(b"x")
    for address in ("new definition", "new data"):
        go(page, site, address)
        page.locator("input[type=file]").first.set_input_files(mnist)
        expect(page.get_by_label("Name")).to_have_value("mnist-v2")
        page.locator("input[type=file]").first.set_input_files(other)
        expect(page.get_by_label("Name")).to_have_value("letters")
        page.get_by_label("Name").fill("mine")
        page.locator("input[type=file]").first.set_input_files(mnist)
        expect(page.get_by_label("Name")).to_have_value("mine")


def test_the_script_of_a_zip_is_proposed_and_never_into_what_one_is_about_to_type(visit: Visit, site: Site, tmp_path: Path) -> None:
    page, zipped = visit(), tmp_path / "code.zip"
    zipped.write_bytes(cast.zipped({"main.py": "print(1)\n"}).getvalue())
    for is_there in (False, True):
        go(page, site, "new definition")
        command = page.locator("input[name$=command]")
        if is_there:
            command.focus()
        page.locator("input[type=file]").set_input_files(zipped)
        expect(page.locator("[data-scripts-list] button")).to_have_text(["main.py"])
        expect(command).to_have_value("" if is_there else "main.py")
    page.keyboard.type("main.py --epochs 5")
    expect(command).to_have_value("main.py --epochs 5")


def test_a_notebook_is_a_script_whose_parameters_are_fields(visit: Visit, site: Site, tmp_path: Path) -> None:
    page = visit()
    (tmp_path / "digits.ipynb").write_text(notebook("import torch", code("lr = 0.1  # the rate", "parameters"), "print(lr)"))
    go(page, site, "new definition")
    page.locator("input[type=file]").set_input_files(tmp_path / "digits.ipynb")
    expect(page.get_by_label("Name")).to_have_value("digits")
    expect(page.locator("input[name$=command]")).to_have_value("digits.ipynb")
    page.get_by_role("button", name="Create").click()
    expect(page.locator("main")).to_contain_text("digits.ipynb")
    go(page, site, "new experiment")
    page.get_by_role("button", name="Add training definition").click()
    page.get_by_role("tab", name="Existing training definition").click()
    page.get_by_role("dialog").get_by_label("digits").check()
    page.get_by_role("button", name="Add", exact=True).click()
    row = page.locator("#associated tr")
    row.get_by_text("Arguments of digits.ipynb").click()
    row.get_by_label("--lr").fill("0.1, 0.3")
    expect(row.get_by_label("Execution command")).to_have_value("digits.ipynb --lr {0.1,0.3}")


@pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (360, "dark")])
def test_a_refused_form_keeps_the_chosen_zip_and_leads_to_the_field(width: int, theme: str, visit: Visit, site: Site, mnist: Path) -> None:
    page = visit(width=width, theme=theme)
    go(page, site, "new definition")
    page.locator("input[type=file]").set_input_files(mnist)
    page.get_by_label("Name").fill(" ")
    page.get_by_role("button", name="Create").click()
    expect(page.locator("#id_name_error")).to_be_visible()
    typing_in(page, "name")
    expect(page.locator("[data-drop-file]")).to_contain_text("mnist-v2.zip")
    expect(page.locator("[data-drop-file]")).to_contain_text("uploaded")
    assert not violations(page)
    with page.expect_file_chooser():
        page.get_by_role("button", name="Choose another").click()
    page.get_by_label("Name").fill(f"kept {width}")
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("heading", name=f"kept {width}")).to_be_visible()
    expect(page.locator("main")).to_contain_text("mnist-v2.zip")


def test_the_kept_zip_is_there_without_script_too(visit: Visit, site: Site, mnist: Path) -> None:
    page = visit(script=False)
    go(page, site, "new definition")
    page.locator("input[type=file]").set_input_files(mnist)
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_text("mnist-v2.zip, ")).to_be_visible()
    page.get_by_label("Name").fill("kept without script")
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("heading", name="kept without script")).to_be_visible()


def test_what_is_wrong_is_said_while_typing_once_and_politely(visit: Visit, site: Site, mnist: Path) -> None:
    page = visit()
    go(page, site, "new definition")
    asked: list[Request] = []
    page.on("request", lambda request: asked.append(request) if "/check/" in request.url else None)
    page.locator("input[type=file]").set_input_files(mnist)
    command = page.get_by_label("Execution command")
    command.fill("")
    command.press_sequentially("main.py --epochs 3", delay=20)
    error = page.locator("#id_command_error")
    expect(error).to_contain_text("main.py is not in the zip: name one of its Python files")
    expect(page.locator("form [role=status].visually-hidden")).to_contain_text("main.py is not in the zip")
    expect(command).to_have_attribute("aria-invalid", "true")
    assert "id_command_error" in str(command.get_attribute("aria-describedby"))
    assert not violations(page)
    command.fill("train.py")
    expect(error).to_be_empty()
    expect(command).not_to_have_attribute("aria-invalid", "true")
    page.get_by_label("Name").fill("LeNet, elastic")
    expect(page.locator("#id_name_error")).to_contain_text("There is a training definition named LeNet, elastic already")
    page.get_by_label("Maximum number of slots").fill("0")
    expect(page.locator("#id_max_slots_error")).to_contain_text("Give a whole number from 1 to")
    assert len(asked) <= 8, "one question for a pause, not for a key"


def test_the_least_number_of_slots_is_compared_with_the_most(visit: Visit, site: Site) -> None:
    page = visit()
    go(page, site, "run with changes")
    typing_in(page, "command")
    page.get_by_label("Minimum slots").fill("4")
    page.get_by_label("Maximum slots").fill("2")
    page.get_by_label("Minimum slots").press("End")
    page.get_by_label("Minimum slots").press_sequentially("0")
    expect(page.locator("#id_min_slots_error")).to_contain_text("40 is more than the maximum of 2")


def test_the_keyboard_is_where_one_types(visit: Visit, site: Site) -> None:
    page = visit()
    for address in ("new project", "new experiment", "new definition", "new data"):
        go(page, site, address)
        typing_in(page, "name")
    go(page, site, "new experiment")
    page.get_by_role("button", name="Add training definition").click()
    assert page.evaluate("document.activeElement.id") == "panel_name"
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Create and run").click()
    expect(page.locator("#id_name_error")).to_be_visible()
    typing_in(page, "name")


def test_an_experiment_that_is_on_its_way_is_not_sent_again(visit: Visit, site: Site) -> None:
    page = visit()
    page.goto(site.pages["url"] + site.pages["new experiment"] + "?like=1")
    page.route("**/experiments/new/**", lambda route: route.fulfill(status=204))  # the page stays, as while the answer is awaited
    create = page.get_by_role("button", name="Create and run")
    create.click()
    expect(create).to_be_disabled()
    expect(create).to_have_attribute("aria-busy", "true")


def test_a_reload_makes_no_second_token(visit: Visit, site: Site) -> None:
    page = visit()
    go(page, site, "tokens")
    page.get_by_label("Name").fill("Of my laptop")
    page.get_by_role("button", name="Make token").click()
    expect(page.locator("#token")).to_be_visible()
    page.reload()
    expect(page.locator("#token")).to_have_count(0)
    expect(page.get_by_role("rowheader").get_by_text("Of my laptop")).to_have_count(1)


def test_slots_that_are_refused_stay_as_they_were_typed(visit: Visit, site: Site) -> None:
    page = visit()
    go(page, site, "run")
    page.get_by_text("Priority and slots").first.click()
    least, most = page.get_by_label("Minimum slots"), page.get_by_label("Maximum slots")
    least.fill("3")
    most.fill("2")
    page.get_by_role("button", name="Set slots").click()
    said = page.get_by_role("alert")
    expect(said).to_contain_text("3 is more than the maximum of 2")
    at = said.bounding_box()
    assert at
    place = [at["x"] + 9, at["y"] + 9]
    assert said.evaluate("(box, [x, y]) => box.contains(document.elementFromPoint(x, y))", place), "not below the dialog"
    expect(least).to_have_value("3")
    expect(most).to_be_visible()
    least.fill("1")
    page.get_by_role("button", name="Set slots").click()
    expect(least).to_be_hidden()
    expect(page.locator("#toast")).to_be_visible()


def test_nothing_asks_with_the_browsers_own_box() -> None:
    scripts = Path(__file__).resolve().parents[2] / "static" / "js"
    for path in scripts.glob("*.js"):
        for word in ("window.confirm(", "window.alert(", " confirm(", " alert(", "window.prompt("):
            assert word not in path.read_text(), path.name


def test_a_reload_makes_no_second_trigger(visit: Visit, site: Site) -> None:
    page = visit()
    go(page, site, "triggers")
    page.get_by_label("When").select_option("Any signed call")
    page.get_by_label("Experiment").select_option("Learning rates")
    page.get_by_role("button", name="Make trigger").click()
    expect(page.locator("#secret")).to_be_visible()
    expect(page.locator("#triggers section")).to_have_count(1)
    page.reload()
    expect(page.locator("#secret")).to_have_count(0)
    expect(page.locator("#triggers section")).to_have_count(1)


@pytest.mark.parametrize(
    ("name", "button", "field"),
    [
        ("triggers", "Make trigger", "Experiment"),
        ("profile", "Change password", "Old password"),
        ("notification choices", "Add webhook", "Address"),
        ("project webhooks", "Add webhook", "Address"),
        ("members", "Add member", "Username"),
        ("variables of a definition", "Save", "Name"),
    ],
)
def test_the_keyboard_is_at_the_first_field_that_was_refused(name: str, button: str, field: str, visit: Visit, site: Site) -> None:
    page = visit()
    go(page, site, name)
    page.locator("form:has(button)").evaluate_all("forms => forms.forEach(form => { form.noValidate = true; })")
    page.get_by_role("button", name=button).last.click()
    expect(page.locator(".error").first).to_be_visible()
    expect(page.get_by_label(field, exact=True).last).to_be_focused()
