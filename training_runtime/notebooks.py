"""A notebook as the script that a run executes: its code cells one after the other, with what IPython understands and Python does not put
into Python's words. Nothing of it is run here.

Lines of IPython become calls of `notebook_cells`. A cell with the tag `parameters`, as papermill has it, is followed by a parser of the
command line, whose defaults are the cell's values: so a run's command can set them, and whoever reads a script's arguments finds them.
"""

from __future__ import annotations

import ast
import io
import json
import math
import re
import shlex
import tokenize
from collections.abc import Iterator, Mapping
from typing import Any

SUFFIX = ".ipynb"
PARAMETERS = "parameters"
_FUTURE = re.compile(r"from\s+__future__\s+import\s+[\w, ]+(?:#.*)?")
_CELL = re.compile(r"\s*%%(\w+)[ \t]*(.*)")
_LINE = re.compile(r"(\s*)((?:[A-Za-z_][\w., ]*=\s*)?)(!!?|%(?=[A-Za-z]))(.*)")
_HELP = re.compile(r"\s*(?:\?{1,2}\s*[\w.%]+|[\w.%]+\?{1,2})\s*")
_BODY_IS_PYTHON = {"time", "timeit", "capture", "prun", "memit", "mprun"}
_SHELLS = {"bash", "sh", "script", "system", "sx", "!"}
_PIP = re.compile(r"^[ \t]*[!%][ \t]*(?:python3?[ \t]+-m[ \t]+|uv[ \t]+)?pip3?[ \t]+install[ \t]+(.*)$", re.MULTILINE)
_PACKAGE = re.compile(r"[A-Za-z0-9][\w.-]*(?:\[[\w., -]+\])?\s*(?:[<>=!~]=?[^@;/]*)?")
_WITH_VALUE = {"-r", "--requirement", "-c", "--constraint", "-e", "--editable", "-t", "--target", "-i", "--index-url", "--extra-index-url"}
_WITH_VALUE |= {"-f", "--find-links", "--trusted-host", "--root", "--prefix", "--python", "--proxy", "--timeout", "--progress-bar"}
_ENDS_COMMAND = {"&&", "||", "|", ";", "&"}
_REDIRECTS = re.compile(r"[12&]?>")
_ASKS_FOR_KERNEL = re.compile(r"^(?:[A-Za-z_]\w*\s*=\s*)?get_ipython\(\)\.", re.MULTILINE)
_GIVEN = {"print", "display", "_magic", "_shell", "_write_file"}  # which show what they do themselves
_HEAD = """# The code cells of {name}. Lines that only a notebook understands call what this gives:
from training_runtime.notebook_cells import display, end_cell as _end_cell, get_ipython, magic as _magic, shell as _shell
from training_runtime.notebook_cells import show as _show, write_file as _write_file
"""


class NotANotebook(ValueError):
    """With a sentence about what is wrong with it."""


def is_notebook(path: str) -> bool:
    return path.endswith(SUFFIX)


def is_script(path: str) -> bool:
    """Whether a command may begin with it: a Python file, or a notebook that is no copy which Jupyter made for itself."""
    return path.endswith(".py") or (is_notebook(path) and ".ipynb_checkpoints" not in path.split("/"))


def script_name(path: str) -> str:
    """Under which a run has the script of the notebook `path`, beside it; of anything else the path itself."""
    return f"{path}.py" if is_notebook(path) else path


def notebook_name(script: str) -> str:
    """The notebook that `script_name` made this of; empty where it made none."""
    name = script.removesuffix(".py")
    return name if is_notebook(name) and script != name else ""


def script_of(text: str | bytes, *, name: str) -> str:
    """`text`: the notebook called `name`, of format 3 or 4. Raises NotANotebook."""
    cells = _cells(text, name)
    futures: list[str] = []
    parts = []
    for number, cell in cells:
        source = _source(cell)
        code = _with_last_value(cell_code(source))
        if PARAMETERS in _tags(cell):
            code += "\n" + _parser_of(code)
        lines = code.split("\n")
        futures += [line for line in lines if _FUTURE.fullmatch(line)]
        parts.append("\n".join([f"\n# %% [{number}]", *("" if _FUTURE.fullmatch(line) else line for line in lines), "_end_cell()"]))
    return "\n".join([*futures, _HEAD.format(name=name), *parts, ""])


