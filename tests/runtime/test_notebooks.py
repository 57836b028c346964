"""A notebook as the script that a run executes: what becomes of its cells, and that they do what they did."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from experiments.definitions import scriptargs
from training_runtime import notebooks
from training_runtime.environments import requirements

ROOT = Path(__file__).resolve().parents[2]


def code(source: str | list[str], *tags: str) -> dict[str, Any]:
    return {"cell_type": "code", "metadata": {"tags": list(tags)}, "source": source, "outputs": [], "execution_count": None}


def notebook(*cells: dict[str, Any] | str, **metadata: Any) -> str:
    made = [code(cell) if isinstance(cell, str) else cell for cell in cells]
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": metadata, "cells": made})


def body(source: str) -> str:
    """What becomes of a cell."""
    return notebooks.script_of(notebook(source), name="a.ipynb").split("# %% [1]\n")[1].removesuffix("\n_end_cell()\n")


def run(folder: Path, text: str, *arguments: str, options: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    (folder / "train.ipynb.py").write_text(notebooks.script_of(text, name="train.ipynb"))
    command = [sys.executable, *options, "train.ipynb.py", *arguments]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=60, check=False)


def printed(folder: Path, text: str, *arguments: str) -> list[str]:
    done = run(folder, text, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("cell", "becomes"),
    {
        "Python": ("x = 5 % 3\ny = x != 2", "x = 5 % 3\ny = x != 2"),
        "a magic": ("%matplotlib inline", "_magic('matplotlib', 'inline')"),
        "a shell": ("if x:\n    !ls", "if x:\n    _shell('ls')"),
        "a shell with values": ("!ls {x}", "_shell('ls {x}', {**globals(), **locals()})"),
        "lines from a shell": ("files = !ls", "files = _shell('ls', listed=True)"),
        "a magic in a block": ("if x:\n    %cd data", "if x:\n    _magic('cd', 'data')"),
        "what is timed": ("%time y = f(3)", "y = f(3)"),
        "a cell that is timed": ("%%time\ny = f(3)", "y = f(3)"),
        "a cell that is captured": ("\n%%capture out\n%cd data", "_magic('cd', 'data')"),
        "a question": ("  model.fit??", "  pass  # model.fit??"),
        "a cell of another language": ("%%html\n<b>x</b>", "_magic('html', '')\n# <b>x</b>"),
        "lines of a shell": ("%%bash\nls $HOME", "_shell('ls $HOME\\n')"),
        "a file": ("%%writefile -a net.py\nx = '''1'''", "_write_file('-a net.py', \"x = '''1'''\\n\")"),
        "in a string": ("x = '''\n%matplotlib\n!ls\n'''", "x = '''\n%matplotlib\n!ls\n'''"),
        "in brackets": ("x = (10\n%y\n)", "x = (10\n%y\n)"),
        "other ends of lines": ("x = 'a\x0cb\u2028c'\r\n!ls", "x = 'a\x0cb\u2028c'\n_shell('ls')"),
        "half a character": ("x = '\ud800'", "x = '\\ud800'"),
        "what is no code": ("x = (\n!ls", "x = (\n!ls"),
        "nothing": ("", ""),
    }.values(),
    ids=str,
)
def test_what_becomes_of_a_cell(cell: str, becomes: str) -> None:
    assert body(cell) == becomes


def test_a_shell_gets_values_gives_lines_and_may_fail(tmp_path: Path) -> None:
    told = notebook(
        "name, HOST = 'net', 'alpha'\n!echo {name} $HOST ${name}x $OTHER; \\\n   echo second\nlines = !printf 'a\\nb'\nprint(lines)",
        "def f(width):\n    !echo {width}\nf(3)\n!exit 3\nnone = !pip list\nprint(none)",
        "%%bash\nfor i in 1 2; do echo $i; done",
        "i = 7",
    )
    said = "Not run: pip list. A run's packages are there before it starts."
    assert printed(tmp_path, told) == ["net alpha netx", "second", "['a', 'b']", "3", said, "[]", "1", "2"]


def test_files_folders_and_variables_are_set_and_what_is_for_screens_is_left_out(tmp_path: Path) -> None:
    told = notebook(
        "from __future__ import annotations\n%load_ext autoreload\n%pip install -q einops\n%lsmagic",
        "%mkdir_p x\n!mkdir -p inside\n%cd inside\n%env SEED=3",
        "%%writefile net.py\nwidth = 8",
        "%%writefile -a net.py\ndepth = 2",
        "import os, sys\nsys.path.insert(0, '.')\nimport net\ndisplay(net.width, net.depth)",
        "print(os.environ['SEED'], os.path.basename(os.getcwd()))",
        {"cell_type": "markdown", "source": "# no code"},
        {"cell_type": "raw", "source": "nor is this"},
        code(["print('a',\n", "      'b')"]),
    )
    lines = printed(tmp_path, told)
    assert lines[0].startswith("Not run: pip install -q einops. ")
    assert lines[1:3] == [f"Not run: %{name}. A run understands no such line." for name in ("lsmagic", "mkdir_p x")]
    assert lines[3:] == ["8", "2", "3 inside", "a b"]


PARAMETERS = code(
    "lr = 0.1  # the rate, 10 % of what it was\nbatch_size: int = 8\namp = False\nname = 'sgd'\nlr = 0.2\nsizes = [1, 2]\n"
    "_own = 1\nx, y = 1, 2",
    "parameters",
)


def test_the_command_sets_what_the_cell_of_parameters_has(tmp_path: Path) -> None:
    told = notebook(PARAMETERS, "print(lr, batch_size, amp, name, sizes)")
    assert printed(tmp_path, told) == ["0.2 8 False sgd [1, 2]"]
    assert printed(tmp_path, told, "--lr", "3", "--batch_size=16", "--amp", "--name", "adam") == ["3.0 16 True adam [1, 2]"]
    assert "unrecognized arguments: --width 3" in run(tmp_path, told, "--width", "3").stderr
    untagged = notebook({**PARAMETERS, "metadata": {}}, "print(lr)")
    assert printed(tmp_path, untagged, "--lr", "3") == ["0.2"], "nobody has called it a parameter"


def test_the_studio_reads_parameters_as_it_reads_the_arguments_of_a_script() -> None:
    found = scriptargs.read(notebooks.script_of(notebook(PARAMETERS), name="a.ipynb"))
    assert [(each.name, each.kind, each.default) for each in found.arguments] == [
        ("--lr", "number", "0.2"),
        ("--batch_size", "whole", "8"),
        ("--amp", "flag", "off"),
        ("--name", "text", "sgd"),
    ]


@pytest.mark.parametrize(
    "cell",
    ["lr = 0.1 +", "import torch", "lr = f()", "lr = None", "lr = 1e999", "help = 'me'", f"x = 0x{'f' * 5000}", ""],
    ids=["broken", "no name", "computed", "nothing", "infinite", "an option's name", "a number too long to write", "empty"],
)
def test_parameters_without_a_plain_value_have_no_parser(cell: str) -> None:
    assert "argparse" not in notebooks.script_of(notebook(code(cell, "parameters")), name="a.ipynb")


def test_a_traceback_names_the_notebook_and_cells_can_be_found(tmp_path: Path) -> None:
    failed = run(tmp_path, notebook("x = 1", {"cell_type": "markdown", "source": "-"}, "1 / 0"))
    found = [line for line in failed.stderr.splitlines() if "train.ipynb.py" in line]
    number = int(found[-1].split("line ")[1].split(",")[0])
    assert (tmp_path / "train.ipynb.py").read_text().splitlines()[number - 2 : number] == ["# %% [3]", "_show(1 / 0)"]


def test_notebooks_of_the_third_format_are_read() -> None:
    old = {"nbformat": 3, "metadata": {}, "worksheets": [{"cells": [{"cell_type": "code", "language": "python", "input": ["x = 1"]}]}]}
    assert "# %% [1]\nx = 1" in notebooks.script_of(json.dumps(old), name="a.ipynb")


@pytest.mark.parametrize("source", [None, 3, {}, []])
def test_a_cell_without_a_text_is_empty(source: Any) -> None:
    text = json.dumps({"cells": [{"cell_type": "code", "source": source}]})
    assert notebooks.script_of(text, name="a.ipynb").endswith("# %% [1]\n\n_end_cell()\n")
    assert notebooks.installs(text, name="a.ipynb") == []


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is not a notebook that can be read"),
        ("[]", "is not a notebook that can be read"),
        ("[" * 100_000, "is not a notebook that can be read"),
        ('{"cells": [3]}', "is not a notebook that can be read"),
        ('{"metadata": 3, "cells": []}', "is not a notebook that can be read"),
        (notebook("x <- 1", kernelspec={"language": "R"}), "is written in R; notebooks in Python are run"),
    ],
)
def test_what_is_no_notebook_in_python_is_refused_with_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(notebooks.NotANotebook, match=sentence):
        notebooks.script_of(text, name="a.ipynb")


def test_names_of_scripts_and_notebooks() -> None:
    assert notebooks.script_name("src/a.ipynb") == "src/a.ipynb.py"
    assert notebooks.script_name("a.py") == "a.py"
    assert [notebooks.notebook_name(name) for name in ("src/a.ipynb.py", "a.py", "a.ipynb")] == ["src/a.ipynb", "", ""]
    assert [notebooks.is_script(name) for name in ("a.py", "a.ipynb", "a.txt", ".ipynb_checkpoints/a-checkpoint.ipynb")] == [
        True,
        True,
        False,
        False,
    ]


INSTALLS = """%%capture
!pip install -q 'einops>=0.6' torch==1.13 torchvision==0.9 git+https://example.org/y.git ./z \\
    -r other.txt --extra-index-url https://example.org 2>&1 | tail
