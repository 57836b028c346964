"""Uploads: what is kept, and what is refused with the file's name and what to do."""

from __future__ import annotations

import contextlib
import io
import os
import stat
import struct
import tempfile
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from django.db import connection
from hypothesis import example, given
from hypothesis import settings as rounds
from hypothesis import strategies as st

from experiments.boxed import archives
from experiments.files import bundles
from experiments.files.bundles import BundleRefused
from experiments.files.zipcheck import Limits, contents, opened, unpack
from experiments.models import Bundle
from tests import cast

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("home")]


def keep(file: io.BytesIO) -> Bundle:
    return bundles.store_bundle(file, file_name="code.zip")


def entries(*items: tuple[zipfile.ZipInfo | str, bytes]) -> io.BytesIO:
    """A zip of exactly these entries, after a proper main.py."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("main.py", cast.MAIN_PY)
        for item, data in items:
            archive.writestr(item, data)
    content.seek(0)
    return content


def named(name: str, *, mode: int | None = None) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo("placeholder")
    info.filename = info.orig_filename = name  # as it is: the constructor would clean it
    if mode is not None:
        info.create_system, info.external_attr = 3, mode << 16
    return info


def of_windows(name: str) -> zipfile.ZipInfo:
    """An entry as Windows' Compress-Archive writes it."""
    info = named(name)
    info.create_system = 0
    return info


def leftovers(home: Path) -> list[Path]:
    found = [path for folder in ("tmp", "bundles", "code") for path in (home / folder).iterdir()]
    return [path for path in found if path.name != ".lock"]


def test_a_flat_zip_is_kept_unpacked_and_described(home: Path) -> None:
    bundle = keep(cast.zipped({"main.py": "x = 1\n", "lib/net.py": "y = 2\n", "readme.txt": "hi"}))
    assert (bundle.root, bundle.scripts, bundle.entries) == ("", ["main.py", "lib/net.py"], 3)
    assert (home / "bundles" / f"{bundle.sha256}.zip").stat().st_size == bundle.size_bytes
    code = bundles.code_dir(bundle)
    assert code == home / "code" / bundle.sha256
    assert (code / "lib/net.py").read_text() == "y = 2\n"
    assert not list((home / "tmp").iterdir())


def test_one_top_folder_is_the_root(home: Path) -> None:
    bundle = keep(cast.zipped({"digits/main.py": "", "digits/data/a.txt": "a"}))
    assert (bundle.root, bundle.scripts) == ("digits", ["main.py"])
    assert (bundles.code_dir(bundle) / "data/a.txt").read_text() == "a"
    assert bundles.entry(bundle, "python digits/main.py -v") == ("main.py", "-v")
    assert bundles.entry(bundle, "main.py") == ("main.py",)


def test_backslashes_that_windows_writes_are_folders(home: Path) -> None:
    bundle = keep(entries((of_windows("lib\\"), b""), (of_windows("lib\\net.py"), b"y = 2\n"), (of_windows("lib\\deep\\a.py"), b"")))
    assert bundle.scripts == ["main.py", "lib/net.py", "lib/deep/a.py"]
    assert (bundles.code_dir(bundle) / "lib/net.py").read_text() == "y = 2\n"


def test_a_package_is_added_to_what_windows_has_packed(tmp_path: Path) -> None:
    before, after = tmp_path / "before.zip", tmp_path / "after.zip"
    before.write_bytes(entries((of_windows("lib\\requirements.txt"), b"torch")).getvalue())
    after.touch()
    archives.with_line([os.open(before, os.O_RDONLY), os.open(after, os.O_RDWR)], "lib/requirements.txt", "numpy")
    with zipfile.ZipFile(after) as archive:
        assert archive.namelist() == ["main.py", "lib/requirements.txt"]
        assert archive.read("lib/requirements.txt") == b"torch\nnumpy\n"


