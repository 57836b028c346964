"""Where things stand, measured in a real browser: the rows of tables, and the widths of pages."""

from __future__ import annotations

import pytest

from tests.web.browsing import Site, Visit, go

# Of each row: how far the first line of each cell's words lies below that of its first cell, where it is not at one height with it.
OFF_THE_LINE = """async () => {
  const found = [];
  const paper = document.createElement('canvas').getContext('2d');
  const font = (element) => {
    const { fontStyle, fontWeight, fontSize, fontFamily } = getComputedStyle(element);
    return `${fontStyle} ${fontWeight} ${fontSize} ${fontFamily}`;
  };
  for (const each of document.querySelectorAll('.table tbody *')) await document.fonts.load(font(each));
  paper.font = font(document.body);
  paper.measureText('x');
  const baseline = (node) => {
    const range = document.createRange();
    range.selectNodeContents(node);
    paper.font = font(node.parentElement);
    return [...range.getClientRects()].find((each) => each.width).top + paper.measureText('x').fontBoundingBoxAscent;
  };
  const words = (cell) => {
    const walker = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      const { parentElement } = node;
      if (node.data.trim() && parentElement.checkVisibility() && !parentElement.closest('.visually-hidden, .sub, option')) return node;
    }
    return null;
  };
  for (const row of document.querySelectorAll('.table tbody tr')) {
    const [first, ...others] = [...row.children].map(words).filter(Boolean);
    for (const each of others) {
      const off = baseline(each) - baseline(first);
      if (Math.abs(off) > 1) found.push(`${each.data.trim().slice(0, 40)}: ${off.toFixed(1)} px below ${first.data.trim().slice(0, 40)}`);
    }
  }
  return [document.querySelectorAll('.table tbody tr').length, found];
}"""
WITH_ROWS = (
    *("experiment", "cluster", "instance group", "node", "data folder", "definition", "members", "assets", "jobs", "sharing"),
    *("results", "usage", "triggers", "variables", "run table", "oddly named experiment"),
)
FORMS = {
    "narrow": ("new project", "new data", "project webhooks", "profile"),
    "wide": ("new definition", "new version", "run with changes"),
}


def test_the_words_of_a_row_stand_on_one_line(visit: Visit, site: Site) -> None:
    page, found, rows = visit(), [], 0
    for name in WITH_ROWS:
        go(page, site, name)
        count, off = page.evaluate(OFF_THE_LINE)
        rows += count
        found += [f"{name}: {each}" for each in off]
    assert rows > 30
    assert not found, "\n".join(found)


@pytest.mark.parametrize("width", [1280, 1920])
def test_forms_of_one_kind_have_one_width_with_their_head_above_them(width: int, visit: Visit, site: Site) -> None:
    page = visit(width=width)
    for kind, names in FORMS.items():
        seen = set()
        for name in names:
            go(page, site, name)
            head, form = (page.locator(each).first.bounding_box() for each in (".page-head", ".content form, .content .form-wide"))
            assert head and form
            assert form["x"] == head["x"], name
            seen.add((head["x"], head["width"]))
        assert len(seen) == 1, f"{kind}: {seen}"


def test_what_a_box_to_tick_means_stands_below_its_name(visit: Visit, site: Site) -> None:
    page = visit()
    go(page, site, "new experiment")
    page.get_by_text("Search for the best values").click()
    above, name, meaning = (
        page.locator("#id_at_once").bounding_box(),
        page.locator("#id_early_stop").bounding_box(),
        page.get_by_text("Those whose metric is worse").bounding_box(),
    )
    assert above and name and meaning
    assert name["y"] - above["y"] - above["height"] >= 8
    assert meaning["y"] >= name["y"] + name["height"]


def test_lines_that_a_log_is_searched_for_stand_one_below_the_other(visit: Visit, site: Site) -> None:
    page = visit()
    go(page, site, "all logs searched")
    first, second, third = (page.locator(".log-found li").nth(n).bounding_box() for n in range(3))
    assert first and second and third
    assert second["y"] - first["y"] == first["height"] and third["y"] - second["y"] == second["height"]


def test_paper_is_light_and_has_every_chart(visit: Visit, site: Site) -> None:
    page = visit(theme="dark", width=1000)
    go(page, site, "completed run")
    page.locator(".uplot").first.wait_for()
    ground = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(ground) == "rgb(22, 22, 22)"
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")  # as browsers do it
    assert page.evaluate(ground) == "rgb(244, 244, 244)"
    assert page.locator(".chart").count() == page.locator(".chart .uplot").count() > 2
    assert not page.get_by_role("link", name="Run with changes").is_visible()


def test_heads_of_the_run_table_break_between_their_words(visit: Visit, site: Site) -> None:
    page = visit(width=1000)
    go(page, site, "run table")
    heads = page.locator(".run-table thead .sorter")
    for word in ("Submitter", "Tags", "Duration"):
        box = heads.filter(has_text=word).locator("button").bounding_box()
        assert box and box["height"] < 36, f"{word} is on more than a line"


@pytest.mark.parametrize("width", [360, 1280])
def test_a_head_without_spaces_stays_in_its_column(width: int, visit: Visit, site: Site) -> None:
    page = visit(width=width)
    go(page, site, "run table")
    button = page.locator(".run-table thead .sorter button").filter(has_text="Test accuracy")
    beyond = button.evaluate(
        """button => {
          button.textContent = 'm'.repeat(100);
          return button.getBoundingClientRect().right - button.closest('th').getBoundingClientRect().right;
        }"""
    )
    assert beyond <= 0
