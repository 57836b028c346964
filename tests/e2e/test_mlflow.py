"""A script that logs with MLflow, as it is: curves are on its page while it runs, parameters, tags and files too; a laptop reads it,
and logs a run of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.bundles import zipped
from tests.e2e.studio import Studio, wait_until
from tests.e2e.test_story import fill_definition, make_project, run_number

pytestmark = [pytest.mark.e2e, pytest.mark.shared_studio, pytest.mark.timeout(300)]
GUIDE = re.findall(r"```(sh|python)\n(.*?)```", (Path(__file__).resolve().parents[2] / "docs/mlflow.md").read_text(), re.S)
IN_A_RUN, LOG_ON, ON_A_LAPTOP, OF_ONES_OWN = (text for _, text in GUIDE)
WAITS = """
import os, time
while not os.path.exists(os.environ["RESULT_DIR"] + "/go"):
    time.sleep(0.01)
"""


LOOKS = """
print(len(history), best.data.params["depth"], best.info.status)
assert [(point.step, point.value) for point in history] == [(step, 1 / step) for step in range(1, 11)], history
print(open(client.download_artifacts(best.info.run_id, "notes.txt")).read())
"""


def test_a_script_with_mlflow_needs_no_settings(studio: Studio, person: Callable[..., Page], tmp_path: Path) -> None:
    alice = person("alice")
    make_project(alice, "Handwritten digits", "")
    project = re.findall(r"/projects/(\d+)/", alice.url)[0]
    alice.goto(f"{studio.url}/projects/{project}/experiments/new/")
    alice.locator("#experiment-form").get_by_label("Name").fill("with mlflow")
    alice.get_by_role("button", name="Add training definition").click()
    code = zipped(tmp_path / "code.zip", {"main.py": IN_A_RUN + WAITS})
    fill_definition(alice, "#panel-form", name="tracked", zip_file=code, command="main.py")
    alice.locator("#panel-form").get_by_label("Distributed training type").select_option("single")
    alice.locator("#panel-form").get_by_role("button", name="Create").click()
    expect(alice.locator("#associated")).to_contain_text("tracked")
    alice.get_by_role("button", name="Create and run").click()
    run = run_number(alice)

    alice.goto(f"{studio.url}/runs/{run}/")
    expect(alice.locator('[data-chart="loss"] canvas')).to_be_visible(timeout=60_000)
    alice.goto(f"{studio.url}/runs/{run}/overview/")
    expect(alice.locator("#body")).to_contain_text(re.compile(r"Logged parameters.*lr\s*0\.1.*Logged tags.*team\s*vision", re.S))
    (studio.folder(run) / "go").touch()
    wait_until(
        lambda: studio.rows("SELECT state FROM experiments_trainingrun WHERE id = ?", run) == [("completed",)], "it ends", deadline_s=60
    )
    alice.goto(f"{studio.url}/runs/{run}/results/")
    expect(alice.locator('#files a[href$="/files/artifacts/notes.txt"]')).to_be_visible()

    # On a laptop: as the guide says, in a shell without anything of the test's.
    told = {"http://studio:8000": studio.url, "NAME:PASSWORD": f"alice:{studio.account('alice')}"}
    log_on = LOG_ON
    for example, ours in told.items():
        assert example in log_on
        log_on = log_on.replace(example, ours)
    (tmp_path / "laptop.py").write_text(ON_A_LAPTOP + LOOKS + OF_ONES_OWN)
    (tmp_path / "notes.txt").write_text("of one's own")
    script = f"{log_on}\nexec python laptop.py"
    environment = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    done = subprocess.run(["bash", "-euc", script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == f"{run} {studio.rows('SELECT name FROM experiments_trainingrun WHERE id = ?', run)[0][0]} 0.1"
    assert "as good as it gets" in done.stdout
    ((tags,),) = studio.rows("SELECT tags FROM experiments_loggedfacts WHERE run_id = ?", run)
    assert json.loads(tags)["verdict"] == "keep"
    ((own, home),) = studio.rows("SELECT id, head_node_id FROM experiments_trainingrun WHERE name = 'on my laptop' AND state = 'completed'")
    assert home is None, "no machine has to do with it"
    assert (studio.folder(own) / "artifacts/notes.txt").read_text() == "of one's own"
