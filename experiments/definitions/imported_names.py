"""What names of a script's text stand for: its imports, and what it calls by them. Pure."""

from __future__ import annotations

import ast
from collections.abc import Iterator


def imported(tree: ast.Module) -> dict[str, str]:
    """By the name that it has in the script ("t"): what it is by its full name ("typer", "fire.Fire")."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for each in node.names:
                found[each.asname or each.name.partition(".")[0]] = each.name if each.asname else each.name.partition(".")[0]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {each.asname or each.name: f"{node.module}.{each.name}" for each in node.names}
    return found


def full_name(node: ast.expr | None, names: dict[str, str]) -> str:
    """`t.run` -> "typer.run"; empty for what is no such name, or of the script's own."""
    if isinstance(node, ast.Attribute):
        return f"{of}.{node.attr}" if (of := full_name(node.value, names)) else ""
    return names.get(node.id, "") if isinstance(node, ast.Name) else ""


def calls(tree: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def keywords(call: ast.Call) -> dict[str, ast.expr]:
    return {each.arg: each.value for each in call.keywords if each.arg}
