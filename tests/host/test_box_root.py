"""A run's root file system: how it is laid out, and what real user code finds in it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.host.box import needs_own_users, needs_root, refused, try_in_the_box
from tests.host.conftest import HostUnderTest
from training_runtime.host.sandbox import rootfs
from training_runtime.host.sandbox.rootfs import Layout

NO_ROOT = "no root of its own for a run here"


def test_what_is_below_something_that_is_shown_is_there_with_it(tmp_path: Path) -> None:
    (tmp_path / "a" / "b" / "c").mkdir(parents=True)
    a, b, c = tmp_path / "a", tmp_path / "a" / "b", tmp_path / "a" / "b" / "c"
    assert rootfs.layout([(str(c), "read"), (str(a), "read"), (str(b), "read")]).mounts == ((str(a), "read"),)


def test_a_folder_that_may_be_written_to_is_mounted_upon_one_that_may_be_read(tmp_path: Path) -> None:
    (tmp_path / "a" / "own" / "below").mkdir(parents=True)
    a, own = str(tmp_path / "a"), str(tmp_path / "a" / "own")
    wanted = [(f"{own}/below", "read"), (own, "write"), (a, "read"), (own, "read")]
    assert rootfs.layout(wanted).mounts == ((a, "read"), (own, "write"), (f"{own}/below", "read"))


def test_links_on_the_way_are_made_and_lead_where_they_led(tmp_path: Path) -> None:
    root = tmp_path.resolve()
    (root / "versions" / "3.11" / "bin").mkdir(parents=True)
    (root / "versions" / "current").symlink_to("3.11")
    (root / "python").symlink_to(root / "versions" / "current")
    (root / "versions" / "3.11" / "inside").symlink_to("bin")
    found = rootfs.layout([(f"{root}/python/inside", "read"), (f"{root}/python", "read")])
    assert found == Layout(
        ((f"{root}/python", f"{root}/versions/current"), (f"{root}/versions/current", "3.11")),
        ((f"{root}/versions/3.11", "read"),),
    )


def test_a_way_up_from_a_link_is_that_of_where_it_leads(tmp_path: Path) -> None:
    root = tmp_path.resolve()
    for name in ("etc", "run/resolve"):
        (root / name).mkdir(parents=True)
    (root / "run" / "resolve" / "stub.conf").write_text("nameserver")
    (root / "etc" / "resolv.conf").symlink_to("../run/resolve/stub.conf")
    found = rootfs.layout([(f"{root}/etc/resolv.conf", "read")])
    assert found == Layout(((f"{root}/etc/resolv.conf", "../run/resolve/stub.conf"),), ((f"{root}/run/resolve/stub.conf", "read"),))


def test_what_is_not_there_and_links_that_go_in_circles_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to("one")
    (tmp_path / "nowhere").symlink_to("absent")
    wanted = [(str(tmp_path / name), "read") for name in ("one", "absent", "nowhere")]
    assert rootfs.layout(wanted).mounts == ()


def test_the_whole_machine_can_be_shown(tmp_path: Path) -> None:
    found = rootfs.layout([("/", "read"), ("/usr", "read"), (str(tmp_path), "write")])
    assert found == Layout((), (("/", "read"), (str(tmp_path.resolve()), "write")))


@pytest.fixture
def closed_home(make_host: Callable[[Path], HostUnderTest]) -> Iterator[HostUnderTest]:
    """The studio's home in a folder of mode 0700, as below /root, and not in /tmp."""
    outer = Path(tempfile.mkdtemp(dir="/var/tmp"))
    yield make_host(outer / "home")
    shutil.rmtree(outer)


LOOK = """
def there(path):
    return attempt(lambda: os.lstat(path).st_mode)
def listed(folder):
    return attempt(lambda: sorted(os.listdir(folder)))
"""


def _needs_own_root(host: HostUnderTest) -> None:
    needs_own_users(host)
    if NO_ROOT in " ".join(host.look().node.sandbox_notes):
        pytest.skip("no mount namespaces on this machine")


