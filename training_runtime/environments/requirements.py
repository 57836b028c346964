"""Reads what a script's upload requires: requirements.txt or pyproject.toml, or what a notebook installs, each line with where it stands.
Pure: texts in, lines out.

Of the format of requirements files that part is taken that names packages: names, extras, versions, markers, comments, `-r` of another file
of the upload. What would name a place (an index, an address, a folder) is refused with a sentence, since whoever uploads code should not
choose where an installation's packages come from; an administrator may allow indexes and addresses (`Allowed`).
"""

from __future__ import annotations

import hashlib
import posixpath
import re
import tomllib
from collections.abc import Callable, Collection
from dataclasses import dataclass

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from training_runtime import notebooks

FILE, PROJECT = "requirements.txt", "pyproject.toml"
MOST_BYTES, MOST_LINES, DEEPEST = 256 << 10, 2000, 10
OF_THE_MACHINE = ("torch", "numpy", "pip", "setuptools", "wheel", "notebook", "jupyter", "jupyterlab", "ipywidgets")
FITTING_THE_MACHINE = ("torchvision", "torchaudio")  # by whatever version fits its torch
INDEX_OPTIONS = ("--index-url", "--extra-index-url", "--find-links", "--default-index", "--index")
_SHORT = {"-i": "--index-url", "-f": "--find-links", "-r": "--requirement", "-c": "--constraint", "-e": "--editable"}
_IGNORED = ("--prefer-binary", "--no-cache-dir", "--disable-pip-version-check")
_VERSION_CONTROL = re.compile(r"(git|hg|svn|bzr)\+", re.IGNORECASE)
_ARCHIVE = re.compile(r"\.(whl|zip|tar\.\w+|tgz)$", re.IGNORECASE)
_ORIGIN = re.compile(r"\s+# (?P<file>[^#]+):(?P<number>\d+)$")


class Refused(ValueError):
    """The file cannot be used; the message names the line and what to do."""


@dataclass(frozen=True)
class Allowed:
    """What an administrator lets files name beside packages: `addresses` of packages and indexes."""

    addresses: bool = False


@dataclass(frozen=True)
class Line:
    """One requirement (PEP 508), or one option that names an index (`name` is empty then), and where it stands."""

    text: str
    name: str
    file: str
    number: int

    @property
    def where(self) -> str:
        return f"{self.file} line {self.number}" if self.number else self.file


def find(files: Collection[str], script: str) -> str:
    """Which of the upload's files says what the script requires; empty where none does. Beside the script goes before the top."""
    folders = dict.fromkeys((posixpath.dirname(script), ""))
    names = (posixpath.join(folder, name) for name in (FILE, PROJECT) for folder in folders)
    return next((name for name in names if name in files), "")


def read(path: str, text_of: Callable[[str], bytes], *, allowed: Allowed | None = None) -> tuple[Line, ...]:
    """The lines of the file and of those that it names by `-r`. `text_of` gives a file of the upload (KeyError: there is none)."""
    allowed = allowed or Allowed()
    if posixpath.basename(path) == PROJECT:
        return _of_project(path, _decoded(path, text_of(path)), allowed)
    if notebooks.is_notebook(path):
        return _of_notebook(path, text_of(path))
    found = tuple(_of_file(path, text_of, allowed, above=()))
    if len(found) > MOST_LINES:
        raise Refused(f"{path} asks for {len(found)} packages, and {MOST_LINES} is the most: name those that the script imports.")
    return found


def to_text(lines: Collection[Line]) -> str:
    """One requirement a line, each followed by where it stands: what is stored, and read again by `from_text`."""
    return "".join(f"{line.text}  # {line.file}:{line.number}\n" for line in lines)


def from_text(text: str) -> tuple[Line, ...]:
    lines = []
    for number, raw in enumerate(text.splitlines(), 1):
        place = _ORIGIN.search(raw)
        words = raw[: place.start()] if place else raw
        file, at = (place["file"], int(place["number"])) if place else (FILE, number)
        lines.append(Line(words, _name(words), file, at))
    return tuple(lines)


