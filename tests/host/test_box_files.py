"""One attempt to break out for each thing that the box promises about files.

The user code is real, the host is real, and so is the kernel.
"""

from __future__ import annotations

import ctypes
import dataclasses
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.host.box import BOTH_LEVELS, needs_box, needs_landlock, needs_own_users, needs_root, opened, refused, try_in_the_box
from tests.host.conftest import NODE, HostUnderTest

USERS = BOTH_LEVELS  # each promise is kept at both levels, except where a test says otherwise


@needs_box
def test_user_code_cannot_read_the_database_or_a_secret_key(host: HostUnderTest) -> None:
    (host.home / "secrets").mkdir(mode=0o700)
    for name in ("db.sqlite3", "secrets/key"):
        (host.home / name).write_text("secret")
        (host.home / name).chmod(0o600)
    findings = try_in_the_box(
        host,
        f"""
for name in ("db.sqlite3", "secrets/key", "host/{NODE}/state.json", "host.log"):
    findings[name] = attempt(lambda: Path({str(host.home)!r}, name).read_bytes())
findings["listing"] = attempt(lambda: os.listdir({str(host.home)!r}))
findings["shadow"] = attempt(lambda: Path("/etc/shadow").read_bytes())
findings["roots home"] = attempt(lambda: os.listdir("/root"))
""",
    )
    assert opened(findings) == {}


@needs_root
@needs_landlock
def test_the_right_to_search_closed_folders_does_not_open_files_by_handle(host: HostUnderTest) -> None:
    needs_own_users(host)
    secret = host.home / "db.sqlite3"
    secret.write_text("secret")
    handle = ctypes.create_string_buffer(8 + 128)
    ctypes.cast(handle, ctypes.POINTER(ctypes.c_uint))[0] = 128
    mount = ctypes.c_int()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.name_to_handle_at(-100, os.fsencode(secret), handle, ctypes.byref(mount), 0) != 0:
        pytest.skip("this file system gives no file handles")
    findings = try_in_the_box(
        host,
        f"""
import ctypes
def by_handle():
    libc = ctypes.CDLL(None, use_errno=True)
    handle = ctypes.create_string_buffer(bytes.fromhex({bytes(handle).hex()!r}))
    for place in (".", os.environ["RESULT_DIR"], "/usr"):
        folder = os.open(place, os.O_RDONLY)
        fd = libc.open_by_handle_at(folder, handle, os.O_RDONLY)
        if fd >= 0:
            return os.read(fd, 100)
    raise PermissionError(ctypes.get_errno(), "refused")
findings["by handle"] = attempt(by_handle)
""",
    )
    assert refused(findings["by handle"]), findings


@needs_box
def test_user_code_can_write_in_its_run_folder_and_nowhere_else(host: HostUnderTest) -> None:
    (host.home / "data").mkdir()
    (host.home / "data" / "images").write_text("data")
    findings = try_in_the_box(
        host,
        f"""
own = Path(os.environ["RESULT_DIR"])
for folder in ("model", "checkpoint", "tmp", "log/driver", "."):
    findings["own " + folder] = attempt(lambda: (own / folder / "file").write_text("x"))
findings["own code"] = attempt(lambda: Path("main.py").write_text("x"))
findings["own code beside"] = attempt(lambda: Path("new.py").write_text("x"))
findings["code"] = attempt(lambda: Path({str(host.home)!r}, "code", "7", "main.py").write_text("x"))
findings["code beside"] = attempt(lambda: Path({str(host.home)!r}, "code", "7", "new.py").write_text("x"))
findings["code mode"] = attempt(lambda: Path({str(host.home)!r}, "code", "7", "main.py").chmod(0o777) if os.geteuid() else open("/none"))
findings["data"] = attempt(lambda: Path(os.environ["DATA_DIR"], "images").write_text("x"))
findings["data removed"] = attempt(lambda: Path(os.environ["DATA_DIR"], "images").unlink())
findings["data mode"] = attempt(lambda: Path(os.environ["DATA_DIR"], "images").chmod(0o777) if os.geteuid() else open("/none"))
findings["home"] = attempt(lambda: Path({str(host.home)!r}, "x").write_text("x"))
findings["host socket"] = attempt(lambda: Path({str(host.folder)!r}, "host.sock").unlink())
findings["runtime"] = attempt(lambda: Path(sys.modules["training_runtime"].__path__[0], "errors.py").open("a"))
findings["fabric"] = attempt(lambda: Path(os.environ["FABRIC_HOME"], "libs", "fabric.zip").open("ab"))
findings["tmp"] = attempt(lambda: Path("/tmp/edt-intruder").write_text("x"))
findings["library"] = attempt(lambda: Path(os.__file__).open("a"))
""",
    )
    own = {name: finding for name, finding in findings.items() if name.startswith("own ")}
    others = {name: finding for name, finding in findings.items() if name not in own}
    assert all(finding[0] == "done" for finding in own.values()), own
    if "user" not in host.look().node.sandbox_level:
        others.pop("data mode")
        others.pop("code mode")  # Landlock has no right for chmod; there the mode protects nothing anyway
    assert all(finding[0] != "done" for finding in others.values()), others
    assert (host.home / "data" / "images").read_text() == "data"


