"""What a script shows with matplotlib is kept as pictures among its run's results."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runtime.test_notebooks import notebook
from training_runtime import figures, notebooks

ROOT = Path(__file__).resolve().parents[2]
LINES = "import matplotlib.pyplot as plt\nfor height in (1, 2, 2):\n    plt.plot([0, height])\n    plt.show()\n"


def run(folder: Path, script: str) -> subprocess.CompletedProcess[str]:
    """As a run would: with the backend that the host names."""
    (folder / "main.py").write_text(script)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "RESULT_DIR": str(folder / "results"), "MPLBACKEND": f"module://{figures.__name__}"}
    done = subprocess.run([sys.executable, "main.py"], cwd=folder, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done


def kept(folder: Path) -> list[str]:
    return sorted(path.name[: len("figure-001")] for path in (folder / "results" / figures.FOLDER).iterdir())


def test_each_figure_is_kept_once_and_closed(tmp_path: Path) -> None:
    done = run(tmp_path, LINES + "print(plt.get_fignums())\nfig = plt.figure()\nfig.show()\nprint(plt.get_fignums())")
    assert kept(tmp_path) == ["figure-001", "figure-002", "figure-003"], "the third of the loop is the second"
    assert done.stdout.splitlines() == ["Figures that are shown are kept among the run's results, in figures.", "[]", "[1]"]
    assert done.stderr == ""
    again = run(tmp_path, LINES)
    assert kept(tmp_path) == ["figure-001", "figure-002", "figure-003"], "a run that goes on shows the same"
    assert again.stdout == ""


def test_pictures_are_those_that_were_drawn(tmp_path: Path) -> None:
    run(tmp_path, "import matplotlib.pyplot as plt\nplt.figure(figsize=(2, 1))\nplt.plot([1, 2])\nplt.savefig('own.png')\nplt.show()")
    (picture,) = (tmp_path / "results" / figures.FOLDER).iterdir()
    assert picture.read_bytes() == (tmp_path / "own.png").read_bytes()


def test_what_is_drawn_while_a_script_goes_on_is_not_what_it_shows(tmp_path: Path) -> None:
    live = "import matplotlib.pyplot as plt\nplt.ion()\nfor x in range(3):\n    plt.plot([0, x])\n    plt.pause(0.001)\n"
    run(tmp_path, live + "plt.ioff()\nplt.show()")
    assert kept(tmp_path) == ["figure-001"]


def test_a_script_that_chooses_its_backend_has_it(tmp_path: Path) -> None:
    run(tmp_path, "import matplotlib\nmatplotlib.use('Agg')\n" + LINES)
    assert not (tmp_path / "results").exists()


def test_very_many_figures_are_left_out_and_it_is_said_once(tmp_path: Path) -> None:
    there = tmp_path / "results" / figures.FOLDER
    there.mkdir(parents=True)
    for number in range(1, figures.MOST):
        (there / f"figure-{number:03}-{number:08}.png").write_bytes(b"")
    said = run(tmp_path, LINES.replace("(1, 2, 2)", "(1, 2, 3)")).stdout
    assert len(kept(tmp_path)) == figures.MOST
    assert said.count(figures.MANY) == 1


@pytest.mark.parametrize("folder", ["/proc/none", "main.py"])
def test_a_figure_that_cannot_be_kept_ends_nothing(tmp_path: Path, folder: str) -> None:
    done = run(tmp_path, f"import os\nos.environ['RESULT_DIR'] = {folder!r}\n" + LINES + "print('and on')")
    assert "A figure that is shown could not be kept: " in done.stdout
    assert done.stdout.endswith("and on\n")


def test_a_figure_that_cannot_be_drawn_ends_nothing(tmp_path: Path) -> None:
    wrong = "import matplotlib.pyplot as plt\nplt.title(r'$\\frac{1}$')\nplt.show()\nprint(plt.get_fignums(), 'and on')"
    done = run(tmp_path, wrong)
    assert done.stdout.startswith("A figure that is shown could not be drawn: ")
    assert done.stdout.endswith("[] and on\n")


def test_a_notebook_shows_what_its_cells_have_drawn_and_what_it_displays(tmp_path: Path) -> None:
    cells = (
        "%matplotlib inline\nimport matplotlib.pyplot as plt",
        "fig, axes = plt.subplots()\naxes.plot([1, 2]);",
        "plt.plot([3, 4])\nplt.show()",
        "axes.set_title('with a title')\nfig",
        "print(plt.get_fignums())",
    )
    done = run(tmp_path, notebooks.script_of(notebook(*cells), name="a.ipynb"))
    assert kept(tmp_path) == ["figure-001", "figure-002", "figure-003"]
    assert done.stdout.splitlines()[1:] == ["[]"]