def test_modes_are_ours_whatever_the_zip_says(home: Path) -> None:
    previous = os.umask(0o077)
    try:
        bundle = keep(entries((named("tool.sh", mode=stat.S_IFREG | 0o6777), b"#!"), (named("a/b.py", mode=stat.S_IFREG | 0o000), b"")))
    finally:
        os.umask(previous)
    code = bundles.code_dir(bundle)
    modes = {str(path.relative_to(code)): stat.S_IMODE(path.stat().st_mode) for path in [code, *code.rglob("*")]}
    assert modes == {".": 0o755, "main.py": 0o644, "tool.sh": 0o644, "a": 0o755, "a/b.py": 0o644}


def test_clutter_of_a_mac_is_left_out() -> None:
    bundle = keep(cast.zipped({"main.py": "", "__MACOSX/._main.py": "junk", ".DS_Store": "junk", "a/.DS_Store": "junk"}))
    assert (bundle.scripts, bundle.entries) == (["main.py"], 1)


def test_the_same_content_is_one_bundle(home: Path) -> None:
    content = cast.zipped()
    assert keep(content).pk == keep(content).pk
    assert len(leftovers(home)) == 2


def test_code_that_was_lost_is_unpacked_again(home: Path) -> None:
    content = cast.zipped()
    code = bundles.code_dir(keep(content))
    (code / "main.py").unlink()
    code.rmdir()
    keep(content)
    assert (code / "main.py").read_text() == cast.MAIN_PY


