"""What boxed children answer about people's files is looked at before it is believed: whatever they say, and whatever they left in a folder
that they were handed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.boxed import folders, previews, required
from experiments.definitions import codework
from experiments.files.zipcheck import BundleRefused, Limits
from experiments.selectors import previews as selected
from tests import cast
from training_runtime.environments import requirements
from training_runtime.errors import ProtocolError

JSONS: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda each: st.lists(each) | st.dictionaries(st.text(), each), max_leaves=10
)
FIELDS = ("size_bytes", "text", "whole", "image", "table", "arrays", "laid_out", "as_text", "said", "instead")


@given(JSONS | st.fixed_dictionaries({name: JSONS for name in FIELDS}))
def test_whatever_a_child_answers_it_is_a_preview_or_refused(answer: Any) -> None:
    with contextlib.suppress(ProtocolError):
        assert isinstance(previews.believed(answer), previews.Preview)


@given(st.text() | st.text(alphabet='<>span/ class="hl-&;').map(lambda text: f'<div class="code"><pre>{text}</pre></div>'))
def test_what_goes_into_a_page_as_it_is_holds_no_marks_but_those_of_colours(text: str) -> None:
    with contextlib.suppress(ProtocolError):
        found = codework._coloured(text)
        assert "<script" not in found
        assert all(
            tag.startswith(("/span>", "span>", 'span class="', "/a>", "a id=", "/pre>", "pre>", "/div>", "div class="))
            for tag in found.split("<")[1:]
        )


@pytest.mark.parametrize(
    "html",
    [
        '<div class="code"><pre><script>alert(1)</script></pre></div>',
        '<div class="code"><pre><span class="x" onclick="alert(1)">x</span></pre></div>',
        '<div class="code"><pre></pre></div><img src=x>',
        '<div class="code"><pre>&#60;</pre></div>',
        "plain",
    ],
)
def test_marks_that_colouring_does_not_make_are_refused(html: str) -> None:
    with pytest.raises(ProtocolError):
        codework._coloured(html)


def test_a_preview_that_fails_says_why_and_what_to_do(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = home / "a.csv"
    path.write_text("a,b\n1,2\n")
    with open(path, "rb") as file:
        assert selected.preview(file, 8, name="a.csv").table is not None
        monkeypatch.setattr(selected, "WALL_S", 0.0)
        shown = selected.preview(file, 8, name="a.csv")
    assert shown.instead == "This file could not be read: it took longer than 0 s. Download it to look into it."
    assert (shown.table, shown.text) == (None, None)


def made(folder: Path) -> dict[str, Callable[[], object]]:
    """What a child that was taken over could leave in the folder that it was handed."""
    return {
        "a link to a file": lambda: (folder / "main.py").symlink_to("/etc/passwd"),
        "a link to a folder": lambda: (folder / "lib").symlink_to("/etc"),
        "a pipe": lambda: os.mkfifo(folder / "main.py"),
        "a file with another name elsewhere": lambda: os.link(folder.parent / "other", folder / "main.py"),
        "more than it may": lambda: (folder / "main.py").write_bytes(b"x" * 2000),
        "a control character": lambda: (folder / "a\nb.py").write_text(""),
        "too many files": lambda: [(folder / f"{number}.py").touch() for number in range(20)],
    }


@pytest.mark.parametrize("case", list(made(Path())))
def test_what_lies_in_a_folder_that_was_handed_over_is_not_believed(case: str, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (tmp_path / "other").write_text("not its own")
    made(folder)[case]()
    at = os.open(folder, os.O_RDONLY)
    try:
        with pytest.raises((ProtocolError, BundleRefused, OSError)):
            folders._check_returned(at, os.fstat(at), Limits(entries=10, unpacked_bytes=1000))
    finally:
        os.close(at)
    assert (tmp_path / "other").stat().st_mode & 0o777 == 0o644


def test_what_is_unpacked_belongs_to_the_studio(home: Path) -> None:
    (home / "code.zip").write_bytes(cast.zipped({"main.py": "x = 1\n", "lib/net.py": "y = 2\n"}).getvalue())
    into = home / "folder"
    into.mkdir(mode=0o700)
    found = folders.unpack(home / "code.zip", into=into, name="code.zip", limits=Limits(100, 1 << 20))
    assert sorted(found) == ["lib/net.py", "main.py"]
    assert {(path.stat().st_uid, path.stat().st_gid) for path in (into, *into.rglob("*"))} == {
        (os.geteuid(), (home / "code.zip").stat().st_gid)
    }
    assert (into / "lib" / "net.py").read_text() == "y = 2\n"


def test_requirements_that_name_each_other_without_end_are_refused_in_time(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = home / "folder"
    folder.mkdir()
    for name, named in (("requirements.txt", "a.txt"), ("a.txt", "b.txt"), ("b.txt", "c.txt"), ("c.txt", "d.txt")):
        (folder / name).write_text(f"-r {named}\n" * 1000)
    (folder / "d.txt").write_text("numpy\n")
    monkeypatch.setattr(required, "LIMITS", required.pool.Limits(cpu_s=1, memory_bytes=512 << 20))
    with pytest.raises(requirements.Refused, match=r"^requirements.txt could not be read: it (took longer than 1 s|needs more memory)"):
        required.read("requirements.txt", folder=folder)
    with pytest.raises(requirements.Refused, match=r"^pyproject.toml could not be read: it is nested too deeply\. Name the packages"):
        required.read("pyproject.toml", text="x = " + "[" * 100_000)
    assert [line.text for line in required.read("d.txt", folder=folder)] == ["numpy"]


@pytest.mark.parametrize(
    "answer", [None, [], {"refused": "", "lines": [{"text": "a\nb", "name": "a", "file": "f", "number": 1}]}, {"refused": 1}]
)
def test_what_a_child_says_of_requirements_is_lines_or_refused(answer: Any) -> None:
    with pytest.raises(ProtocolError):
        required._believed(answer)
