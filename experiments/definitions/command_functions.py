"""Arguments that a script has since a library makes a command of a function, or of a dataclass: Typer, Fire, tyro, jsonargparse, and the
HfArgumentParser of Transformers. Pure.

What they are is said by names, annotations and defaults. One whose annotation is not understood is left out, and so is a script with
several commands: the command can be typed all the same.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from experiments.definitions.imported_names import calls, full_name, keywords
from experiments.definitions.literals import UNKNOWN, literal, text_of, typed
from experiments.definitions.script_argument import LONGEST_TEXT, MOST_CHOICES, Argument

Function = ast.FunctionDef | ast.AsyncFunctionDef
Declared = tuple[int, Argument]
_SIMPLE = {"int": "whole", "float": "number", "str": "text", "Path": "text", "bool": "flag"}
_LISTS = ("list", "List", "tuple", "Tuple", "Sequence")


@dataclass(frozen=True)
class Style:
    """How a library writes what it finds. dashes: in place of underscores. switch: the words that a bool takes; none: --it and --no-it.
    positional: what has no default has no name. by_value: members of an Enum are typed by their values, not their names. lists: of several
    words behind one name. dataclasses: it takes their fields for arguments; a class is a group of commands else."""

    dashes: bool = False
    switch: tuple[str, ...] = ()
    positional: bool = False
    by_value: bool = False
    lists: bool = False
    dataclasses: bool = True


TYPER = Style(dashes=True, positional=True, by_value=True, dataclasses=False)
STYLES = {
    "typer.run": TYPER,
    "fire.Fire": Style(switch=("True", "False"), dataclasses=False),
    "tyro.cli": Style(dashes=True, lists=True),
    **dict.fromkeys(("jsonargparse.CLI", "jsonargparse.auto_cli"), Style(switch=("true", "false"), positional=True)),
    **dict.fromkeys(
        ("transformers.HfArgumentParser", "transformers.hf_argparser.HfArgumentParser"),
        Style(switch=("True", "False"), by_value=True, lists=True),
    ),
}


@dataclass(frozen=True)
class Parameter:
    """Of a function, or a field of a dataclass. `said`: what Typer is told of it, or what its metadata say."""

    name: str
    line: int
    annotation: ast.expr | None
    default: ast.expr | None
    help: str = ""
    said: ast.Call | None = None
    has_default: bool = True


@dataclass(frozen=True)
class Names:
    """Of the script: what is imported, its constants, functions and classes."""

    imported: dict[str, str]
    constants: Mapping[str, object]
    functions: dict[str, Function]
    classes: dict[str, ast.ClassDef]


def arguments(tree: ast.Module, imported: dict[str, str], constants: Mapping[str, object]) -> list[Declared]:
    functions = {node.name: node for node in tree.body if isinstance(node, Function)}
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    names = Names(imported, constants, functions, classes)
    made = [(STYLES[name], call) for call in calls(tree) if (name := full_name(call.func, imported)) in STYLES]
    found: list[Declared] = []
    if len(made) == 1:
        style, call = made[0]
        for target in _targets(call):
            found += _of_target(target, style, names)
    elif not made and (command := _command_of_app(tree, names)) is not None:
        found += _of_target(command, TYPER, names)
    return found


def _targets(call: ast.Call) -> Iterator[str]:
    """The functions or classes that it is called with, alone or in a tuple."""
    first = call.args[0] if call.args else None
    for each in first.elts if isinstance(first, (ast.Tuple, ast.List)) else [first]:
        if isinstance(each, ast.Name):
            yield each.id


def _command_of_app(tree: ast.Module, names: Names) -> str | None:
    """The one function that is a command of a `typer.Typer()`."""
    apps = {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and full_name(node.value.func, names.imported) == "typer.Typer"
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    said = [(each.name, _method(d, apps)) for each in names.functions.values() for d in each.decorator_list]
    commands = [name for name, method in said if method == "command"]
    return commands[0] if len(commands) == 1 and all(method != "callback" for _, method in said) else None


def _method(decorator: ast.expr, apps: set[str]) -> str:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    is_of_app = isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) and called.value.id in apps
    return called.attr if is_of_app and isinstance(called, ast.Attribute) else ""


def _of_target(name: str, style: Style, names: Names) -> Iterator[Declared]:
    if name in names.functions:
        parameters = _of_function(names.functions[name], names)
    elif style.dataclasses and name in names.classes and _is_dataclass(names.classes[name], names):
        parameters = _of_dataclass(names.classes[name], names)
    else:
        return
    for each in parameters:
        if (argument := _argument(each, style, names)) is not None:
            yield each.line, argument


def _is_dataclass(of: ast.ClassDef, names: Names) -> bool:
    called = (each.func if isinstance(each, ast.Call) else each for each in of.decorator_list)
    return any(full_name(each, names.imported) == "dataclasses.dataclass" for each in called)


def _of_function(function: Function, names: Names) -> Iterator[Parameter]:
    given = function.args
    several = [*given.posonlyargs, *given.args]
    defaults: list[ast.expr | None] = [*[None] * (len(several) - len(given.defaults)), *given.defaults]
    for each, default in (*zip(several, defaults, strict=True), *zip(given.kwonlyargs, given.kw_defaults, strict=True)):
        yield _as_typer_has_it(Parameter(each.arg, each.lineno, each.annotation, default, has_default=default is not None), names)


def _as_typer_has_it(found: Parameter, names: Names) -> Parameter:
    """With what Typer's Option or Argument says of it, as its default or in an Annotated."""
    annotation, extra = found.annotation, []
    if isinstance(annotation, ast.Subscript) and _bare(annotation.value) == "Annotated" and isinstance(annotation.slice, ast.Tuple):
        annotation, *extra = annotation.slice.elts
    said = next((each for each in extra if _is_typers(each, names)), None)
    default, has_default = found.default, found.has_default
    if isinstance(default, ast.Call) and _is_typers(default, names):
        said = default
        default = default.args[0] if default.args else keywords(default).get("default")
        has_default = default is not None and not (isinstance(default, ast.Constant) and default.value is ...)
    call = said if isinstance(said, ast.Call) else None
    text = text_of(keywords(call).get("help")) if call is not None else found.help
    return replace(found, annotation=annotation, default=default if has_default else None, has_default=has_default, said=call, help=text)