@pytest.mark.django_db(transaction=True)
def test_two_uploads_of_the_same_zip_at_once_are_one_bundle(home: Path) -> None:
    data = cast.zipped({"main.py": "x = 1\n" * 1000, **{f"m{i}.py": str(i) for i in range(50)}}).getvalue()
    found: list[int] = []
    gate = threading.Barrier(4)

    def upload() -> None:
        gate.wait(timeout=10)
        found.append(keep(io.BytesIO(data)).pk)
        connection.close()

    threads = [threading.Thread(target=upload) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert len(found) == 4
    assert len(set(found)) == 1
    assert Bundle.objects.count() == 1
    assert sorted(path.parent.name for path in leftovers(home)) == ["bundles", "code"]


def encrypted() -> io.BytesIO:
    data = bytearray(entries(("secret.txt", b"hidden")).getvalue())
    at = data.rindex(b"PK\x01\x02")
    data[at + 8] |= 1
    return io.BytesIO(bytes(data))


def damaged() -> io.BytesIO:
    data = bytearray(entries(("readme.txt", b"0123456789" * 10)).getvalue())
    at = data.index(b"0123456789")
    data[at] ^= 0xFF
    return io.BytesIO(bytes(data))


def cut() -> io.BytesIO:
    return io.BytesIO(cast.zipped().getvalue()[:-30])


def exotic() -> io.BytesIO:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("main.py", "x")
    return content


def lying() -> io.BytesIO:
    """Says that it unpacks to 10 bytes, and goes on."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("main.py", "x" * 100_000)
    data = bytearray(content.getvalue())
    struct.pack_into("<L", data, data.rindex(b"PK\x01\x02") + 24, 10)
    return io.BytesIO(bytes(data))


REFUSED: dict[str, tuple[Callable[[], io.BytesIO], str]] = {
    "not a zip": (lambda: io.BytesIO(b"#!/bin/sh\n" * 100), "is not a zip file"),
    "empty": (lambda: io.BytesIO(b""), "is empty"),
    "cut off": (cut, "is not a zip file"),
    "damaged": (damaged, "damaged"),
    "lying about its size": (lying, "damaged"),
    "encrypted": (encrypted, "secret.txt is encrypted"),
    "unusual method": (exotic, "main.py is packed in an unusual way"),
    "no files": (lambda: cast.zipped({"folder/": ""}), "holds no files"),
    "no Python file": (lambda: cast.zipped({"readme.txt": "hi"}), "no Python file"),
    "way out": (lambda: entries((named("../evil.py"), b"")), "../evil.py leads out"),
    "way out inside": (lambda: entries((named("a/../../evil.py"), b"")), "leads out"),
    "absolute": (lambda: entries((named("/etc/cron.d/evil"), b"")), "/etc/cron.d/evil is an absolute path"),
    "drive": (lambda: entries((named("C:/evil.py"), b"")), "C:/evil.py is an absolute path"),
    "backslash": (lambda: entries((named("a\\evil.py", mode=0o644), b"")), "has a backslash"),
    "way out of Windows": (lambda: entries((of_windows("..\\evil.py"), b"")), "leads out"),
    "drive of Windows": (lambda: entries((of_windows("C:\\evil.py"), b"")), "is an absolute path"),
    "share of Windows": (lambda: entries((of_windows("\\\\host\\evil.py"), b"")), "is an absolute path"),
    "both": (lambda: entries((of_windows("a/b\\evil.py"), b"")), "has a backslash"),
    "the same twice": (lambda: entries((of_windows("lib\\a.py"), b""), ("lib/a.py", b"")), "is in the zip twice"),
    "empty part": (lambda: entries((named("a//evil.py"), b"")), "empty part"),
    "dot part": (lambda: entries((named("./evil.py"), b"")), "empty part"),
    "NUL": (lambda: entries((named("evil.py\0.txt"), b"")), "control character"),
    "line end": (lambda: entries((named("evil\n.py"), b"")), "control character"),
    "long part": (lambda: entries((named("x" * 300), b"")), "too long a name"),
    "long path": (lambda: entries((named("/".join(["x" * 200] * 6)), b"")), "too long a name"),
    "symbolic link": (lambda: entries((named("link", mode=stat.S_IFLNK | 0o777), b"/etc/passwd")), "link is a symbolic link"),
    "device": (lambda: entries((named("null", mode=stat.S_IFCHR | 0o666), b"")), "special file"),
    "pipe": (lambda: entries((named("pipe", mode=stat.S_IFIFO | 0o666), b"")), "special file"),
    "file that says folder": (lambda: entries((named("odd", mode=stat.S_IFDIR | 0o755), b"x")), "both a file and a folder"),
    "twice": (lambda: entries(("main.py", b"again")), "main.py is in the zip twice"),
    "capitals": (lambda: entries(("Main.py", b"")), "differ only in capitals"),
    "folders in capitals": (lambda: entries(("lib/a.py", b""), ("Lib/b.py", b"")), "differ only in capitals"),
    "composed letters": (lambda: entries(("caf\u00e9.py", b""), ("cafe\u0301.py", b"")), "differ only in capitals or accents"),
    "file and folder": (lambda: entries(("lib", b""), ("lib/a.py", b"")), "both a file and a folder"),
}


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("case", REFUSED)
def test_it_refuses_and_leaves_nothing_behind(case: str, home: Path) -> None:
    make, message = REFUSED[case]
    with pytest.raises(BundleRefused, match=r".") as refused:
        keep(make())
    assert message in str(refused.value)
    assert leftovers(home) == []
    assert not Bundle.objects.exists()


def test_it_refuses_too_large_an_upload(settings: object, home: Path) -> None:
    settings.EDT_MAX_UPLOAD_BYTES = 1 << 20  # type: ignore[attr-defined]
    with pytest.raises(BundleRefused, match="larger than 1 MiB"):
        keep(cast.zipped({"main.py": os.urandom(2 << 20)}))
    assert leftovers(home) == []


def test_it_refuses_too_many_entries(settings: object, home: Path) -> None:
    settings.EDT_MAX_UPLOAD_ENTRIES = 10  # type: ignore[attr-defined]
    with pytest.raises(BundleRefused, match="has 12 entries, at most 10"):
        keep(cast.zipped({f"m{i}.py": "" for i in range(12)}))
    assert leftovers(home) == []


def test_it_refuses_what_unpacks_to_too_much(settings: object, home: Path) -> None:
    settings.EDT_MAX_UNPACKED_BYTES = 1 << 20  # type: ignore[attr-defined]
    with pytest.raises(BundleRefused, match="more than 1 MiB"):
        keep(cast.zipped({"main.py": "", "a.bin": os.urandom(600_000), "b.bin": os.urandom(600_000)}))
    assert leftovers(home) == []


def test_it_refuses_a_bomb_by_what_comes_out(home: Path) -> None:
    with pytest.raises(BundleRefused, match=r"zeros\.bin unpacks to over 200 times"):
        keep(cast.zipped({"main.py": "", "zeros.bin": bytes(48 << 20), "noise.bin": os.urandom(400_000)}))
    assert leftovers(home) == []


def test_it_refuses_many_small_bombs_together(home: Path) -> None:
    """Each stays below the size from which on a file's own ratio counts."""
    with pytest.raises(BundleRefused, match="unpacks to 48 MiB, over 200 times its size"):
        keep(cast.zipped({"main.py": "", **{f"zeros{n}.bin": bytes(16 << 20) for n in range(3)}}))
    assert leftovers(home) == []


def test_it_refuses_entries_that_share_their_packed_bytes(home: Path) -> None:
    data = bytearray(cast.zipped({"main.py": "", "a.bin": os.urandom(5000), "b.bin": os.urandom(5000)}).getvalue())
    entry = data.rindex(b"PK\x01\x02")
    (place,) = struct.unpack_from("<L", data, entry + 42)
    struct.pack_into("<L", data, entry + 42, place - 2000)  # the last begins in the middle of the one before
    with pytest.raises(BundleRefused, match=r"a\.bin and b\.bin overlap"):
        keep(io.BytesIO(bytes(data)))
    assert leftovers(home) == []


def test_the_count_is_of_bytes_and_not_of_headers(tmp_path: Path) -> None:
    """The limit holds also where the table of contents lies about the sizes."""
    path = tmp_path / "code.zip"
    path.write_bytes(cast.zipped({"main.py": "", "a.txt": "x" * 5000}).getvalue())
    (tmp_path / "out").mkdir()
    generous, strict = Limits(100, 1 << 20), Limits(100, 100)
    with opened(path, name="code.zip") as archive:
        found = contents(archive, limits=generous)
        with pytest.raises(BundleRefused, match="unpacks to more than"):
            unpack(archive, found.files, into=tmp_path / "out", limits=strict)


def test_a_huge_table_of_contents_is_not_read(home: Path) -> None:
    data = bytearray(cast.zipped().getvalue())
    struct.pack_into("<L", data, data.rindex(b"PK\x05\x06") + 12, 100 << 20)
    with pytest.raises(BundleRefused, match="table of contents"):
        keep(io.BytesIO(bytes(data)))


def unpacked(data: bytes) -> None:
    """Check and unpack in a box of its own; nothing may be made outside of it or be a link, and only BundleRefused may come out."""
    limits = Limits(10, 1 << 20)
    with tempfile.TemporaryDirectory() as folder:
        path, out = Path(folder, "code.zip"), Path(folder, "box", "out")
        path.write_bytes(data)
        out.mkdir(parents=True)
        with contextlib.suppress(BundleRefused), opened(path, name="code.zip") as archive:
            unpack(archive, contents(archive, limits=limits).files, into=out, limits=limits)
        assert sorted(p.name for p in Path(folder).iterdir()) == ["box", "code.zip"]
        assert [p.name for p in out.parent.iterdir()] == ["out"]
        assert all(not p.is_symlink() and p.resolve().is_relative_to(out.resolve()) for p in out.rglob("*"))


@rounds(max_examples=80, deadline=None)
@given(name=st.text(min_size=1, max_size=40), data=st.binary(max_size=50))
@example(name="../evil.py", data=b"")
@example(name="/tmp/evil.py", data=b"")
def test_whatever_the_name_nothing_is_written_outside(name: str, data: bytes) -> None:
    with contextlib.suppress(UnicodeEncodeError):
        unpacked(entries((named(name), data)).getvalue())


@rounds(max_examples=150, deadline=None)
@given(place=st.integers(min_value=0, max_value=600), value=st.integers(min_value=0, max_value=255))
def test_any_damaged_byte_is_refused_or_harmless(place: int, value: int) -> None:
    data = bytearray(cast.zipped({"main.py": "x = 1\n" * 20, "lib/net.py": "y"}).getvalue())
    data[place % len(data)] = value
    unpacked(bytes(data))