%pip install timm \\
   pandas[excel]==2.* && echo done
!pip uninstall x
!python -m pip install --upgrade pip  # the newest
!pip3 install lightning>=2 Einops > /dev/null
text = '!pip install no'
!pip install 'unclosed
"""


def test_what_a_notebook_installs_is_what_it_requires() -> None:
    lines = requirements.read("a.ipynb", {"a.ipynb": notebook(INSTALLS).encode()}.__getitem__)
    assert [line.text for line in lines] == ["Einops", "torchvision", "timm", "pandas[excel]==2.*", "lightning>=2"]
    assert {line.where for line in lines} == {"a.ipynb"}
    assert requirements.from_text(requirements.to_text(lines)) == lines
    assert requirements.read("a.ipynb", lambda _: b"{") == ()


@pytest.mark.parametrize(
    ("cell", "becomes"),
    {
        "a value": ("x = 3\nx", "x = 3\n_show(x)"),
        "over several lines": ("é = [\n  1,\n]\n(é +\n 'ü')  # said", "é = [\n  1,\n]\n(_show(é +\n 'ü'))  # said"),
        "a call": ("model.fit(x)", "_show(model.fit(x))"),
        "several values": ("x, 'y'", "_show((x, 'y'))"),
        "not where lines end otherwise": ("y = 1\rx", "y = 1\rx"),
        "not where it is kept back": ("x;", "x;"),
        "nor what shows itself": ("print(x)", "print(x)"),
        "nor a text that explains": ("'''About it'''", "'''About it'''"),
        "nor in a block": ("if x:\n    x", "if x:\n    x"),
        "nor before the end": ("x\ny = 3", "x\ny = 3"),
    }.values(),
    ids=str,
)
def test_what_stands_at_the_end_of_a_cell_is_shown(cell: str, becomes: str) -> None:
    assert body(cell) == becomes


def test_values_are_shown_as_a_notebook_shows_them(tmp_path: Path) -> None:
    cells = ("'a' + 'b'", "None", "[1,\n 2]", "x = 3;x;", "def f():\n    return 7\nf()", "display('a')", "1, 2")
    assert printed(tmp_path, notebook(*cells)) == ["'ab'", "[1, 2]", "7", "a", "(1, 2)"]


KERNEL = """
from IPython.display import display, HTML, clear_output
from IPython.core.interactiveshell import InteractiveShell
import ipywidgets as widgets
from ipywidgets import interact
InteractiveShell.ast_node_interactivity = "all"
get_ipython().run_line_magic("matplotlib", "inline")
get_ipython().system("echo said")
display(HTML("<b>x</b>"), 3)
clear_output(wait=True)

