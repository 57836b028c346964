"""Reads the project's own source with `ast`: what each module imports, how long things are, what runs on import. It executes none of it."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TREES = ("edt_client", "experiments", "training_runtime", "webapp")
GENERATED = frozenset({"migrations"})

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, eq=False)
class Module:
    """One source file. `name` as it is imported; a package is named without its `__init__`."""

    name: str
    path: Path
    tree: ast.Module

    @property
    def lines(self) -> int:
        return len(self.path.read_text(encoding="utf-8").splitlines())

    def where(self, node: ast.AST) -> str:
        return f"{self.path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}"


def modules(*trees: str) -> tuple[Module, ...]:
    """Every module of the named trees that exists, generated ones left out."""
    return tuple(module for top in trees or TREES for module in _modules(top))


@cache
def _modules(top: str) -> tuple[Module, ...]:
    gc.disable()  # it would go through all the trees of before again and again, for nothing
    try:
        return tuple(_parsed(path) for path in sorted((ROOT / top).rglob("*.py")) if not GENERATED & set(path.relative_to(ROOT).parts))
    finally:
        gc.enable()


def _parsed(path: Path) -> Module:
    parts = path.relative_to(ROOT).with_suffix("").parts
    name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    return Module(name, path, ast.parse(path.read_text(encoding="utf-8"), filename=str(path)))


@cache
def names() -> frozenset[str]:
    return frozenset(each.name for each in modules())


@cache
def imports(module: Module) -> dict[str, str]:
    """What the module imports, also inside functions, and where.

    `from package import name` counts as `package.name` where that is a module of this project, else as `package`.
    """
    known = names()
    found: dict[str, str] = {}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                found.setdefault(alias.name, module.where(node))
        elif isinstance(node, ast.ImportFrom):
            package = _absolute(module, node)
            for alias in node.names:
                inner = f"{package}.{alias.name}"
                found.setdefault(inner if inner in known else package, module.where(node))
    return found


def _absolute(module: Module, node: ast.ImportFrom) -> str:
    if node.level == 0:
        return node.module or ""
    parts = module.name.split(".")
    keep = len(parts) - node.level + (module.path.name == "__init__.py")
    return ".".join([*parts[:keep], *([node.module] if node.module else [])])


def on_import(module: Module) -> Iterator[ast.AST]:
    """Every node that runs when the module is imported: all but the bodies of functions, and what only runs as a program."""
    yield from _on_import(module.tree)


def _on_import(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "__main__" in ast.dump(child.test):
            continue
        if isinstance(child, ast.Lambda):
            continue
        if isinstance(child, FunctionNode):
            for runs in (*child.decorator_list, *child.args.defaults, *(each for each in child.args.kw_defaults if each is not None)):
                yield runs
                yield from _on_import(runs)
            continue
        yield child
        yield from _on_import(child)


def functions(module: Module) -> Iterator[FunctionNode]:
    for node in ast.walk(module.tree):
        if isinstance(node, FunctionNode):
            yield node


def dotted(node: ast.AST) -> str:
    """`os.environ.get` for the expression that reads so, "" for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return ""
