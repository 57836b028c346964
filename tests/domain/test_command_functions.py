"""Arguments of scripts whose command a library makes of a function or a dataclass: what is read of the text is what the library takes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.definitions import scriptargs
from experiments.definitions.script_argument import Argument

SHOW = "import json\ndef show(values): print(json.dumps({k: getattr(v, 'value', v) for k, v in values.items()}, default=str))\n"
SIGNATURE = (
    "data: str, lr: float = 0.1, batch_size: int = SIZE, fast: bool = False, amp: bool = True, mode: Literal['a', 'b'] = 'a', "
    "seed: Optional[int] = None, note: str = 'x y', width: int | None = 32"
)
FUNCTION = f"{SHOW}from typing import Literal, Optional\nSIZE = 64\ndef main({SIGNATURE}):\n    show(locals())\n"
FIELDS = SIGNATURE.replace(", ", "\n    ").replace("'a'\n    'b'", "'a', 'b'")
IMPORTS = "from typing import Literal, Optional\nfrom dataclasses import dataclass\n"
DATACLASS = f"{SHOW}{IMPORTS}SIZE = 64\n@dataclass\nclass Args:\n    {FIELDS}\n"
SCRIPTS = {
    "typer": f"{FUNCTION}import typer\nif __name__ == '__main__':\n    typer.run(main)\n",
    "an app of typer": "import typer as t\napp = t.Typer()\n" + FUNCTION.replace("def main", "@app.command()\ndef main") + "app()\n",
    "fire": f"{FUNCTION}from fire import Fire\nFire(main)\n",
    "tyro": f"{FUNCTION}import tyro\ntyro.cli(main)\n",
    "a dataclass of tyro": f"{DATACLASS}import tyro\nshow(vars(tyro.cli(Args)))\n",
    "jsonargparse": f"{FUNCTION}from jsonargparse import auto_cli\nauto_cli(main)\n",
    "click": f"""{SHOW}
import click
SIZE = 64
@click.command()
@click.argument("data")
@click.option("--lr", default=0.1, help="the rate")
@click.option("-b", "--batch-size", "batch_size", type=int, default=SIZE)
@click.option("--fast", is_flag=True)
@click.option("--amp/--no-amp", default=True)
@click.option("--mode", type=click.Choice(["a", "b"]), default="a")
@click.option("--seed", type=int)
@click.option("--note", default="x y")
@click.option("--width", type=click.IntRange(1, 99), default=32)
def main(**said):
    show(said)
main()
""",
    "absl": f"""{SHOW}
