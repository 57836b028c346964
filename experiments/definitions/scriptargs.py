"""What a training script says of its arguments, read from its text: by argparse, click, absl's flags, or the signature of a function or
dataclass that a library makes a command of. The script is never run.

Only what is written literally is understood (numbers, strings, lists, names of module-level constants); what is computed is shown as it
stands. Pure: text in, facts out.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass

from experiments.definitions import argparse_calls, click_options, command_functions
from experiments.definitions.imported_names import calls, imported
from experiments.definitions.literals import constants_of
from experiments.definitions.script_argument import LONGEST_TEXT, MOST_ARGUMENTS, Argument


@dataclass(frozen=True)
class ScriptHelp:
    """A script: what it says of itself in one line, its arguments, and whether it is meant to be run at all. `is_whole`: it has no other
    arguments, as far as is known; where a library makes them, some may not be understood."""

    description: str
    arguments: tuple[Argument, ...]
    runnable: bool
    is_whole: bool = True


def read(source: str) -> ScriptHelp:
    """Nothing is known of a script that does not parse, or is nested too deep: it will say so itself when it is run."""
    try:
        return _read(ast.parse(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ScriptHelp("", (), runnable=True)


def syntax_error(source: str) -> str:
    """ "line 3: '(' was never closed" of a script that this Python cannot read; nothing of one that it can, or that is nested too deep."""
    try:
        ast.parse(source)
    except SyntaxError as error:
        return f"line {error.lineno or 1}: {error.msg}"[:LONGEST_TEXT]
    except (ValueError, RecursionError, MemoryError):
        pass
    return ""


def _read(tree: ast.Module) -> ScriptHelp:
    names, constants = imported(tree), dict(constants_of(tree))
    found = [
        (call.lineno, argument)
        for call in calls(tree)
        if argparse_calls.is_declared_by(call) and (argument := argparse_calls.argument(call, constants)) is not None
    ]
    made = [] if found else _made(tree, names, constants)
    told = [argument for _, argument in sorted([*found, *made], key=lambda each: each[0])[:MOST_ARGUMENTS]]
    description = (ast.get_docstring(tree) or "").strip().split("\n\n")[0]
    runnable = bool(told) or any(isinstance(node, ast.If) and "__main__" in ast.dump(node.test) for node in tree.body)
    return ScriptHelp(" ".join(description.split())[:LONGEST_TEXT], tuple(told), runnable, is_whole=not made)


def _made(tree: ast.Module, names: dict[str, str], constants: Mapping[str, object]) -> list[tuple[int, Argument]]:
    """Those that a library makes."""
    return [
        *click_options.of_click(tree, names, constants),
        *click_options.of_absl(tree, names, constants),
        *command_functions.arguments(tree, names, constants),
    ]