def _is_typers(node: ast.expr | None, names: Names) -> bool:
    return isinstance(node, ast.Call) and full_name(node.func, names.imported) in ("typer.Option", "typer.Argument")


def _of_dataclass(of: ast.ClassDef, names: Names) -> Iterator[Parameter]:
    for node in of.body:
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        default, has_default, text = node.value, node.value is not None, ""
        if isinstance(default, ast.Call):
            said = keywords(default)
            if literal(said.get("init"), {}) is False:
                continue
            metadata = said.get("metadata")
            if isinstance(metadata, ast.Dict):
                pairs = zip(metadata.keys, metadata.values, strict=True)
                text = next((text_of(value) for key, value in pairs if isinstance(key, ast.Constant) and key.value == "help"), "")
            default, has_default = said.get("default"), "default" in said or "default_factory" in said
        yield _as_typer_has_it(Parameter(node.target.id, node.lineno, node.annotation, default, text, has_default=has_default), names)


def _argument(each: Parameter, style: Style, names: Names) -> Argument | None:
    found = _kind(each.annotation, each.default, style, names)
    if found is None:
        return None
    kind, choices = found
    name = each.name.replace("_", "-") if style.dashes else each.name
    flags, off = _flags(each, f"--{name}", f"--no-{name}", names)
    default, computed = _default(each, kind, style, names)
    required = not each.has_default
    if required and kind == "flag" and (style.positional or not style.switch):
        return None  # no two of them agree on what is typed then
    is_named = each.said is None or full_name(each.said.func, names.imported) == "typer.Option"
    if style.positional and kind != "flag" and ((required and each.said is None) or not is_named):
        return Argument((each.name,), kind, default, each.help, choices, required, computed)
    if kind == "flag" and style.switch:
        said = {"True": style.switch[0], "False": style.switch[1]}.get(default or "")
        return Argument(flags, "choice", said, each.help, style.switch, required, computed)
    if kind == "flag":
        is_on = default == "True"
        return Argument(flags, kind, "on" if is_on else "off", each.help, off=off) if off or not is_on else None  # it changes nothing
    return Argument(flags, kind, default, each.help, choices, required, computed)