@needs_box
def test_user_code_can_read_its_code_and_data(host: HostUnderTest) -> None:
    (host.home / "data").mkdir()
    (host.home / "data" / "images").write_text("pixels")
    findings = try_in_the_box(
        host,
        """
findings["data"] = attempt(lambda: Path(os.environ["DATA_DIR"], "images").read_text())
findings["code"] = attempt(lambda: len(Path("main.py").read_text()))
findings["library"] = attempt(lambda: __import__("xml.sax.handler"))
""",
    )
    assert findings["data"] == ["done", "'pixels'"]
    assert {finding[0] for finding in findings.values()} == {"done"}


@needs_box
def test_a_script_that_stores_what_it_downloads_in_its_data_folder_is_told_where_to(host: HostUnderTest) -> None:
    """As `MNIST(os.environ["DATA_DIR"], download=True)` does."""
    (host.home / "data").mkdir()
    findings = try_in_the_box(
        host,
        """
from training_runtime.elastic.driver import advice
def told():
    try:
        os.makedirs(Path(os.environ["DATA_DIR"], "MNIST", "raw"))
    except OSError as error:
        return advice.after(error)
findings["told"] = attempt(told)
""",
    )
    assert "The data folder (DATA_DIR) is read-only for scripts" in findings["told"][1], findings


@needs_box
def test_user_code_cannot_look_into_another_run(host: HostUnderTest) -> None:
    host.want(host.spec(8, "obey"), 1)
    host.apply()
    host.until_holding(8, 1)
    other = host.pid(8)
    findings = try_in_the_box(
        host,
        f"""
findings["listing"] = attempt(lambda: os.listdir({str(host.result(8))!r}))
findings["journal"] = attempt(lambda: Path({str(host.result(8))!r}, "journal.jsonl").read_bytes())
findings["writing"] = attempt(lambda: Path({str(host.result(8))!r}, "model", "x").write_text("x"))
findings["code"] = attempt(lambda: os.listdir({str(host.home / "code" / "8")!r}))
findings["signal"] = attempt(lambda: os.kill({other}, 0))
findings["environment"] = attempt(lambda: Path("/proc/{other}/environ").read_bytes())
findings["open files"] = attempt(lambda: os.open("/proc/{other}/fd/1", os.O_WRONLY | os.O_APPEND))
findings["through its root"] = attempt(lambda: os.listdir("/proc/{other}/root/"))
findings["through its cwd"] = attempt(lambda: os.listdir("/proc/{other}/cwd/"))
""",
    )
    assert opened(findings) == {}


@needs_root
def test_shared_memory_is_a_runs_own(host: HostUnderTest) -> None:
    needs_own_users(host)
    if "runs share /dev/shm" in " ".join(host.look().node.sandbox_notes):
        pytest.skip("no mount namespaces on this machine")
    outside = Path("/dev/shm", f"edt-test-{os.getpid()}")
    outside.write_text("outside")
    try:
        findings = try_in_the_box(
            host,
            """
findings["listing"] = attempt(lambda: [name for name in os.listdir("/dev/shm") if name != "tmp"])
findings["writing"] = attempt(lambda: Path("/dev/shm/edt-test-mine").write_text("x"))
findings["objects"] = attempt(lambda: os.readlink("/proc/self/ns/ipc"))
""",
        )
    finally:
        outside.unlink()
    assert findings.pop("objects")[1] != repr(str(Path("/proc/self/ns/ipc").readlink()))
    assert findings == {"listing": ["done", "[]"], "writing": ["done", "1"]}
    assert not Path("/dev/shm/edt-test-mine").exists()


@needs_root
def test_a_link_that_an_earlier_attempt_left_behind_leads_nowhere(host: HostUnderTest) -> None:
    needs_own_users(host)
    target = host.home / "victim"
    target.mkdir()
    spec = host.spec(7, "obey")
    host.want(spec)
    host.apply()
    host.until_run(7, lambda run: run.state == "running")
    for name in ("log", "tmp"):
        shutil.rmtree(host.result(7) / name)
        (host.result(7) / name).symlink_to(target)
    os.kill(host.pid(7), 9)
    seen = host.until_run(7, lambda run: run.state == "exited")
    assert seen.exit_code == 1
    assert "could not be boxed in or set up" in seen.detail
    assert list(target.iterdir()) == []
    assert target.stat().st_uid == 0


