"""A run's working folder: its own copy of its code, cheap, and never a way into the stored one."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tests.host.conftest import HostUnderTest
from training_runtime.host.runs import workdir
from training_runtime.protocol import UNCHANGED_CODE_NS
from training_runtime.variables import CONFIG_JSON


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    (folder / "lib").mkdir(parents=True)
    (folder / "main.py").write_text("x = 1\n")
    (folder / "lib" / "net.py").write_text("y = 2\n")
    (folder / "empty").touch()
    return folder


def test_a_copy_can_be_written_to_and_the_stored_code_stays(code: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    workdir.make(code, work)
    assert (work / "lib/net.py").read_text() == "y = 2\n"
    assert {path.lstat().st_mtime_ns for path in work.rglob("*") if path.is_file()} == {UNCHANGED_CODE_NS}
    (work / "main.py").write_text("changed")
    (work / "new").write_text("new")
    workdir.make(code, work)  # the next attempt
    assert ((work / "main.py").read_text(), (work / "new").read_text()) == ("changed", "new")
    assert (code / "main.py").read_text() == "x = 1\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["code", "work"]


@pytest.mark.parametrize("written", [{"out/log.txt": "1"}, {"main.py": "changed"}, {"lib": "a file"}, {}])
def test_to_what_a_script_has_written_on_another_machine_its_code_is_added(written: dict[str, str], code: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    for name, text in written.items():
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text(text)
    workdir.make(code, work)
    for name, text in {"main.py": "x = 1\n", "lib/net.py": "y = 2\n", "empty": "", **written}.items():
        if "lib" not in written or not name.startswith("lib/"):
            assert (work / name).read_text() == text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["code", "work"]


def test_what_a_script_has_deleted_is_not_there_again(code: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    workdir.make(code, work)
    (work / "empty").unlink()
    workdir.make(code, work)
    assert not (work / "empty").exists()


def test_code_that_could_not_be_added_as_a_whole_is_added_the_next_time(
    code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, rename = tmp_path / "work", Path.rename
    (work / "out").mkdir(parents=True)

    def breaks_off(source: Path, target: Path) -> Path:
        if target.name == "net.py":
            raise OSError(errno.ENOSPC, "No space left on device")
        return rename(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", breaks_off)
        with pytest.raises(OSError, match="No space"):
            workdir.make(code, work)
    workdir.make(code, work)
    assert (work / "lib" / "net.py").is_file()
    assert (work / "main.py").is_file()


def test_a_large_file_is_read_through_a_link_where_blocks_cannot_be_shared(
    code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workdir, "LARGE_BYTES", 100)
    monkeypatch.setattr(workdir, "_share", lambda source, path: False)  # as on ext4
    (code / "weights.bin").write_bytes(bytes(101))
    workdir.make(code, tmp_path / "work")
    assert (tmp_path / "work/weights.bin").readlink() == code / "weights.bin"
    assert not (tmp_path / "work/main.py").is_symlink()


def test_a_link_to_the_code_that_an_earlier_version_made_becomes_a_copy(code: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.symlink_to(code)
    workdir.make(code, work)
    assert not work.is_symlink()
    assert (work / "main.py").is_file()


def test_who_comes_second_takes_the_folder_of_the_first(code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work, copy = tmp_path / "work", workdir._copy

    def slowly(source: Path, target: Path) -> None:
        copy(source, target)
        work.mkdir()
        (work / "first").touch()

    monkeypatch.setattr(workdir, "_copy", slowly)
    workdir.make(code, work)
    assert [path.name for path in work.iterdir()] == ["first"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["code", "work"]


def test_a_full_disk_leaves_no_half_of_a_folder(code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> bool:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(workdir, "_copy_file", full)
    with pytest.raises(OSError, match="No space"):
        workdir.make(code, tmp_path / "work")
    assert [path.name for path in tmp_path.iterdir()] == ["code"]


def test_the_config_of_a_trial_takes_the_place_of_the_one_that_came_with_the_code(code: Path, tmp_path: Path) -> None:
    work, elsewhere = tmp_path / "work", tmp_path / "elsewhere"
    (code / "config.json").write_text('{"lr": 1}')
    workdir.make(code, work)
    workdir.write_config('{"lr": 0.5}', work)
    assert (work / "config.json").read_text() == '{"lr": 0.5}'
    assert (code / "config.json").read_text() == '{"lr": 1}'
    (work / "config.json").unlink()
    (work / "config.json").symlink_to(elsewhere)  # by an earlier attempt
    workdir.write_config('{"lr": 0.5}', work)
    assert not elsewhere.exists()
    assert not (work / "config.json").is_symlink()
    assert not list(work.glob(".config*"))


def test_a_notebook_has_its_script_beside_it_which_is_no_result(code: Path, tmp_path: Path) -> None:
    work, elsewhere = tmp_path / "work", tmp_path / "elsewhere"
    (code / "lib").mkdir(exist_ok=True)
    (code / "lib/train.ipynb").write_text('{"cells": [{"cell_type": "code", "source": "%cd x"}]}')
    (code / "old.ipynb").write_text("what?")
    (code / "kept.ipynb.py").write_text("x = 1")  # as it was downloaded, say
    workdir.make(code, work)
    (work / "lib/train.ipynb.py").symlink_to(elsewhere)  # by an earlier attempt
    for notebook in ("lib/train.ipynb", "old.ipynb", "kept.ipynb"):
        workdir.write_script(notebook, code, work)
    assert (work / "kept.ipynb.py").read_text() == "x = 1"
    assert "_magic('cd', 'x')" in (work / "lib/train.ipynb.py").read_text()
    assert not elsewhere.exists()
    assert (work / "lib/train.ipynb.py").stat().st_mtime_ns == UNCHANGED_CODE_NS
    with pytest.raises(SystemExit, match=r"old\.ipynb is not a notebook that can be read"):
        exec((work / "old.ipynb.py").read_text())
    assert not list(work.rglob(".*.ipynb.py.*"))


WRITES = """
import os, sys
from pathlib import Path
assert Path.cwd() == Path(os.environ["DLI_WORK_DIR"])
Path("outputs").mkdir()
Path("outputs/checkpoint.pt").write_text("weights")
Path("config.yaml").write_text("lr: 0.1")
print(Path("config.yaml").read_text())
"""


def test_what_a_script_writes_beside_itself_stays_and_no_other_run_sees_it(host: HostUnderTest) -> None:
    for run in (7, 8):
        spec = host.spec(run, "script", "main.py", code={"main.py": WRITES, "config.yaml": "lr: 0"})
        host.want(spec)
        host.apply()
        assert host.until_run(run, lambda seen: seen.state == "exited").exit_code == 0, host.console(run)
        work = host.result(run) / "_submitted_code" / f"run_{run}"
        assert (work / "outputs/checkpoint.pt").read_text() == "weights"
        assert Path(spec.code_dir, "config.yaml").read_text() == "lr: 0"
        assert not Path(spec.code_dir, "outputs").exists()


READS_CONFIG = """
import json
print("lr is", json.load(open("config.json"))["lr"])
"""


def test_a_script_finds_what_a_variable_says_as_config_json_beside_itself(host: HostUnderTest) -> None:
    spec = host.spec(7, "script", "main.py", code={"main.py": READS_CONFIG}, env={CONFIG_JSON: '{"lr": 0.25}'})
    host.want(spec)
    host.apply()
    assert host.until_run(7, lambda seen: seen.state == "exited").exit_code == 0, host.console(7)
    assert "lr is 0.25" in host.console(7)
