"""Tars and single scripts: kept as zips are, and refused with the file's name and what to do."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import settings as rounds
from hypothesis import strategies as st

from experiments.files import bundles
from experiments.files.bundles import BundleRefused
from experiments.models import Bundle
from tests.domain.test_bundles import leftovers

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("home")]

FILES = {"resnet/main.py": b"x = 1\n", "resnet/lib/net.py": b"y = 2\n", "resnet/notes.txt": b"hi"}


def entry(name: str, data: bytes = b"", **fields: object) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, data


def tarred(*entries: tuple[tarfile.TarInfo, bytes], mode: str = "w") -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode=mode) as archive:
        for info, data in entries:
            archive.addfile(info, io.BytesIO(data))
    return content.getvalue()


def folder(mode: str = "w", top: str = "") -> bytes:
    made = [entry(f"{top}resnet", type=tarfile.DIRTYPE), *(entry(top + name, data) for name, data in FILES.items())]
    return tarred(*made, mode=mode)


def keep(content: bytes, name: str = "resnet.modelDir.tar") -> Bundle:
    return bundles.store_bundle(io.BytesIO(content), file_name=name)


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (folder(), "resnet.modelDir.tar"),
        (folder("w:gz"), "resnet.modelDir.tar"),
        (folder("w:gz"), "resnet.tar.gz"),
        (folder(), "resnet.tar"),
        (folder(top="./"), "resnet.tgz"),
    ],
)
def test_a_tar_is_kept_as_a_zip_of_its_files_is(content: bytes, name: str, home: Path) -> None:
    bundle = keep(content, name)
    assert (bundle.root, bundle.scripts, bundle.entries) == ("resnet", ["main.py", "lib/net.py"], 3)
    assert (bundles.code_dir(bundle) / "lib/net.py").read_bytes() == b"y = 2\n"
    assert (home / "bundles" / f"{bundle.sha256}.zip").stat().st_size == bundle.size_bytes
    assert not list((home / "tmp").iterdir())


def test_the_same_tar_is_one_bundle_however_it_is_packed() -> None:
    assert keep(folder()) == keep(folder("w:gz"), "again.tgz") == keep(folder(top="./"))


def test_code_of_a_tar_that_was_lost_is_unpacked_again(home: Path) -> None:
    import shutil

    bundle = keep(folder())
    shutil.rmtree(home / "code" / bundle.sha256)
    assert (bundles.unpacked(bundle) / "main.py").is_file()


def test_a_single_script_is_code_of_one_file() -> None:
    bundle = keep(b"print('hi')\n", "train.py")
    assert (bundle.root, bundle.scripts) == ("", ["train.py"])
    assert bundles.entry(bundle, "python train.py --epochs 1") == ("train.py", "--epochs", "1")


def sparse() -> bytes:
    info, data = entry("resnet/holes.bin", b"")
    info.pax_headers = {"GNU.sparse.major": "0", "GNU.sparse.minor": "1", "GNU.sparse.map": "0,0", "GNU.sparse.size": "9999999"}
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(info, io.BytesIO(data))
    return content.getvalue()


def large_header() -> bytes:
    """A name that says it is 4 GiB long."""
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 4 << 30
    return info.tobuf(tarfile.GNU_FORMAT) + bytes(2048)


def headers_without_end() -> bytes:
    one = tarfile.TarInfo.create_pax_global_header({"comment": "x"})
    return one * 5000 + folder()


def cut(content: bytes, at: int) -> bytes:
    return content[:at]


def scribbled() -> bytes:
    content = bytearray(folder())
    place = content.index(b"resnet/notes.txt")
    content[place] = 0xFF
    return bytes(content)


REFUSED: dict[str, tuple[Callable[[], bytes], str]] = {
    "a way out": (lambda: tarred(entry("../main.py", b"x")), "../main.py leads out of the folder"),
    "an absolute path": (lambda: tarred(entry("/etc/main.py", b"x")), "/etc/main.py is an absolute path"),
    "a link": (lambda: tarred(entry("main.py", type=tarfile.SYMTYPE, linkname="/etc/passwd")), "main.py is a symbolic link"),
    "a hard link": (lambda: tarred(entry("a.py", b"x"), entry("b.py", type=tarfile.LNKTYPE, linkname="a.py")), "b.py is a hard link"),
    "a device": (lambda: tarred(entry("null", type=tarfile.CHRTYPE, devmajor=1, devminor=3)), "null is a device"),
    "a pipe": (lambda: tarred(entry("pipe", type=tarfile.FIFOTYPE)), "pipe is a device or another special file"),
    "holes": (sparse, "holes.bin is packed with holes"),
    "a control character": (lambda: tarred(entry("a\nb.py", b"x")), "control character"),
    "bytes that are no text": (lambda: tarred(entry("a\udcff.py", b"x")), "control character"),
    "twice": (lambda: tarred(entry("main.py", b"x"), entry("main.py", b"y")), "main.py is in the zip twice"),
    "capitals": (lambda: tarred(entry("main.py", b"x"), entry("Main.py", b"y")), "differ only in capitals"),
    "no script": (lambda: tarred(entry("a.txt", b"x")), "holds no Python file"),
    "nothing": (lambda: tarred(), "holds no files"),
    "a huge header": (large_header, "damaged or not an ordinary tar"),
    "headers without end": (headers_without_end, "damaged or not an ordinary tar"),
    "cut off in a file": (lambda: cut(tarred(entry("main.py", b"x" * 5000)), 3000), "damaged or not an ordinary tar"),
    "cut off in its packing": (lambda: cut(folder("w:gz"), 60), "damaged or not an ordinary tar"),
    "a header that was scribbled on": (scribbled, "damaged or not an ordinary tar"),
    "no tar": (lambda: b"hello" * 1000, "damaged or not an ordinary tar"),
    "gzip of something else": (lambda: gzip.compress(b"hello" * 1000), "damaged or not an ordinary tar"),
    "a bomb": (lambda: gzip.compress(bytes(64 << 20), 9), "unpacks to over 200 times its size"),
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


@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_it_refuses_what_unpacks_to_too_much(settings: object, home: Path, mode: str) -> None:
    settings.EDT_MAX_UNPACKED_BYTES = 1 << 20  # type: ignore[attr-defined]
    settings.EDT_MAX_UPLOAD_ENTRIES = 10  # type: ignore[attr-defined]
    with pytest.raises(BundleRefused, match="more than 1 MiB"):
        keep(tarred(entry("main.py"), *(entry(f"{i}.bin", os.urandom(600_000)) for i in range(2)), mode=mode))
    assert leftovers(home) == []


def test_it_refuses_too_many_entries(settings: object, home: Path) -> None:
    settings.EDT_MAX_UPLOAD_ENTRIES = 10  # type: ignore[attr-defined]
    with pytest.raises(BundleRefused, match="over 10 entries"):
        keep(tarred(*(entry(f"m{i}.py") for i in range(12))))
    assert leftovers(home) == []


@pytest.mark.parametrize(
    ("content", "name", "message"),
    [
        (b"a\0b", "a.py", "a.py is no script"),
        (b"a\0b", "a.ipynb", "a.ipynb is no script"),
        (b"x = 1", ".." + "/a\\b.py", "backslash"),
    ],
)
def test_a_script_that_is_none_is_refused(content: bytes, name: str, message: str, home: Path) -> None:
    with pytest.raises(BundleRefused, match=message):
        keep(content, name)
    assert leftovers(home) == []


@rounds(max_examples=150, deadline=None)
@given(place=st.integers(0, len(folder()) - 1), value=st.integers(0, 255))
@example(place=124, value=0x80)
def test_any_damaged_byte_is_refused_or_harmless(place: int, value: int) -> None:
    content = bytearray(folder())
    content[place] = value
    try:
        bundle = keep(bytes(content))
    except BundleRefused:
        return
    code = bundles.code_dir(bundle)
    assert set(bundle.scripts) <= {path.relative_to(code).as_posix() for path in code.rglob("*.py")}