from absl import app, flags
SIZE = 64
flags.DEFINE_string("data", None, "where", required=True)
flags.DEFINE_float("lr", 0.1, "the rate")
flags.DEFINE_integer("batch_size", SIZE, "of a step")
flags.DEFINE_bool("fast", False, "no waiting")
flags.DEFINE_boolean("amp", True, "half precision")
flags.DEFINE_enum("mode", "a", ["a", "b"], "which")
flags.DEFINE_integer("seed", None, "of everything")
flags.DEFINE_string("note", "x y", help="for people")
flags.DEFINE_integer("width", 32, "of the net")
app.run(lambda _: show({{name: flags.FLAGS[name].value for name in ("data lr batch_size fast amp mode seed note width".split())}}))
""",
}
USUAL = {"data": "d", "lr": 0.1, "batch_size": 64, "fast": False, "amp": True, "mode": "a", "seed": None, "note": "x y", "width": 32}
CHANGED = {"data": "e", "lr": 0.5, "batch_size": 7, "fast": True, "amp": False, "mode": "b", "seed": 3, "note": "q r", "width": 16}


def typed(argument: Argument, value: object) -> list[str]:
    """As the form of a new experiment writes it into the command."""
    if argument.kind == "flag":
        is_usual = value is (argument.default == "on")
        return [] if is_usual else [argument.name if value else argument.off or argument.name]
    text = next((each for each in argument.choices if each.lower() == str(value).lower()), str(value))
    return [text] if argument.positional else [argument.name, text]


def run(script: str, words: list[str], folder: Path) -> dict[str, object]:
    (folder / "main.py").write_text(script)
    done = subprocess.run([sys.executable, "main.py", *words], cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("name", SCRIPTS)
def test_what_is_read_is_what_the_library_takes(name: str, tmp_path: Path) -> None:
    script = SCRIPTS[name]
    known = {each.name.lstrip("-").replace("-", "_"): each for each in scriptargs.read(script).arguments}
    assert list(known) == list(USUAL)
    kinds = {key: each.kind for key, each in known.items()}
    assert {kinds[key] for key in ("batch_size", "seed", "width")} == {"whole"}
    assert (kinds["lr"], kinds["mode"], kinds["data"]) == ("number", "choice", "text")
    assert [key for key, each in known.items() if each.required] == ["data"]

    usual = run(script, typed(known["data"], "d"), tmp_path)
    assert usual == USUAL
    assert [known[key].default for key in USUAL if key not in ("fast", "amp")] == [None, "0.1", "64", "a", None, "x y", "32"]
    assert {known["fast"].default, known["amp"].default} in ({"off", "on"}, {"False", "True"}, {"false", "true"})
    changed = [word for key, each in known.items() for word in typed(each, CHANGED[key])]
    assert run(script, changed, tmp_path) == CHANGED
    again = [word for key, each in known.items() if USUAL[key] is not None for word in typed(each, USUAL[key])]
    assert run(script, again, tmp_path) == USUAL


def read(script: str) -> tuple[Argument, ...]:
    return scriptargs.read(script).arguments


def test_what_typer_is_told_of_a_parameter_counts() -> None:
    found = read(
        "from typing import Annotated\nfrom enum import Enum\nimport typer\n"
        "class Kind(str, Enum):\n    sgd = 'SGD'\n    adam = 'AdamW'\n"
        "def main(lr: float = typer.Option(0.1, '--rate', '-r', help='how fast'), must: int = typer.Option(...), "
        "few: float = typer.Option(default=0.5), "
        "kind: Kind = Kind.adam, deep: Annotated[bool, typer.Option('--deep/--flat', help='or not')] = False, "
        "out: Annotated[str, typer.Argument()] = 'here', layers: list[int] = [1]):\n    pass\ntyper.run(main)\n"
    )
    assert found == (
        Argument(("--rate", "-r"), "number", "0.1", "how fast"),
        Argument(("--must",), "whole", None, "", required=True),
        Argument(("--few",), "number", "0.5", ""),
        Argument(("--kind",), "choice", "AdamW", "", ("SGD", "AdamW")),
        Argument(("--deep",), "flag", "off", "or not", off="--flat"),
        Argument(("out",), "text", "here", ""),
    ), "a list is said again for each value, which no field does"


def test_fields_of_transformers_have_their_help_and_its_own_are_left_out() -> None:
    found = read(
        "from dataclasses import dataclass, field\nfrom transformers import HfArgumentParser, TrainingArguments\n"
        "@dataclass\nclass Data:\n    path: str = field(metadata={'help': 'where  it is'})\n"
        "    sizes: list[int] = field(default_factory=list)\n    shuffle: bool = True\n    fast: bool = field(metadata={[]: 1, **{}})\n"
        "    seen: int = field(default=0, init=False)\n"
        "HfArgumentParser((Data, TrainingArguments)).parse_args_into_dataclasses()\n"
    )
    assert found == (
        Argument(("--path",), "text", None, "where it is", required=True),
        Argument(("--sizes",), "words", None, ""),
        Argument(("--shuffle",), "choice", "True", "", ("True", "False")),
        Argument(("--fast",), "choice", None, "", ("True", "False"), required=True),
    )


@pytest.mark.parametrize(
    "script",
    [
        "import click\n@click.group()\ndef main(): pass\n@main.command()\n@click.option('--lr')\ndef train(lr): pass\n",
        "import click\n@click.command()\n@click.option('--a')\ndef f(a): pass\n@click.command()\n@click.option('--b')\ndef g(b): pass\n",
        "import typer\napp = typer.Typer()\n@app.command()\ndef one(a: int): pass\n@app.command()\ndef two(b: int): pass\n",
        "import typer\napp = typer.Typer()\n@app.callback()\ndef all(v: int): pass\n@app.command()\ndef one(a: int): pass\n",
        "import fire\nfire.Fire()\n",
        "import fire\nfrom other import main\nfire.Fire(main)\n",
        "def run(f): pass\ndef main(lr: float = 0.1): pass\nrun(main)\n",
        "import tyro\ntyro.cli(lambda lr: lr)\n",
        "import click\n@click.command()\n@click.option('--verbose', is_flag=True, default=True)\ndef main(verbose): pass\n",
        "import fire\ndef main(a: 'not a type'): pass\nfire.Fire(main)\n",
        "import fire\nclass Trainer:\n    lr: float = 0.1\n    def fit(self): pass\nfire.Fire(Trainer)\n",
        "import tyro\nclass Args:\n    lr: float = 0.1\ntyro.cli(Args)\n",
        "import typer\ndef main(fast: bool): pass\ntyper.run(main)\n",
        "import tyro\nfrom typing import Literal\ndef main(mode: Literal[MODES] = 'a'): pass\ntyro.cli(main)\n",
    ],
)
def test_nothing_is_said_of_what_is_not_sure(script: str) -> None:
    assert read(script) == ()


def test_what_is_not_understood_keeps_nobody_from_the_rest() -> None:
    found = read("import fire\ndef main(a: 'not a type', net: Net, lr: float = 0.1, sizes=(1, 2), **more): pass\nfire.Fire(main)\n")
    assert [(each.name, each.default) for each in found] == [("--lr", "0.1"), ("--sizes", "(1, 2)")]


PARTS = [
    *("a", "b", "[]", "{}", "...", "None", "1e999", "'x' * 9"),
    *("list[int]", "Literal[1, b]", "Literal[[]]", "Optional[a, b]", "'('", "x.y"),
    *(
        "field(metadata={**a})",
        "field(default=a, metadata={[]: {}})",
        "typer.Option(..., '-')",
        "typer.Option('--/--')",
        "1 | 2 | 3",
        "a[b]",
    ),
]


ANY = st.sampled_from(PARTS)


@given(st.lists(st.tuples(ANY, ANY), max_size=4), st.sampled_from(["typer.run", "fire.Fire", "tyro.cli"]))
def test_any_annotations_and_defaults_are_read_without_an_error(pairs: list[tuple[str, str]], runner: str) -> None:
    fields = [f"p{number}: {annotation} = {default}" for number, (annotation, default) in enumerate(pairs)]
    imports = "import typer, fire, tyro\nfrom dataclasses import dataclass, field\nfrom typing import *\n"
    read(f"{imports}def main({', '.join(fields)}): pass\n{runner}(main)\n")
    body = "\n    ".join(fields) or "pass"
    read(f"{imports}@dataclass\nclass Args:\n    {body}\n{runner}(Args)\n")
