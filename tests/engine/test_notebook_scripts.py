"""Scripts that were notebooks, run as a run runs them: with `await` outside of functions, and as nbconvert writes them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.runtime.test_notebooks import ROOT, notebook
from training_runtime import notebooks

RUNS = """
import sys
from training_runtime.elastic.processes.script import run_as_main, user_traceback
try:
    run_as_main(sys.argv[1])
except Exception as error:
    sys.exit(user_traceback(error, "<string>"))
"""
CONVERTED = """#!/usr/bin/env python
# coding: utf-8

# # Digits

# In[1]:


get_ipython().run_line_magic('matplotlib', 'inline')
get_ipython().run_cell_magic('time', '', 'x = [1, 2]\\ny = sum(x)\\n%env LETTER=a\\n')
get_ipython().run_line_magic('time', 'z = y + 1')


# In[2]:


name = "out.txt"
get_ipython().run_cell_magic('writefile', 'made.py', 'w = 7\\n')
get_ipython().run_cell_magic('bash', '', 'echo $LETTER > out.txt\\n')
lines = get_ipython().getoutput('cat {name} $name')
import made
display(y, z, lines, made.w)
"""


def run(folder: Path, name: str, text: str) -> subprocess.CompletedProcess[str]:
    (folder / name).write_text(text)
    environment = {**os.environ, "PYTHONPATH": f"{folder}:{ROOT}"}
    command = [sys.executable, "-c", RUNS, str(folder / name)]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False)


def of_notebook(*cells: str) -> str:
    return notebooks.script_of(notebook(*cells), name="train.ipynb")


def test_a_notebook_may_await_outside_of_functions(tmp_path: Path) -> None:
    cells = (
        "import asyncio\nasync def fetch(i):\n    await asyncio.sleep(0)\n    return i",
        "found = await asyncio.gather(*map(fetch, range(3)))",
        "task = asyncio.create_task(fetch(5))\nlisted = [await fetch(i) for i in range(2)]",
        "async with asyncio.timeout(60):\n    print(found, listed, __name__)",
        "await task",
    )
    done = run(tmp_path, "train.ipynb.py", of_notebook(*cells))
    assert (done.returncode, done.stdout.splitlines()) == (0, ["[0, 1, 2] [0, 1] __main__", "5"]), done.stderr


def test_an_error_of_a_notebook_that_awaits_is_told_from_its_cell_on(tmp_path: Path) -> None:
    done = run(tmp_path, "train.ipynb.py", of_notebook("import asyncio\nawait asyncio.sleep(0)", "raise ValueError('oh no')"))
    assert done.returncode == 1
    first, place, *_, last = done.stderr.strip().splitlines()
    assert first.startswith("Traceback")
    assert "train.ipynb.py" in place
    assert last == "ValueError: oh no"


def test_a_notebook_without_await_may_have_a_loop_of_its_own(tmp_path: Path) -> None:
    done = run(tmp_path, "train.ipynb.py", of_notebook("import asyncio\nprint(asyncio.run(asyncio.sleep(0, 4)))"))
    assert (done.returncode, done.stdout) == (0, "4\n"), done.stderr


def test_a_script_that_nbconvert_has_made_does_what_its_notebook_did(tmp_path: Path) -> None:
    done = run(tmp_path, "train.py", CONVERTED)
    assert (done.returncode, done.stdout.splitlines()) == (0, ["3", "4", "['a', 'a']", "7"]), done.stderr


def test_a_script_that_asks_whether_it_is_a_notebook_is_told_that_it_is_none(tmp_path: Path) -> None:
    text = "try:\n    get_ipython().magic\nexcept NameError:\n    print('no notebook')\n"
    assert run(tmp_path, "train.py", text).stdout == "no notebook\n"


def test_a_script_that_is_no_notebook_may_not_await(tmp_path: Path) -> None:
    done = run(tmp_path, "train.py", "import asyncio\nawait asyncio.sleep(0)\n")
    assert "'await' outside function" in done.stderr
