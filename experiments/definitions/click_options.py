"""Arguments that a script declares by click's decorators, or as absl's flags. Pure.

Of several commands in one script nothing is said: each has arguments of its own.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from experiments.definitions.imported_names import calls, full_name, keywords
from experiments.definitions.literals import choices_of, literal, text_of, typed
from experiments.definitions.script_argument import Argument

_LIBRARIES = ("click", "rich_click")
_TYPES = {"int": "whole", "float": "number", "INT": "whole", "FLOAT": "number", "IntRange": "whole", "FloatRange": "number"}
_OF_VALUES = {int: "whole", float: "number"}
_FLAGS = {"DEFINE_float": "number", "DEFINE_integer": "whole", "DEFINE_string": "text", "DEFINE_enum": "choice"}
_SWITCHES = ("DEFINE_bool", "DEFINE_boolean")

Declared = tuple[int, Argument]


def of_click(tree: ast.Module, names: dict[str, str], constants: Mapping[str, object]) -> list[Declared]:
    functions = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    commands = [each for each in functions if any(_is_of_click(d, names, "command") for d in each.decorator_list)]
    grouped = any(_is_of_click(d, names, "group") for each in functions for d in each.decorator_list)
    if len(commands) != 1 or grouped:
        return []
    found = (_of_click(d, names, constants) for d in commands[0].decorator_list if isinstance(d, ast.Call))
    return [each for each in found if each is not None]


def _is_of_click(decorator: ast.expr, names: dict[str, str], what: str) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return full_name(called, names) in {f"{library}.{what}" for library in _LIBRARIES}


def _of_click(call: ast.Call, names: dict[str, str], constants: Mapping[str, object]) -> Declared | None:
    words = [each.value for each in call.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    said = keywords(call)
    default, computed = typed(said.get("default"), constants)
    if _is_of_click(call, names, "argument") and words:
        kind, choices = _kind(said, constants)
        required = default is None and not computed and kind != "words"
        return call.lineno, Argument((words[0],), kind, default, "", choices, required, computed)
    flags = [each for each in words if each.startswith("-")]
    if not _is_of_click(call, names, "option") or not flags:
        return None
    pairs = [each.partition("/") for each in flags]
    on = tuple(sorted((each.strip() for each, _, _ in pairs), key=len, reverse=True))
    off = next((each.strip() for _, _, each in pairs if each), "")
    if off or literal(said.get("is_flag"), constants) is True:
        if default == "True" and not off:
            return None  # it changes nothing
        return call.lineno, Argument(on, "flag", "on" if default == "True" else "off", text_of(said.get("help")), off=off)
    if literal(said.get("multiple"), constants) is True or literal(said.get("count"), constants) is True:
        return None  # it is said again for each value
    kind, choices = _kind(said, constants)
    required = literal(said.get("required"), constants) is True
    return call.lineno, Argument(on, kind, default, text_of(said.get("help")), choices, required, computed)


def _kind(said: Mapping[str, ast.expr], constants: Mapping[str, object]) -> tuple[str, tuple[str, ...]]:
    if literal(said.get("nargs"), constants) not in (1, None) and "nargs" in said:
        return "words", ()
    of = said.get("type")
    called = of.func if isinstance(of, ast.Call) else of
    name = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
    if isinstance(of, ast.Call) and name == "Choice" and of.args and (choices := choices_of(of.args[0], constants)):
        return "choice", choices
    if of is not None:
        return _TYPES.get(name, "text"), ()
    return _OF_VALUES.get(type(literal(said.get("default"), constants)), "text"), ()


def of_absl(tree: ast.Module, names: dict[str, str], constants: Mapping[str, object]) -> Iterator[Declared]:
    for call in calls(tree):
        what = full_name(call.func, names).removeprefix("absl.flags.")
        if what not in (*_FLAGS, *_SWITCHES) or not call.args or not isinstance(name := literal(call.args[0], constants), str):
            continue
        places = ("name", "default", *(["choices"] if what == "DEFINE_enum" else []), "help")
        said = dict(zip(places, call.args, strict=False)) | keywords(call)
        default, computed = typed(said.get("default"), constants)
        help_text = text_of(said.get("help"))
        if what in _SWITCHES:
            yield call.lineno, Argument((f"--{name}",), "flag", "on" if default == "True" else "off", help_text, off=f"--no{name}")
            continue
        choices = choices_of(said.get("choices"), constants) if what == "DEFINE_enum" else ()
        required = literal(said.get("required"), constants) is True
        yield call.lineno, Argument((f"--{name}",), _FLAGS[what], default, help_text, choices, required, computed)
