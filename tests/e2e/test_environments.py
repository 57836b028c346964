"""A script brings its requirements.txt: the first run waits while its environment is built, the second finds it, another asks in vain."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.bundles import zipped
from tests.e2e.studio import Studio, wait_until
from tests.e2e.test_rest import Terminal
from tests.e2e.test_story import fill_definition, make_project, run_number
from tests.engine.scripts import SMALL
from tests.index import Index, serving

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


@pytest.fixture
def index() -> Iterator[Index]:
    with serving() as index:
        index.add("tiny_scale", "1.0", {"tiny_scale.py": "SCALE = 2.0\n"})
        yield index


@pytest.fixture
def studio(index: Index) -> Iterator[Studio]:
    studio = Studio(slots=1, settings={"UV_INDEX_URL": index.url, "PIP_CONFIG_FILE": "/dev/null"})
    try:
        studio.start()
        yield studio
    finally:
        studio.close()


SCRIPT = SMALL.replace("import argparse\n", "import argparse, os, time, tiny_scale\n", 1).replace(
    "def data():", "while not os.path.exists(os.environ['RESULT_DIR'] + '/go'):\n    time.sleep(0.01)\n\ndef data():"
)


def let_go(studio: Studio, *runs: int) -> None:
    for run in runs:
        wait_until((studio.folder(run) / "_submitted_code").is_dir, f"run {run} has its folder")
        (studio.folder(run) / "go").touch()


def state(studio: Studio, run: int) -> str:
    return str(studio.rows("SELECT state FROM experiments_trainingrun WHERE id = ?", run)[0][0])


def until_completed(studio: Studio, *runs: int) -> None:
    for run in runs:
        wait_until(lambda run=run: state(studio, run) in ("completed", "failed"), f"run {run} has ended", deadline_s=120)
        said = studio.rows("SELECT state, state_reason, error_traceback FROM experiments_trainingrun WHERE id = ?", run)
        assert said[0][0] == "completed", said


def builds(studio: Studio) -> list[tuple[str, str, str]]:
    query = (
        "SELECT n.name, b.state, b.folder FROM experiments_environmentbuild b JOIN experiments_node n ON n.id = b.node_id ORDER BY n.name"
    )
    return [tuple(row) for row in studio.rows(query)]  # type: ignore[misc]


def test_a_script_gets_what_its_requirements_name_on_every_machine_and_at_once_the_second_time(
    studio: Studio, index: Index, person: Callable[..., Page], tmp_path: Path
) -> None:
    studio.join("second")
    index.gate.clear()
    alice = person("alice")
    make_project(alice, "Packages", "")
    alice.get_by_role("link", name="Assets", exact=True).click()
    alice.get_by_role("link", name="New experiment").first.click()
    alice.locator("#experiment-form").get_by_label("Name").fill("scaled")
    alice.get_by_role("button", name="Add training definition").click()
    code = zipped(tmp_path / "code.zip", {"train.py": SCRIPT, "net.py": "", "requirements.txt": "torch>=2\ntiny-scale  # ours\n"})
    fill_definition(alice, "#panel-form", name="scaled", zip_file=code, command="train.py --epochs 1 --samples 40")
    alice.locator("#panel-form").get_by_role("button", name="Create").click()
    expect(alice.locator("#associated")).to_contain_text("scaled")
    alice.get_by_role("button", name="Create and run").click()
    first = run_number(alice)
    alice.goto(f"{studio.url}/runs/{first}/")
    expect(alice.get_by_text("Building the environment on").first).to_be_visible()
    assert studio.held() == {}, "nobody holds a slot for it"
    index.gate.set()
    wait_until(lambda: [state for _, state, _ in builds(studio)] == ["ready", "ready"], lambda: f"both have built it: {builds(studio)}")
    wait_until(lambda: studio.held().get(first), lambda: f"it has a slot\n{studio.tail()}")
    let_go(studio, first)
    until_completed(studio, first)

    index.files.clear()  # what is built is used, whatever becomes of the index
    alice.goto(f"{studio.url}/experiments/{studio.rows('SELECT id FROM experiments_experiment')[0][0]}/")
    for _ in range(2):
        alice.get_by_role("button", name="Run again").first.click()
        alice.wait_for_load_state("networkidle")
    others = [run for (run,) in studio.rows("SELECT id FROM experiments_trainingrun WHERE id > ?", first)]
    assert len(others) == 2
    wait_until(lambda: all(studio.held().get(run) for run in others), lambda: f"both have a slot {others} {studio.held()}")
    homes = studio.rows("SELECT COUNT(DISTINCT head_node_id) FROM experiments_trainingrun WHERE id > ?", first)
    let_go(studio, *others)
    until_completed(studio, *others)
    assert homes == [(len(others),)], "each machine has built its own"
    assert len({folder for _, _, folder in builds(studio)}) == 1, "from one lock"

    alice.goto(f"{studio.url}/runs/{first}/overview/")
    alice.get_by_role("link", name="torch, tiny-scale").click()
    expect(alice.get_by_role("cell", name="tiny-scale")).to_be_visible()

    a_package_that_nobody_has(studio, tmp_path)


def a_package_that_nobody_has(studio: Studio, folder: Path) -> None:
    """Its run fails with the line, and has held no slot."""
    terminal = Terminal(studio, folder)
    terminal.run("--logon", "--username", "bob", "--password", studio.account("bob"))
    (folder / "model").mkdir()
    (folder / "model" / "main.py").write_text("import no_such_thing\n")
    (folder / "model" / "requirements.txt").write_text("# ours\nno-such-thing>=2\n")
    printed = terminal.run("--exec-start", "PyTorch", "--model-dir", "model", "--model-main", "main.py")
    run = int(json.loads(printed[printed.index("{") :])["execId"].removeprefix("wmla-"))
    wait_until(lambda: state(studio, run) == "failed", lambda: f"it fails: {builds(studio)}\n{studio.tail()}")
    ((message, log),) = studio.rows("SELECT error_message, error_traceback FROM experiments_trainingrun WHERE id = ?", run)
    assert message.startswith("requirements.txt line 2: no-such-thing>=2 is not in the package index"), message
    assert "uv pip compile" in log
    assert studio.rows("SELECT COUNT(*) FROM experiments_grant WHERE run_id = ?", run) == [(0,)]


SCALED = "import os, tiny_scale\nopen(os.environ['RESULT_DIR'] + '/scale', 'w').write(str(tiny_scale.SCALE))\n"


def scale(studio: Studio, run: int) -> str:
    until_completed(studio, run)
    return (studio.folder(run) / "scale").read_text()


def test_an_environment_that_an_administrator_offers_is_chosen_and_renewed(
    studio: Studio, index: Index, person: Callable[..., Page], tmp_path: Path
) -> None:
    dora = person("dora", staff=True)
    dora.goto(f"{studio.url}/cluster/environments/")
    dora.get_by_role("link", name="Offered by name").click()
    dora.get_by_role("link", name="New environment").click()
    dora.get_by_label("Name").fill("scales")
    dora.get_by_label("Requirements").fill("# ours\ntiny-scale ==\n")
    dora.get_by_role("button", name="Create").click()
    expect(dora.get_by_text("environment scales line 2: tiny-scale == is not a requirement")).to_be_visible()
    dora.get_by_label("Requirements").fill("# ours\ntiny-scale\n")
    dora.get_by_role("button", name="Create").click()
    dora.get_by_role("button", name="Build now").click()
    expect(dora.get_by_text("Ready")).to_be_visible(timeout=60_000)  # by itself: nobody loads the page again
    assert [state for _, state, _ in builds(studio)] == ["ready"]

    alice = person("alice")
    make_project(alice, "Scales", "")
    alice.get_by_role("link", name="Assets", exact=True).click()
    alice.get_by_role("link", name="New experiment").first.click()
    alice.locator("#experiment-form").get_by_label("Name").fill("scaled")
    alice.get_by_role("button", name="Add training definition").click()
    code = zipped(tmp_path / "code.zip", {"main.py": SCALED})
    panel = alice.locator("#panel-form")
    fill_definition(alice, "#panel-form", name="scaled", zip_file=code, command="main.py")
    panel.get_by_label("Distributed training type").select_option("single")
    panel.get_by_label("Maximum number of slots").fill("1")
    panel.get_by_label("Packages").select_option(label="scales")
    panel.get_by_role("button", name="Create").click()
    expect(alice.locator("#associated")).to_contain_text("scaled")
    alice.get_by_role("button", name="Create and run").click()
    first = run_number(alice)
    assert scale(studio, first) == "2.0"
    assert len(builds(studio)) == 1, "what was built in advance"

    index.add("tiny_scale", "2.0", {"tiny_scale.py": "SCALE = 3.0\n"})
    dora.get_by_role("button", name="Renew").click()
    expect(dora.get_by_role("heading", name="Requirements of version 2")).to_be_visible()
    alice.get_by_role("button", name="Run again").first.click()
    again = int(wait_until(lambda: studio.rows("SELECT MAX(id) FROM experiments_trainingrun WHERE id > ?", first)[0][0], "it runs again"))
    assert scale(studio, again) == "2.0", "what its version was made with"
    assert scale(studio, submitted_with(studio, "scales", tmp_path)) == "3.0", "what is made from now on has the newer release"

    alice.goto(f"{studio.url}/runs/{first}/overview/")
    alice.get_by_role("link", name="scales version 1").click()
    expect(alice.get_by_role("row", name="scaled v1")).to_contain_text("1 package")


def submitted_with(studio: Studio, environment: str, folder: Path) -> int:
    terminal = Terminal(studio, folder)
    terminal.run("--logon", "--username", "bob", "--password", studio.account("bob"))
    (folder / "scales").mkdir()
    (folder / "scales" / "main.py").write_text(SCALED)
    words = ("--model-dir", "scales", "--model-main", "main.py", "--conda-env-name", environment)
    printed = terminal.run("--exec-start", "PyTorch", *words)
    return int(json.loads(printed[printed.index("{") :])["execId"].removeprefix("wmla-"))