def _default(each: Parameter, kind: str, style: Style, names: Names) -> tuple[str | None, str]:
    """As `literals.typed` has it."""
    if isinstance(each.default, ast.Attribute) and (member := _member(each.default, style, names)) is not None:
        return member, ""
    if isinstance(each.default, (ast.Tuple, ast.List, ast.Dict)) and kind != "words":
        return ast.unparse(each.default)[:LONGEST_TEXT], ""  # which is read as Python's
    return typed(each.default, names.constants)


def _flags(each: Parameter, usual: str, usual_off: str, names: Names) -> tuple[tuple[str, ...], str]:
    """Those that Typer is told, else the usual ones; and what turns a bool off."""
    words = [literal(word, names.constants) for word in each.said.args] if each.said is not None else []
    told = [word for word in words if isinstance(word, str) and word.startswith("-")]
    if not told:
        return (usual,), usual_off
    pairs = [word.partition("/") for word in told]
    return tuple(sorted((on for on, _, _ in pairs), key=len, reverse=True)), next((off for _, _, off in pairs if off), "")


def _kind(annotation: ast.expr | None, default: ast.expr | None, style: Style, names: Names) -> tuple[str, tuple[str, ...]] | None:
    """And its choices; None where it is not understood."""
    if annotation is None:
        value = literal(default, names.constants)
        return (_SIMPLE.get(type(value).__name__, "text"), ()) if value is not UNKNOWN or default is None else None
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        try:
            annotation = ast.parse(annotation.value, mode="eval").body
        except SyntaxError:
            return None
    if isinstance(annotation, ast.BinOp) and isinstance(annotation.op, ast.BitOr):
        sides = [side for side in (annotation.left, annotation.right) if not (isinstance(side, ast.Constant) and side.value is None)]
        return _kind(sides[0], default, style, names) if len(sides) == 1 else None
    if isinstance(annotation, ast.Subscript):
        return _of_subscript(annotation, default, style, names)
    name = _bare(annotation)
    if name in names.classes and any(_bare(base).endswith("Enum") for base in names.classes[name].bases):
        return "choice", tuple(_members(names.classes[name], style).values())[:MOST_CHOICES]
    return (_SIMPLE[name], ()) if name in _SIMPLE else None


def _of_subscript(annotation: ast.Subscript, default: ast.expr | None, style: Style, names: Names) -> tuple[str, tuple[str, ...]] | None:
    name = _bare(annotation.value)
    if name == "Optional":
        return _kind(annotation.slice, default, style, names)
    if name == "Literal":
        each = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]
        values = [literal(value, names.constants) for value in each[:MOST_CHOICES]]
        return ("choice", tuple(str(value)[:LONGEST_TEXT] for value in values)) if UNKNOWN not in values else None
    return ("words", ()) if name in _LISTS and style.lists else None


def _members(of: ast.ClassDef, style: Style) -> dict[str, str]:
    """What is typed for each member of an Enum."""
    found = {}
    for node in of.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            value = literal(node.value, {})
            found[node.targets[0].id] = str(value) if style.by_value and value is not UNKNOWN else node.targets[0].id
    return found


def _member(node: ast.Attribute, style: Style, names: Names) -> str | None:
    of = names.classes.get(_bare(node.value))
    return _members(of, style).get(node.attr) if of is not None else None


def _bare(node: ast.expr) -> str:
    """The last part of a name."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
