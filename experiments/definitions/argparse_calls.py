"""Arguments that a script declares by argparse's `add_argument`. Pure."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from experiments.definitions.literals import choices_of, literal, typed
from experiments.definitions.script_argument import LONGEST_TEXT, Argument

_KINDS = {"int": "whole", "float": "number"}
_FLAGS = ("store_true", "store_false")
_HIDDEN = ("help", "version", "parsers")


def is_declared_by(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument"


def argument(call: ast.Call, constants: Mapping[str, object]) -> Argument | None:
    """None for what nobody fills in (--help), and where its name is computed."""
    flags = tuple(arg.value for arg in call.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str))
    if not flags or len(flags) != len(call.args):
        return None
    said = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
    action = _action(said.get("action"))
    if action in _HIDDEN:
        return None
    flags = tuple(sorted(flags, key=len, reverse=True))
    default, computed = typed(said.get("default"), constants)
    choices = choices_of(said.get("choices"), constants)
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
        required=(not flags[0].startswith("-") and "nargs" not in said) or literal(said.get("required"), constants) is True,
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


def _help(node: ast.expr | None, default: str) -> str:
    text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
    return " ".join(text.replace("%(default)s", default).replace("%(default)d", default).replace("%%", "%").split())[:LONGEST_TEXT]