def cell_code(source: str) -> str:
    """One cell in Python's words, which call what the head of a script gives: `_magic`, `_shell` and `_write_file`."""
    return "\n".join(_translated(source))


def calls_a_kernel(script: str) -> bool:
    """Whether this is a script that runs under IPython alone, as `jupyter nbconvert --to script` writes them: it asks for the kernel where
    nothing catches that there is none."""
    return bool(_ASKS_FOR_KERNEL.search(script))


def installs(text: str | bytes, *, name: str) -> list[str]:
    """What its lines of pip install, word by word: packages, as they are written there. Options and all that comes from a place that they
    name are left out. Raises NotANotebook."""
    found: list[str] = []
    for _, cell in _cells(text, name):
        for said in _PIP.findall(_source(cell).replace("\\\n", " ")):
            found += _packages(said)
    return list(dict.fromkeys(found))


def _packages(said: str) -> Iterator[str]:
    try:
        words = iter(shlex.split(said, comments=True))
    except ValueError:
        return
    for word in words:
        if word in _ENDS_COMMAND or _REDIRECTS.match(word):
            return
        if word in _WITH_VALUE:
            next(words, None)
        elif _PACKAGE.fullmatch(word):
            yield word


def _cells(text: str | bytes, name: str) -> list[tuple[int, Mapping[str, Any]]]:
    """The code cells, counted from 1 among all."""
    try:
        notebook = json.loads(text)
        metadata = notebook.get("metadata") or {}
        language = (metadata.get("kernelspec") or {}).get("language") or (metadata.get("language_info") or {}).get("name") or "python"
        found = notebook["cells"] if "cells" in notebook else [cell for sheet in notebook["worksheets"] for cell in sheet["cells"]]
        cells = [(number, cell) for number, cell in enumerate(found, start=1) if cell["cell_type"] == "code"]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise NotANotebook(f"{name} is not a notebook that can be read ({error}): save it anew in Jupyter.") from None
    if not str(language).lower().startswith(("python", "ipython")):
        raise NotANotebook(f"{name} is written in {language}; notebooks in Python are run.")
    return cells


def _source(cell: Mapping[str, Any]) -> str:
    said = cell.get("source", cell.get("input"))
    text = said if isinstance(said, str) else "".join(map(str, said)) if isinstance(said, list) else ""
    text = text.encode(errors="backslashreplace").decode()  # JSON may have half a character, which no file can
    return text.replace("\r\n", "\n").rstrip("\n")


def _tags(cell: Mapping[str, Any]) -> list[str]:
    metadata = cell.get("metadata")
    tags = metadata.get("tags") if isinstance(metadata, dict) else None
    return [str(tag) for tag in tags] if isinstance(tags, list) else []


def _translated(source: str) -> Iterator[str]:
    lines = source.split("\n")  # and nowhere else: a string may have other ends of lines in it
    while lines and not lines[0].strip():
        lines.pop(0)
    magic = _CELL.fullmatch(lines[0]) if lines else None
    if magic is None:
        yield from _python(lines)
        return
    name, said = magic[1], magic[2].strip()
    body = "\n".join(lines[1:]) + "\n"
    if name in _BODY_IS_PYTHON:
        yield from _python(lines[1:])
    elif name in ("writefile", "file"):
        yield f"_write_file({said!r}, {body!r})"
    elif name in _SHELLS:
        yield f"_shell({body!r})"
    else:
        yield f"_magic({name!r}, {said!r})"
        yield from (f"# {line}" for line in lines[1:])