def key(lines: Collection[Line]) -> str:
    """The same for files that ask for the same: order, comments and spelling of names do not count. Options do, in their order."""
    options = [line.text for line in lines if not line.name]
    wanted = sorted({_normal(line.text) for line in lines if line.name})
    return hashlib.sha256("\n".join([*options, "", *wanted]).encode()).hexdigest()


def _of_file(path: str, text_of: Callable[[str], bytes], allowed: Allowed, *, above: tuple[str, ...]) -> list[Line]:
    found: list[Line] = []
    for number, raw in _logical(_decoded(path, text_of(path))):
        where = f"{path} line {number}"
        if not raw.startswith("-"):
            found.append(_requirement(raw, path, number, allowed))
            continue
        option, value = _option(raw)
        if option in _IGNORED:
            continue
        if option == "--requirement":
            found += _included(value, path, where, text_of, allowed, above=(*above, path))
        elif option in INDEX_OPTIONS and allowed.addresses and value:
            found.append(Line(f"{option} {value}", "", path, number))
        else:
            raise Refused(_why_not(option, where))
    return found


def _included(
    value: str, path: str, where: str, text_of: Callable[[str], bytes], allowed: Allowed, *, above: tuple[str, ...]
) -> list[Line]:
    inside = posixpath.normpath(posixpath.join(posixpath.dirname(path), value))
    if inside in above or len(above) > DEEPEST:
        raise Refused(f"{where}: {value} names itself again: take the line out.")
    if not value or inside.startswith(("../", "/")) or "://" in value:
        raise Refused(f"{where}: {value or 'this'} is not a file of the upload: put it in, or write its lines here.")
    try:
        return _of_file(inside, text_of, allowed, above=above)
    except KeyError:
        raise Refused(f"{where}: there is no {inside} in the upload: put it in, or write its lines here.") from None


def _why_not(option: str, where: str) -> str:
    if option == "--editable":
        return (
            f"{where}: editable packages (-e) are not installed: code in the upload is imported from beside the script, so take the line "
            "out."
        )
    if option in INDEX_OPTIONS:
        return f"{where}: {option} is not taken from uploads: an administrator sets the package index for all (UV_INDEX_URL), or allows it."
    if option == "--constraint":
        return f"{where}: constraints files (-c) are not read: write the limits into the requirements themselves."
    return f"{where}: the option {option} is not known here: take it out and leave the names of packages."


def _requirement(raw: str, file: str, number: int, allowed: Allowed) -> Line:
    where = f"{file} line {number}"
    text = re.split(r"\s--(?:hash|global-option|config-settings)\b", raw)[0].strip()  # the lock has hashes of its own
    head = text.split(";")[0].strip()
    if _VERSION_CONTROL.match(head) or head.startswith(("http://", "https://")):
        raise Refused(
            f"{where}: {_printable(head)} is an address without a name: write it as NAME @ ADDRESS, or name a release of the package."
        )
    if head.startswith((".", "/", "~", "file:")) or (_ARCHIVE.search(head) and "@" not in head):
        raise Refused(f"{where}: {_printable(head)} is a file or folder: name a release of the package, or put its code beside the script.")
    if "${" in head:
        raise Refused(f"{where}: variables such as ${{NAME}} are not filled in: write the value.")
    try:
        parsed = Requirement(text)
    except InvalidRequirement:
        raise Refused(f"{where}: {_printable(text)} is not a requirement: write it as NAME, NAME==1.2 or NAME>=1.2.") from None
    if parsed.url:
        _check_address(parsed, where, allowed)
    return Line(str(parsed), canonicalize_name(parsed.name), file, number)