@interact(x=(0, 10))
def f(x=1):
    return x

box = widgets.VBox([widgets.IntSlider(value=3)])
with widgets.Output():
    print("inside")
box
print(f(2), "IPKernelApp" in get_ipython().config)
"""


def test_displays_and_widgets_of_a_kernel_are_in_nobodys_way(tmp_path: Path) -> None:
    done = run(tmp_path, notebook(KERNEL, "import google.colab"), options=["-S"])  # with Python's own library alone
    assert [line for line in done.stdout.splitlines() if "<" not in line] == ["said", "3", "inside", "2 False"]
    assert "No module named 'google'" in done.stderr, "what asks where it is finds the truth"


def test_a_progress_bar_of_a_notebook_is_one_of_a_terminal(tmp_path: Path) -> None:
    cells = (
        "import tqdm\nfrom tqdm.notebook import tqdm as bar, trange\nfrom tqdm import tqdm_notebook",
        "for i in tqdm.notebook.tqdm(range(3), desc='one', display=False): pass",
        "for i in bar([1, 2], 'two'): pass\nfor i in trange(4, desc='three'): pass\nfor i in tqdm_notebook(range(5), desc='four'): pass",
    )
    done = run(tmp_path, notebook(*cells))
    assert done.returncode == 0, done.stderr
    for words in ("one: 100%", "3/3", "two: 100%", "2/2", "three: 100%", "4/4", "four: 100%", "5/5"):
        assert words in done.stderr