def _with_last_value(code: str) -> str:
    """With the value of its last line shown, unless a semicolon ends that."""
    try:
        last = ast.parse(code).body[-1:]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return code
    if "\r" in code or not last or not isinstance(last[0], ast.Expr) or isinstance(last[0].value, ast.Constant | ast.Yield):
        return code
    value, lines = last[0].value, code.encode().split(b"\n")
    begin, end = (value.lineno - 1, value.col_offset), ((value.end_lineno or 0) - 1, value.end_col_offset or 0)
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in _GIVEN:
        return code
    if lines[end[0]][end[1] :].lstrip().startswith(b";"):
        return code
    opens, closes = (b"_show((", b"))") if isinstance(value, ast.Tuple) else (b"_show(", b")")
    lines[end[0]] = lines[end[0]][: end[1]] + closes + lines[end[0]][end[1] :]
    lines[begin[0]] = lines[begin[0]][: begin[1]] + opens + lines[begin[0]][begin[1] :]
    return b"\n".join(lines).decode()


def _python(lines: list[str]) -> Iterator[str]:
    done: list[str] = []
    left = list(lines)
    while left:
        line = left.pop(0)
        found = _LINE.fullmatch(line)
        if (found or _HELP.fullmatch(line)) and not _is_open("\n".join(done)):
            while line.endswith("\\") and left:
                line = f"{line[:-1]} {left.pop(0).strip()}"
            line = _call(_LINE.fullmatch(line), line)
        done.append(line)
        yield line


def _is_open(text: str) -> bool:
    """Whether what comes next belongs to a string or to brackets that are open."""
    try:
        for _ in tokenize.generate_tokens(io.StringIO(text).readline):
            pass
    except tokenize.TokenError as error:
        return "EOF" in str(error) or "triple-quoted" in str(error)
    except (SyntaxError, ValueError):
        pass
    return False


def _call(found: re.Match[str] | None, line: str) -> str:
    if found is None:  # what asks for help
        return f"{line[: len(line) - len(line.lstrip())]}pass  # {line.strip()}"
    indent, names, sign, said = found.groups()
    if sign != "%":
        values = ", {**globals(), **locals()}" if re.search(r"[{$]", said) else ""
        listed = ", listed=True" if names or sign == "!!" else ""
        return f"{indent}{names}_shell({said.strip()!r}{values}{listed})"
    name, _, rest = said.partition(" ")
    if name == "time":
        return f"{indent}{names}{rest.strip() or 'None'}"
    return f"{indent}{names}_magic({name!r}, {rest.strip()!r})"


def _parser_of(code: str) -> str:
    """A parser of the command line for each name that the cell gives a plain value; empty where it gives none, or is no Python."""
    try:
        options = list(_options(code))
    except (SyntaxError, ValueError, RecursionError, MemoryError, tokenize.TokenError):
        return ""
    begin = ["import argparse as _argparse", "_parser = _argparse.ArgumentParser()"]
    return "\n".join([*begin, *options, "globals().update(vars(_parser.parse_args()))"]) if options else ""


def _options(code: str) -> Iterator[str]:
    remarks = _remarks(code)
    for name, value, line in _values(ast.parse(code)):
        kind = "action=_argparse.BooleanOptionalAction" if isinstance(value, bool) else f"type={type(value).__name__}"
        remark = f", help={remarks[line].replace('%', '%%')!r}" if remarks.get(line) else ""
        yield f'_parser.add_argument("--{name}", {kind}, default={value!r}{remark})'


def _values(tree: ast.Module) -> Iterator[tuple[str, bool | int | float | str, int]]:
    """(name, value, line), a name that is given twice by its last value."""
    values: dict[str, tuple[bool | int | float | str, int]] = {}
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        if len(targets) != 1 or not isinstance(targets[0], ast.Name) or node.value is None:  # type: ignore[attr-defined]
            continue
        try:
            value = ast.literal_eval(node.value)  # type: ignore[attr-defined]
        except (ValueError, TypeError):
            continue
        is_plain = isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value))  # infinity has no words
        if is_plain and not targets[0].id.startswith("_") and targets[0].id != "help":
            values[targets[0].id] = value, node.end_lineno or node.lineno
    yield from ((name, value, line) for name, (value, line) in values.items())


def _remarks(code: str) -> dict[int, str]:
    """What stands behind code in a line."""
    tokens = tokenize.generate_tokens(io.StringIO(code).readline)
    return {token.start[0]: token.string.lstrip("# ").strip() for token in tokens if token.type == tokenize.COMMENT}