@pytest.fixture
def home_elsewhere() -> Iterator[Path]:
    """Not below /tmp, as a real home is not."""
    home = Path(tempfile.mkdtemp(dir="/var/tmp"))
    yield home
    shutil.rmtree(home)


needs_checkout_elsewhere = pytest.mark.skipif(
    Path(__file__).resolve().is_relative_to("/tmp"), reason="a run needs the runtime, and this checkout lies in the machine's /tmp"
)


@needs_root
@needs_checkout_elsewhere
def test_tmp_is_a_runs_own(home_elsewhere: Path, make_host: Callable[[Path], HostUnderTest]) -> None:
    host = make_host(home_elsewhere)
    host.start()
    if "runs share /dev/shm" in " ".join(host.look().node.sandbox_notes):
        pytest.skip("no mount namespaces on this machine")
    findings = try_in_the_box(
        host,
        """
findings["listing"] = attempt(lambda: os.listdir("/tmp"))
findings["writing"] = attempt(lambda: Path("/tmp/edt-test-mine").write_text("x"))
findings["above"] = attempt(lambda: os.listdir("/tmp/.."))
findings["var"] = attempt(lambda: Path("/var/tmp/edt-test-mine").write_text("x"))
""",
    )
    assert findings["listing"] == ["done", "[]"]
    assert findings["writing"] == ["done", "1"]
    assert refused(findings["above"])
    assert refused(findings["var"])
    assert (host.result(7) / "tmp" / "edt-test-mine").read_text() == "x"
    assert not Path("/tmp/edt-test-mine").exists()


@needs_root
@needs_checkout_elsewhere
def test_a_link_in_place_of_the_runs_tmp_is_not_mounted(home_elsewhere: Path, make_host: Callable[[Path], HostUnderTest]) -> None:
    host = make_host(home_elsewhere)
    host.start()
    host.want(host.spec(7, "obey"))
    host.apply()
    host.until_run(7, lambda run: run.state == "running")
    shutil.rmtree(host.result(7) / "tmp")
    (host.result(7) / "tmp").symlink_to("/")
    os.kill(host.pid(7), 9)
    seen = host.until_run(7, lambda run: run.state == "exited")
    assert (seen.exit_code, seen.attempt) == (1, 2)
    assert "could not be boxed in" in seen.detail


@needs_root
def test_a_console_that_was_replaced_by_a_pipe_does_not_block_the_start(host: HostUnderTest) -> None:
    needs_own_users(host)
    spec = host.spec(7, "obey")
    folder = Path(spec.result_dir, "log", "driver")
    folder.mkdir(parents=True)
    os.mkfifo(folder / "console.log")
    host.want(spec)
    host.apply()
    assert host.until_run(7, lambda run: run.state == "exited").exit_code == 1


@needs_root
def test_the_result_folder_belongs_to_the_runs_user_and_is_closed_to_others(host: HostUnderTest) -> None:
    needs_own_users(host)
    try_in_the_box(host, "findings['nothing'] = attempt(lambda: None)")
    found = host.result(7).stat()
    assert (found.st_uid, found.st_gid, oct(found.st_mode & 0o7777)) == (host.uid_base + 7, os.getgid(), "0o2750")
    file = (host.result(7) / "findings.json").stat()
    assert (file.st_gid, oct(file.st_mode & 0o777)) == (os.getgid(), "0o640")


READS_ROOT = """
import os
from pathlib import Path
root = Path(os.environ["DLI_DATA_FS"])
print("reads", (root / "MNIST" / "labels").read_text(), Path(os.environ["DATA_DIR"], "images").read_text())
try:
    (root / "more").mkdir()
except OSError as error:
    print("writes", error.strerror)
"""


@needs_box
def test_scripts_read_all_of_the_data_root_that_their_own_folder_lies_in(host: HostUnderTest) -> None:
    for name, text in {"MNIST/labels": "7", "pytorch-mnist/images": "8"}.items():
        (host.home / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        (host.home / "data" / name).write_text(text)
    spec = host.spec(1, "script", "main.py", code={"main.py": READS_ROOT})
    host.want(dataclasses.replace(spec, data_dir=str(host.home / "data" / "pytorch-mnist"), data_root=str(host.home / "data")))
    host.apply()
    assert host.until_run(1, lambda seen: seen.state == "exited").exit_code == 0, host.console(1)
    assert "reads 7 8" in host.console(1)
    assert "writes " in host.console(1)
