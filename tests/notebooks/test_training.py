"""What train() returns in a notebook, and what of a training is shown in the cell, without a kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

from training_runtime.fabric.notebook import local
from training_runtime.fabric.notebook.local import Local
from training_runtime.fabric.notebook.training import Training


def training(fetch) -> Training:
    return Training("completed", 1, 1, {}, run="7", fetch=fetch)


def test_a_download_that_breaks_off_leaves_no_file_that_looks_whole(tmp_path: Path) -> None:
    def breaks_off(path: Path) -> None:
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        training(breaks_off).download(tmp_path)
    assert list(tmp_path.iterdir()) == []
    path = training(lambda path: path.write_bytes(b"whole")).download(tmp_path)
    assert path.read_bytes() == b"whole"
    with pytest.raises(OSError, match="No space left"):
        training(breaks_off).download(tmp_path)
    assert path.read_bytes() == b"whole", "the one of before stays"
    assert list(tmp_path.iterdir()) == [path]


def test_a_letter_that_comes_in_two_pieces_is_shown_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "main.py").write_text("")
    monkeypatch.setattr(local.packing, "SCRIPT", "main.py")
    monkeypatch.setattr(local, "CHUNK_BYTES", 3)
    shown = Local(tmp_path, tmp_path)
    shown.end()
    with open(shown._log, "ab") as log:
        log.write("größe 😀\n".encode()[:-3])
        log.flush()
        shown._stream()
        log.write("größe 😀\n".encode()[-3:])
    shown._stream()
    assert capsys.readouterr().out == "größe 😀\n"
    assert shown._last_line == "größe 😀"