@needs_root
def test_user_code_sees_no_name_of_what_is_not_its_own(closed_home: HostUnderTest) -> None:
    host = closed_home
    host.start()
    _needs_own_root(host)
    host.want(host.spec(8, "obey"), 1)
    host.apply()
    host.until_holding(8, 1)
    (host.home / "db.sqlite3").write_text("secret")
    broker = socket.socket(socket.AF_UNIX)
    broker.bind(str(host.home / "s"))
    (host.home / "s").chmod(0o777)
    for folder in (host.home, host.home / "runs", host.result(8)):
        folder.chmod(0o755)  # so that modes alone would show it
    own_files = [host.home / name for name in ("db.sqlite3", "s", "code/8", "runs/8")]
    paths = [*own_files, host.folder / "host.sock", host.folder / "state.json", Path("/home"), Path("/root/.bashrc"), Path("/etc/shadow")]
    with broker:
        findings = try_in_the_box(
            host,
            LOOK
            + f"""
import socket
for path in {[str(path) for path in paths]!r}:
    findings[path] = there(path)
findings["runs"] = listed({str(host.home / "runs")!r})
findings["connect"] = attempt(lambda: socket.socket(socket.AF_UNIX).connect({str(host.home / "s")!r}))
findings["own"] = there(os.environ["RESULT_DIR"])
""",
        )
    own = findings.pop("own")
    assert own[0] == "done" and stat.S_ISDIR(int(own[1]))
    assert {name: found for name, found in findings.items() if found[0] not in ("FileNotFoundError", "PermissionError")} == {}
    assert {found[0] for name, found in findings.items() if name.startswith("/")} == {"FileNotFoundError"}


@needs_root
def test_a_run_below_closed_folders_needs_no_right_to_search_them(closed_home: HostUnderTest) -> None:
    host = closed_home
    host.start()
    _needs_own_root(host)
    findings = try_in_the_box(
        host,
        """
findings["capabilities"] = attempt(lambda: [line.split()[1] for line in open("/proc/self/status") if line.startswith("CapEff")])
findings["read"] = attempt(lambda: len(Path("main.py").read_text()))
findings["import"] = attempt(lambda: __import__("torch").ones(2).sum().item())
""",
    )
    assert findings["capabilities"] == ["done", repr(["0" * 16])]
    assert findings["read"][0] == "done"
    assert findings["import"] == ["done", "2.0"]


@needs_root
def test_what_is_shown_is_read_only_and_knows_no_set_user_id_program(host: HostUnderTest) -> None:
    _needs_own_root(host)
    (host.home / "data").mkdir()
    (host.home / "data").chmod(0o777)  # anybody might write to it by its mode
    findings = try_in_the_box(
        host,
        """
findings["data"] = attempt(lambda: Path(os.environ["DATA_DIR"], "x").write_text("x"))
findings["root"] = attempt(lambda: Path("/x").write_text("x"))
findings["device"] = attempt(lambda: Path("/dev/null").write_text("x"))
findings["standard input"] = attempt(lambda: os.path.exists("/dev/stdin"))
options = {line.split()[4]: line.split()[5] for line in open("/proc/self/mountinfo")}
findings["options"] = {path: sorted(set(found.split(",")) & {"ro", "nosuid", "nodev"}) for path, found in options.items()}
""",
    )
    options = findings.pop("options")
    assert refused(findings["data"]) and refused(findings["root"])
    assert findings["device"] == ["done", "1"] and findings["standard input"] == ["done", "True"]
    assert {path: found for path, found in options.items() if "nosuid" not in found} == {}
    read_only = {path for path, found in options.items() if "ro" in found}
    assert {"/usr", str(host.home / "data"), str(host.home / "code" / "7")} <= read_only
    writable = {path for path in options if path not in read_only and not path.startswith("/dev")}
    assert writable <= {"/", "/proc", "/tmp", os.path.realpath(host.result(7))}


@needs_root
def test_what_an_administrator_names_is_shown_also_through_a_link(closed_home: HostUnderTest) -> None:
    host = closed_home
    library = host.home.parent / "cuda-12"
    library.mkdir()
    (library / "version").write_text("12")
    (host.home.parent / "cuda").symlink_to("cuda-12")
    host.start(environment={"EDT_SANDBOX_READ": str(host.home.parent / "cuda")})
    _needs_own_root(host)
    findings = try_in_the_box(
        host,
        f"""
findings["by the link"] = attempt(lambda: Path({str(host.home.parent)!r}, "cuda", "version").read_text())
findings["by its name"] = attempt(lambda: Path({str(library)!r}, "version").read_text())
""",
    )
    assert findings == {"by the link": ["done", "'12'"], "by its name": ["done", "'12'"]}


@needs_root
def test_data_that_is_closed_to_other_users_is_read_all_the_same(host: HostUnderTest) -> None:
    _needs_own_root(host)
    data = host.home / "data"
    data.mkdir()
    (data / "images").write_text("pixels")
    (data / "images").chmod(0o600)
    data.chmod(0o700)
    findings = try_in_the_box(host, "findings['data'] = attempt(lambda: Path(os.environ['DATA_DIR'], 'images').read_text())")
    assert json.dumps(findings["data"]) == '["done", "\'pixels\'"]'
