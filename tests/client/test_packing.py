"""What of a folder is sent: what git would keep, in the same bytes each time."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from edt_client import data, packing
from edt_client.errors import ClientError

FILES = {
    "main.py": "print(1)\n", "net/layers.py": "", "net/.gitignore": "*.txt\n!keep.txt\n", "net/notes.txt": "x", "net/keep.txt": "x",
    ".gitignore": "*.log\n/data/\nbuild\n!important.log\n", "a.log": "x", "important.log": "x", "data/big.bin": "x",
    "net/data/small.bin": "x", "build/x.py": "", "net/build": "a file of that name", ".edtignore": "secret.env\n",
    "secret.env": "KEY=1", "__pycache__/main.pyc": "x",
    ".venv/lib/x.py": "", "readme.md": "hi",
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for path, content in FILES.items():
        target = tmp_path / "digits" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content)
    return tmp_path / "digits"


def names(packed: packing.Packed) -> set[str]:
    return set(zipfile.ZipFile(io.BytesIO(packed.zip)).namelist())


def test_what_git_keeps_is_sent(folder: Path) -> None:
    packed = packing.pack(folder)
    assert packed.name == "digits"
    assert names(packed) == set(packed.files) == {
        "main.py", "net/layers.py", "net/.gitignore", "net/keep.txt", ".gitignore", "important.log", "net/data/small.bin", ".edtignore",
        "readme.md",
    }  # fmt: skip


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_git_itself_keeps_the_same(folder: Path) -> None:
    for name in ("secret.env", ".edtignore", "__pycache__", ".venv"):  # what only we leave out
        path = folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    subprocess.run(["git", "init", "-q", "."], cwd=folder, check=True)
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=folder, check=True, capture_output=True, text=True)
    assert names(packing.pack(folder)) == set(listed.stdout.split())


def test_the_same_folder_is_the_same_zip_whenever_it_is_packed(folder: Path) -> None:
    first = packing.pack(folder).zip
    for path in folder.rglob("*.py"):
        os.utime(path, (0, 0))
    assert packing.pack(folder).zip == first
    (folder / "main.py").write_text("print(2)\n")
    assert packing.pack(folder).zip != first


def test_no_link_out_of_the_folder_is_followed_and_each_is_named(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "key").write_text("secret")
    (folder / "link").symlink_to(tmp_path / "outside")
    (folder / "key").symlink_to(tmp_path / "outside" / "key")
    (folder / "env").symlink_to("secret.env")
    (folder / "gone").symlink_to("nowhere")
    (folder / "other.log").symlink_to(tmp_path / "outside" / "key")
    packed = packing.pack(folder)
    assert not names(packed) & {"key", "link", "link/key", "env", "gone"}
    assert packed.left_out == ("env", "gone", "key", "link"), "of what .gitignore leaves out no word is said"
    assert packing.said_of_links(packed.left_out).startswith("4 links are not sent, for they name nothing that is: env, gone, key, link.")
    assert "and 2 more" in packing.said_of_links([str(number) for number in range(7)])
    assert not packing.said_of_links(())


def test_a_link_to_a_file_that_is_sent_goes_as_that_file(folder: Path) -> None:
    (folder / "net" / "start.py").symlink_to("../main.py")
    packed = packing.pack(folder)
    assert zipfile.ZipFile(io.BytesIO(packed.zip)).read("net/start.py") == (folder / "main.py").read_bytes()
    assert packed.left_out == ()


def test_data_goes_by_the_same_rule(folder: Path, tmp_path: Path) -> None:
    (folder / "again").symlink_to("main.py")
    (folder / "away").symlink_to(tmp_path)
    assert "again" in {each["path"] for each in data._files(folder)[1]}
    assert data.left_out(folder) == ["away"]
    assert data.left_out(folder / "main.py") == []


def test_a_folder_whose_name_is_no_text_is_refused_in_words(folder: Path, tmp_path: Path) -> None:
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/n\xff"))
    folder.rename(odd)
    with pytest.raises(ClientError, match=r"n\\xff has a name that is no text"):
        packing.pack(odd)
    with pytest.raises(ClientError, match=r"n\\xff has a name that is no text"):
        next(data.upload(1, odd.name, odd))


def test_what_cannot_be_sent_says_why(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ClientError, match="is no folder"):
        packing.pack(tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ClientError, match="has no files to send"):
        packing.pack(tmp_path / "empty")
    monkeypatch.setattr(packing, "MOST_BYTES", 10)
    with pytest.raises(ClientError, match=r"\.gitignore alone.*name data in \.edtignore"):
        packing.pack(folder)
    monkeypatch.setattr(packing, "MOST_FILES", 3)
    with pytest.raises(ClientError, match="has 9 files"):
        packing.pack(folder)


@pytest.mark.parametrize(
    ("files", "script"),
    [
        (("main.py", "train.py"), "main.py"),
        (("net.py", "train.py"), "train.py"),
        (("fit.py", "lib/a.py"), "fit.py"),
        (("a.py", "b.py"), ""),
    ],
)
def test_the_script_that_is_meant(files: tuple[str, ...], script: str) -> None:
    if script:
        assert packing.script_of(files) == script
        return
    with pytest.raises(ClientError, match=r"Say which script to run: edt run \. a\.py"):
        packing.script_of(files)


def test_a_link_that_leads_to_itself_is_named_too(folder: Path) -> None:
    (folder / "loop.py").symlink_to("loop.py")
    assert "loop.py" in packing.pack(folder).left_out


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("python train.py --epochs 3", "train.py --epochs 3"),
        ("python3 -m pkg.train --epochs 3", "-m pkg.train --epochs 3"),
        ("--python 3", "--python 3"),
        ("train.py python", "train.py python"),
    ],
)
def test_a_command_that_begins_with_python_means_its_script(words: str, meant: str) -> None:
    assert packing.without_python(tuple(words.split())) == tuple(meant.split())


def test_a_file_whose_name_is_no_text_is_named_and_one_may_leave_it_out(folder: Path) -> None:
    (folder / os.fsdecode(b"caf\xe9.txt")).touch()
    with pytest.raises(ClientError, match=r"caf\\xe9\.txt has a name that is no text .*\.edtignore"):
        packing.pack(folder)
    with pytest.raises(ClientError, match=r"caf\\xe9\.txt has a name that is no text"):
        next(data.upload(1, "digits", folder))
    (folder / ".edtignore").write_text("caf*\n")
    assert "main.py" in names(packing.pack(folder))


def test_rules_behind_a_link_are_none_as_for_git(folder: Path) -> None:
    (folder / "net" / ".edtignore").symlink_to("nowhere")
    (folder / "sub").mkdir()
    (folder / "sub" / ".gitignore").symlink_to("../.gitignore")
    (folder / "sub" / "b.log").touch()
    assert "net/layers.py" in names(packing.pack(folder))


def test_the_rules_of_an_editor_of_windows_are_understood_as_git_does(folder: Path) -> None:
    """With a mark of UTF-8 before the first line, and their ends of lines."""
    (folder / ".gitignore").write_bytes("*.log\r\n/geheim-\u00e4/\r\n".encode("utf-8-sig"))
    (folder / "geheim-\u00e4").mkdir()
    (folder / "geheim-\u00e4" / "x").write_text("x")
    sent = packing.pack(folder).files
    assert "a.log" not in sent
    assert not [path for path in sent if path.startswith("geheim")]
