"""What stands literally in a script's text: numbers, strings, lists, names of constants of the module, and simple sums of them. Pure."""

from __future__ import annotations

import ast
import operator
from collections.abc import Iterator, Mapping
from typing import Any

from experiments.definitions.script_argument import LONGEST_TEXT, MOST_CHOICES

UNKNOWN = object()
_ARITHMETIC: dict[type[ast.operator], Any] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def literal(node: ast.expr | None, constants: Mapping[str, object]) -> object:
    """UNKNOWN for all else."""
    if node is None:
        return UNKNOWN
    if isinstance(node, ast.Name):
        return constants.get(node.id, UNKNOWN)
    if isinstance(node, ast.BinOp):
        left, right = literal(node.left, constants), literal(node.right, constants)
        do = _ARITHMETIC.get(type(node.op))
        if do is None or not all(isinstance(each, (int, float)) and abs(each) < 1e12 for each in (left, right)):
            return UNKNOWN
        return do(left, right) if right or do is not operator.truediv else UNKNOWN
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return UNKNOWN


def constants_of(tree: ast.Module) -> Iterator[tuple[str, object]]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            value = literal(node.value, {})
            if value is not UNKNOWN:
                yield node.targets[0].id, value


def typed(node: ast.expr | None, constants: Mapping[str, object]) -> tuple[str | None, str]:
    """(as it would be typed on a command line, as it stands where it is computed). Neither for None, which is no value."""
    if node is None:
        return None, ""
    value = literal(node, constants)
    if value is UNKNOWN:
        return None, ast.unparse(node)[:80]
    if value is None:
        return None, ""
    if isinstance(value, (list, tuple)):
        return " ".join(map(str, value))[:LONGEST_TEXT], ""
    return str(value)[:LONGEST_TEXT], ""


def choices_of(node: ast.expr | None, constants: Mapping[str, object]) -> tuple[str, ...]:
    """Those that a list, tuple, set or the keys of a dict give."""
    value = literal(node, constants) if node is not None else None
    if isinstance(value, dict):
        value = list(value)
    return tuple(str(each)[:LONGEST_TEXT] for each in value)[:MOST_CHOICES] if isinstance(value, (list, tuple, set)) else ()


def text_of(node: ast.expr | None) -> str:
    """A string that stands there, on one line."""
    return " ".join(node.value.split())[:LONGEST_TEXT] if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
