"""What a training script says of its arguments, read from its text: the calls of argparse's `add_argument`. The script is never run.

Only what is written literally is understood (numbers, strings, lists, names of module-level constants); what is computed is shown as it
stands. Pure: text in, facts out.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

MOST_ARGUMENTS = 200
LONGEST_TEXT = 400
_KINDS = {"int": "whole", "float": "number"}
_FLAGS = ("store_true", "store_false")
_HIDDEN = ("help", "version", "parsers")
_ARITHMETIC: dict[type[ast.operator], Any] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


@dataclass(frozen=True)
class Argument:
    """`flags` as on a command line, the longest name first; a positional argument has its bare name.

    `kind`: "whole", "number", "choice", "flag", "text", or "words" for several. `default` as it would be typed; None where there is none,
    or it is computed, and then `computed` is its text. A flag's `default` is "on" or "off"; `off` is the flag that turns it off, if any.
    """

    flags: tuple[str, ...]
    kind: str
    default: str | None
    help: str
    choices: tuple[str, ...] = ()
    required: bool = False
    computed: str = ""
    off: str = ""

    @property
    def name(self) -> str:
        return self.flags[0]

    @property
    def positional(self) -> bool:
        return not self.name.startswith("-")


@dataclass(frozen=True)
class ScriptHelp:
    """A script: what it says of itself in one line, its arguments, and whether it is meant to be run at all."""

    description: str
    arguments: tuple[Argument, ...]
    runnable: bool


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
    constants = dict(_constants(tree))
    found: list[tuple[int, Argument]] = []
    description = (ast.get_docstring(tree) or "").strip().split("\n\n")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
            argument = _argument(node, constants)
            if argument is not None and len(found) < MOST_ARGUMENTS:
                found.append((node.lineno, argument))
    found.sort(key=lambda each: each[0])
    runnable = bool(found) or any(isinstance(node, ast.If) and "__main__" in ast.dump(node.test) for node in tree.body)
    return ScriptHelp(" ".join(description.split())[:LONGEST_TEXT], tuple(argument for _, argument in found), runnable)


def _argument(call: ast.Call, constants: Mapping[str, object]) -> Argument | None:
    flags = tuple(arg.value for arg in call.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str))
    if not flags or len(flags) != len(call.args):
        return None
    said = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
    action = _action(said.get("action"))
    if action in _HIDDEN:
        return None
    flags = tuple(sorted(flags, key=len, reverse=True))
    default, computed = _default(said.get("default"), constants)
    choices = _choices(said.get("choices"), constants)
    kind = _kind(said, action, choices)
    off = ""
    if kind == "flag":
        off = f"--no-{flags[0].lstrip('-')}" if action == "BooleanOptionalAction" else ""
        default = "on" if action == "store_false" or default == "True" else "off"
    return Argument(
        flags=flags,
        kind=kind,
        default=default,
        help=_help(said.get("help"), default or computed),
        choices=choices,
        required=(not flags[0].startswith("-") and "nargs" not in said) or _literal(said.get("required"), constants) is True,
        computed=computed,
        off=off,
    )


def _action(node: ast.expr | None) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    return node.attr if isinstance(node, ast.Attribute) else ""


def _kind(said: Mapping[str, ast.expr], action: str, choices: tuple[str, ...]) -> str:
    if action in _FLAGS or action == "BooleanOptionalAction":
        return "flag"
    if "nargs" in said and not (isinstance(said["nargs"], ast.Constant) and said["nargs"].value == "?"):
        return "words"
    if choices:
        return "choice"
    if action:
        return "text"
    kind = said.get("type")
    return _KINDS.get(kind.id, "text") if isinstance(kind, ast.Name) else "text"


def _default(node: ast.expr | None, constants: Mapping[str, object]) -> tuple[str | None, str]:
    """(as it would be typed, as it stands where it is computed)."""
    if node is None:
        return None, ""
    value = _literal(node, constants)
    if value is _UNKNOWN:
        return None, ast.unparse(node)[:80]
    if value is None:
        return None, ""
    if isinstance(value, (list, tuple)):
        return " ".join(map(str, value))[:LONGEST_TEXT], ""
    return str(value)[:LONGEST_TEXT], ""


def _choices(node: ast.expr | None, constants: Mapping[str, object]) -> tuple[str, ...]:
    value = _literal(node, constants) if node is not None else None
    if isinstance(value, dict):
        value = list(value)
    return tuple(str(each)[:LONGEST_TEXT] for each in value)[:100] if isinstance(value, (list, tuple, set)) else ()


def _help(node: ast.expr | None, default: str) -> str:
    text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
    return " ".join(text.replace("%(default)s", default).replace("%(default)d", default).replace("%%", "%").split())[:LONGEST_TEXT]


_UNKNOWN = object()


def _literal(node: ast.expr | None, constants: Mapping[str, object]) -> object:
    """What is written literally, with names of constants and simple sums; _UNKNOWN for all else."""
    if node is None:
        return _UNKNOWN
    if isinstance(node, ast.Name):
        return constants.get(node.id, _UNKNOWN)
    if isinstance(node, ast.BinOp):
        left, right = _literal(node.left, constants), _literal(node.right, constants)
        do = _ARITHMETIC.get(type(node.op))
        if do is None or not all(isinstance(each, (int, float)) and abs(each) < 1e12 for each in (left, right)):
            return _UNKNOWN
        return do(left, right) if right or do is not operator.truediv else _UNKNOWN
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return _UNKNOWN


def _constants(tree: ast.Module) -> Iterator[tuple[str, object]]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            value = _literal(node.value, {})
            if value is not _UNKNOWN:
                yield node.targets[0].id, value