def _check_address(parsed: Requirement, where: str, allowed: Allowed) -> None:
    url = str(parsed.url)
    if not url.startswith(("https://", "git+https://")):
        raise Refused(f"{where}: {parsed.name} comes from {_printable(url)}, which is no https address: name a release of the package.")
    if not allowed.addresses:
        raise Refused(
            f"{where}: {parsed.name} comes from an address. Name a release of the package (or put its code beside the script); "
            "an administrator may allow addresses."
        )


def _of_project(path: str, text: str, allowed: Allowed) -> tuple[Line, ...]:
    try:
        project = tomllib.loads(text).get("project", {})
    except tomllib.TOMLDecodeError as error:
        raise Refused(f"{path} cannot be read ({error}): mend it, or bring a requirements.txt.") from None
    if not isinstance(project, dict):
        raise Refused(f"{path}: [project] is not a table: mend it, or bring a requirements.txt.")
    if "dependencies" in (project.get("dynamic") or []):
        raise Refused(f"{path}: its dependencies are worked out by its build (dynamic): bring a requirements.txt beside it.")
    wanted = project.get("dependencies") or []
    if not isinstance(wanted, list) or not all(isinstance(each, str) for each in wanted):
        raise Refused(f'{path}: dependencies of [project] is not a list of texts: write dependencies = ["NAME>=1.2"].')
    rows = text.splitlines()
    begin = next((n for n, row in enumerate(rows) if row.strip().startswith("dependencies")), 0)
    numbers = (next((n for n, row in enumerate(rows[begin:], begin + 1) if each in row), 0) for each in wanted)
    return tuple(_requirement(each.strip(), path, number, allowed) for each, number in zip(wanted, numbers, strict=True))


def _of_notebook(path: str, content: bytes) -> tuple[Line, ...]:
    """Of its lines of pip what can be had: it ran before, somewhere else, and its run says which of them it leaves out."""
    try:
        said = notebooks.installs(content, name=path)
    except notebooks.NotANotebook:
        return ()  # its run will say so
    lines: dict[str, Line] = {}
    for text in said[:MOST_LINES]:
        name = _name(text)
        if name and name not in OF_THE_MACHINE:
            lines[name] = Line(name if name in FITTING_THE_MACHINE else text, name, path, 0)
    return tuple(lines.values())


def _logical(text: str) -> list[tuple[int, str]]:
    """Lines without comments, those that end with a backslash joined; each with the number of its first."""
    found: list[tuple[int, str]] = []
    begun, parts = 0, ""
    for number, raw in enumerate(text.splitlines(), 1):
        line = re.sub(r"(^|\s)#.*$", "", raw).rstrip()
        begun = begun or number
        if line.endswith("\\"):
            parts += line[:-1] + " "
            continue
        if whole := (parts + line).strip():
            found.append((begun, whole))
        begun, parts = 0, ""
    return [*found, (begun, parts.strip())] if parts.strip() else found


def _option(raw: str) -> tuple[str, str]:
    words = raw.split(None, 1)
    option, _, value = words[0].partition("=")
    if len(option) > 2 and not option.startswith("--"):  # -rother.txt
        option, value = option[:2], words[0][2:]
    value = value or (words[1].strip() if len(words) > 1 else "")
    return _SHORT.get(option, option), value.strip("\"'")


def _decoded(path: str, content: bytes) -> str:
    if len(content) > MOST_BYTES:
        raise Refused(f"{path} is larger than {MOST_BYTES >> 10} KiB: name the packages that the script imports.")
    encoding = "utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"  # what PowerShell's > writes
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError:
        raise Refused(f"{path} is not text in UTF-8: save it again as that.") from None
    if "\0" in text:
        raise Refused(f"{path} is not text: it has NUL characters in it.")
    return text


def _name(text: str) -> str:
    try:
        return canonicalize_name(Requirement(text).name)
    except InvalidRequirement:
        return ""


def _normal(text: str) -> str:
    parsed = Requirement(text)
    parsed.name = canonicalize_name(parsed.name)
    return str(parsed)


def _printable(text: str) -> str:
    return re.sub(r"//[^/@\s]*@", "//", text)[:120]
