"""What a node says about itself, and what it reads from folders that belong to user code."""

from __future__ import annotations

import os
import platform
import subprocess
import zipfile
from pathlib import Path

import pytest

from tests.disk import small_disk
from training_runtime import journal, journal_writer
from training_runtime.host.meter import node_facts
from training_runtime.host.runs import fabric
from training_runtime.host.runs.journals import has_trained, journal_size, outcome_in_journal
from training_runtime.host.sandbox.levels import Abilities
from training_runtime.processor import Gpu, gpu_list, gpus, processor


def test_gpus_are_listed_in_the_drivers_order(tmp_path: Path) -> None:
    for bus, model, minor in (("0000:3b:00.0", "NVIDIA H200", 1), ("0000:18:00.0", "NVIDIA A100-SXM4-80GB", 0)):
        (tmp_path / bus).mkdir()
        text = f"Model: \t\t {model}\nIRQ:   \t\t 120\nGPU UUID: \t GPU-1:2\nDevice Minor: \t {minor}\n"
        (tmp_path / bus / "information").write_text(text)
    assert gpus(tmp_path) == ("NVIDIA A100-SXM4-80GB", "NVIDIA H200")
    assert gpus(tmp_path / "nothing") == ()
    assert gpu_list(tmp_path)[0] == Gpu(0, "NVIDIA A100-SXM4-80GB", "GPU-1:2")


def test_a_node_knows_its_processors_memory_and_torch() -> None:
    facts = node_facts.gather("here", Abilities("landlock", private=False, notes=("a note",)))
    assert facts.cpu_count == len(os.sched_getaffinity(0))
    assert facts.memory_bytes == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert facts.torch_version
    assert facts.processor == processor()
    assert (facts.sandbox_level, facts.sandbox_notes) == ("landlock", ("a note",))


def test_a_processor_is_told_by_name_generation_and_vector_instructions(tmp_path: Path) -> None:
    text = "processor\t: 0\ncpu family\t: 6\nmodel\t\t: 207\nmodel name\t: Intel(R) Xeon(R) Processor\nflags\t\t: fpu avx2 amx_tile sse\n"
    path = tmp_path / "cpuinfo"
    path.write_text(f"{text}\n{text.replace('207', '85')}")
    assert processor(path) == "Intel(R) Xeon(R) Processor (6/207, avx2, amx_tile)"
    path.write_text("processor : 0\nFeatures : fp asimd sve\nCPU implementer : 0x41\nCPU part : 0xd40\n\n")
    assert processor(path) == f"{platform.machine()} (0x41/0xd40, asimd, sve)"
    assert processor(tmp_path / "none") == platform.machine()


def write_journal(folder: Path, *events: journal.Event) -> int:
    writer = journal_writer.Writer(folder / journal.FILE_NAME, 7)
    for event in events:
        writer.write(event)
    writer.close()
    return (folder / journal.FILE_NAME).stat().st_size


@pytest.mark.parametrize(("outcome", "code"), [("completed", 0), ("stopped", 0), ("failed", 1)])
def test_the_outcome_of_an_attempt_is_read_from_the_end_of_its_journal(tmp_path: Path, outcome: str, code: int) -> None:
    write_journal(tmp_path, *[journal.Warned("x" * 1000)] * 1000, journal.Finished(outcome, 1, 1, {}, 1.0))  # type: ignore[arg-type]
    with open(tmp_path / journal.FILE_NAME, "ab") as file:
        file.write(b"not a line of a journal\n{torn")
    assert outcome_in_journal(str(tmp_path), 0) == code


def test_the_outcome_of_an_earlier_attempt_does_not_count(tmp_path: Path) -> None:
    start = write_journal(tmp_path, journal.Finished("completed", 1, 1, {}, 1.0))
    write_journal(tmp_path, journal.Warned("the next attempt"))
    assert outcome_in_journal(str(tmp_path), start) is None
    assert outcome_in_journal(str(tmp_path), 0) == 0


def test_whether_an_attempt_has_trained_is_read_from_its_own_part_of_the_journal(tmp_path: Path) -> None:
    start = write_journal(tmp_path, journal.Train(1, 1, {"loss": 1.0}, 4, 1, 0.1))
    write_journal(tmp_path, journal.Warned("the next attempt"))
    assert has_trained(str(tmp_path), 0)
    assert not has_trained(str(tmp_path), start)
    write_journal(tmp_path, journal.Train(2, 1, {"loss": 1.0}, 4, 1, 0.1))
    assert has_trained(str(tmp_path), start)
    assert not has_trained(str(tmp_path / "none"), 0)


@pytest.mark.parametrize("kind", ["nothing", "link", "pipe", "folder"])
def test_what_user_code_puts_in_place_of_its_journal_is_not_read(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "run" / journal.FILE_NAME
    path.parent.mkdir()
    write_journal(tmp_path, journal.Finished("completed", 1, 1, {}, 1.0))
    if kind == "link":
        path.symlink_to(tmp_path / journal.FILE_NAME)
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    assert outcome_in_journal(str(path.parent), 0) is None
    assert journal_size(str(path.parent)) == 0


def test_fabric_home_holds_the_modules_that_scripts_import_from_a_zip(tmp_path: Path) -> None:
    home = fabric.build(tmp_path)
    fabric.build(tmp_path)  # once more changes nothing
    with zipfile.ZipFile(home / "libs" / "fabric.zip") as archive:
        assert set(archive.namelist()) == {"fabric_model.py", "callbacks.py", "pyedt/__init__.py", "pyedt/fabric_model.py"}
    assert {"emetrics.py", "elog.py", "edtcallback.py"} <= {path.name for path in fabric.helpers(home).iterdir()}
    assert (home / "python" / "training_runtime" / "protocol.py").exists()
    assert oct((home / "libs" / "fabric.zip").stat().st_mode & 0o777) == "0o644"


def test_the_environment_gets_the_command_edt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))
    fabric.let_scripts_import(tmp_path)
    assert (tmp_path / "edt_studio.pth").exists()
    root = Path(fabric.__file__).resolve().parents[2]
    done = subprocess.run([tmp_path / "edt", "login", "--help"], env={"PYTHONPATH": str(root)}, capture_output=True, text=True, check=False)
    assert (done.returncode, "--ca-cert FILE" in done.stdout) == (0, True), done.stderr


def test_a_host_whose_first_start_found_the_disk_full_has_an_identity_in_the_end(tmp_path: Path) -> None:
    """An empty one is no host's: the studio could not tell two machines of one name apart."""
    with small_disk(tmp_path / "disk", 1 << 20) as disk:
        disk.fill()
        with pytest.raises(OSError, match="No space left"):
            node_facts.identity(disk.folder)
        disk.make_room()
        made = node_facts.identity(disk.folder)
        assert len(made) == 32
        assert node_facts.identity(disk.folder) == made
