"""What control groups are told, and where they may lie: both versions of the kernel's interface, with texts and a folder that stand in for
it."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from training_runtime.host.sandbox import cgroup, cgroup_bases
from training_runtime.host.sandbox.cgroup_values import (
    CONTROLLERS,
    Disk,
    Limits,
    Places,
    Shortage,
    limits,
    of_all,
    of_run,
    places,
    sentence,
    shortage,
)
from training_runtime.host.settings import sandbox_policy

GIB = 1 << 30


def given(memory: float | None, machine_bytes: int = 64 * GIB) -> Limits:
    return limits(memory=memory, processes=8192, machine_bytes=machine_bytes, machine_processes=32768)


@pytest.mark.parametrize("machine", [2 * GIB, 8 * GIB, 64 * GIB, 2048 * GIB])
def test_all_runs_leave_the_studio_some_memory_and_one_run_meets_its_own_limit_first(machine: int) -> None:
    found = given(None, machine)
    assert found.memory is not None
    assert found.all_memory is not None
    assert machine // 2 < found.memory < found.all_memory <= machine - min(GIB, machine // 4)


def test_a_limit_is_bytes_or_a_share_or_none_and_never_more_than_all_may_have() -> None:
    assert given(0.5).memory == 32 * GIB
    assert given(4.0 * GIB).memory == 4 * GIB
    assert given(1.0).memory == given(500.0 * GIB).memory == given(None).all_memory
    assert given(0).memory is None
    assert given(0).all_memory == given(None).all_memory
    assert given(None, 0) == Limits(None, 8192, None, 24576)  # the kernel does not say what there is


def test_four_runs_full_of_processes_leave_the_machine_some() -> None:
    assert given(None).all_processes < 4 * given(None).processes < 32768 + 1
    assert limits(memory=None, processes=8192, machine_bytes=0, machine_processes=400).processes == 300


def test_each_version_has_its_files() -> None:
    some = Limits(GIB, 100, 2 * GIB, 300)
    assert of_run(some, "memory", 2) == (("memory.max", str(GIB)), ("memory.swap.max", "0"))
    assert of_run(some, "memory", 1) == (("memory.limit_in_bytes", str(GIB)), ("memory.memsw.limit_in_bytes", str(GIB)))
    assert of_run(some, "pids", 1) == of_run(some, "pids", 2) == (("pids.max", "100"),)
    assert of_all(some, "pids", 2) == (("pids.max", "300"),)
    assert of_all(some, "memory", 1)[:2] == (("memory.use_hierarchy", "1"), ("memory.limit_in_bytes", str(2 * GIB)))
    assert of_run(Limits(None, 1, None, 1), "memory", 2) == ()


def test_a_lack_of_memory_is_read_and_told_by_whose_limit_was_met() -> None:
    second = shortage({"memory.events": "low 0\nhigh 0\nmax 7\noom 2\noom_kill 1\noom_group_kill 0\n"}, 2)
    killed = {"memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n", "memory.limit_in_bytes": f"{GIB}\n"}
    first = shortage(killed | {"memory.max_usage_in_bytes": f"{GIB - 4096}\n"}, 1)
    assert first == second == Shortage(1, own=True)
    around = Shortage(1, own=False)  # at the limit of all
    assert shortage({"memory.events": "oom 0\noom_kill 1\n"}, 2) == around
    assert shortage(killed | {"memory.max_usage_in_bytes": f"{GIB // 2}\n"}, 1) == around
    assert "needed more than 1.5 GiB of memory, its limit" in sentence(first, 3 * GIB // 2)
    assert "needed more than 256 MiB" in sentence(first, 256 << 20)
    assert "The runs of the machine together needed more memory than it has" in sentence(around, GIB)
    assert sentence(Shortage(0, own=True), GIB) == ""
    assert shortage({}, 1) == shortage({}, 2) == Shortage()


FIRST = """31 24 0:27 / /sys/fs/cgroup rw - tmpfs tmpfs rw
33 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
34 31 0:30 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
35 31 0:31 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate
36 31 0:32 /docker/other /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids
"""


def test_our_own_group_is_found_in_each_hierarchy_that_shows_it() -> None:
    own = "4:pids:/docker/abc\n3:memory:/docker/abc\n2:cpu,cpuacct:/system.slice/a b.service\n1:name=systemd:/x\n0::/x/y\n"
    found = places(own, FIRST)
    assert found.own["memory"] == ("/sys/fs/cgroup/memory", "/sys/fs/cgroup/memory")
    assert found.own["cpu"] == ("/sys/fs/cgroup/cpu,cpuacct/system.slice/a b.service", "/sys/fs/cgroup/cpu,cpuacct")
    assert "pids" not in found.own  # only another container's is shown
    assert found.unified == ("/sys/fs/cgroup/unified/x/y", "/sys/fs/cgroup/unified")
    alone = places("0::/\n", "25 23 0:22 / /sys/fs/cgroup\\040here rw shared:9 - cgroup2 cgroup2 rw\n")
    assert alone == Places({}, ("/sys/fs/cgroup here", "/sys/fs/cgroup here"))
    assert places("0::/../outside\n", "25 23 0:22 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n").unified is None


class SecondVersion:
    """As much of version 2 as the host meets: files that come with a group, controllers that are handed down, and no processes beside them.
    `delegated` is the highest group that may be changed."""

    FILES = {
        "memory": ("memory.max", "memory.swap.max", "memory.events"),
        "pids": ("pids.max",),
        "cpu": ("cpu.weight",),
        "io": ("io.weight",),
    }

    def __init__(self, top: Path, patch: pytest.MonkeyPatch) -> None:
        self.top, self.mkdir, self.rmdir = top, Path.mkdir, Path.rmdir
        top.mkdir()
        self.furnish(top, "cpu io memory pids")
        patch.setattr(Path, "mkdir", lambda group, *given, **named: self.make(group, *given, **named))
        patch.setattr(Path, "rmdir", lambda group: self.remove(group))
        for module in (cgroup, cgroup_bases):
            patch.setattr(module, "write", self.write)
        patch.setattr(cgroup_bases, "_enter", lambda file: self.entered.append(file.name))
        self.entered: list[str] = []

    def furnish(self, group: Path, controllers: str) -> None:
        (group / "cgroup.controllers").write_text(controllers)
        for name in ("cgroup.subtree_control", "cgroup.procs"):
            (group / name).write_text("")
        for controller in controllers.split() if group != self.top else ():
            for name in self.FILES[controller]:
                (group / name).write_text("max")

    def make(self, group: Path, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        new = not group.exists()
        self.mkdir(group, mode, parents, exist_ok)
        if new and group.is_relative_to(self.top):
            self.furnish(group, (group.parent / "cgroup.subtree_control").read_text())

    def remove(self, group: Path) -> None:
        if group.is_relative_to(self.top) and group.is_dir():
            if (group / "cgroup.procs").read_text() or any(entry.is_dir() for entry in group.iterdir()):
                raise OSError(errno.EBUSY, "busy")
            for file in group.iterdir():
                file.unlink()
        self.rmdir(group)

    def write(self, file: Path, value: str) -> None:
        if file.name == "cgroup.subtree_control":
            if (file.parent / "cgroup.procs").read_text() and file.parent != self.top:
                raise OSError(errno.EBUSY, "busy", str(file))
            controller = value.removeprefix("+")
            file.write_text(f"{file.read_text()} {controller}".strip())
            for group in (entry for entry in file.parent.iterdir() if entry.is_dir()):
                for name in self.FILES[controller]:
                    (group / name).write_text("max")
                (group / "cgroup.controllers").write_text(file.read_text())
        elif file.name == "cgroup.procs":
            for other in self.top.rglob("cgroup.procs"):
                other.write_text("".join(f"{pid}\n" for pid in other.read_text().split() if pid != value))
            file.write_text(file.read_text() + f"{value}\n")
        elif not file.exists():
            raise FileNotFoundError(errno.ENOENT, "no such file", str(file))
        else:
            file.write_text(value)


@pytest.fixture
def second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SecondVersion:
    (tmp_path / "host").mkdir()
    kernel = SecondVersion(tmp_path / "cgroup", monkeypatch)
    (kernel.top / "cgroup.subtree_control").write_text("cpu io memory pids")
    (kernel.top / "studio.service").mkdir()
    (kernel.top / "studio.service" / "cgroup.procs").write_text("100\n101\n")
    return kernel


WEIGHED = Disk("none", cost=True)


def begin(second: SecondVersion, group: str = "studio.service", *, systemd: bool = False, disk: Disk = WEIGHED) -> cgroup.Groups:
    found, folder = Places({}, (str(second.top / group), str(second.top))), second.top.parent / "host"
    return cgroup_bases.begin_in(found, folder, memory=float(GIB), processes=500, machine_bytes=64 * GIB, systemd=systemd, disk=disk)


def base_of(second: SecondVersion) -> Path:
    (base,) = (second.top / "studio.service").glob("edt-????????????")
    return base


def test_with_version_2_the_studio_goes_beside_its_runs(second: SecondVersion) -> None:
    groups = begin(second)
    assert groups.notes == ()
    assert groups.words() == ("a run may have 1 GiB of memory and 500 processes and threads",)
    assert second.entered == ["cgroup.procs"] * 4
    aside = second.top / "studio.service" / "edt-studio"
    assert (aside / "cgroup.procs").read_text() == "100\n101\n"
    assert (aside / "cpu.weight").read_text() == (aside / "io.weight").read_text() == "1000"
    groups.make("run-7.1")
    leaf = base_of(second) / "run-7.1"
    written = {name: (leaf / name).read_text() for name in ("memory.max", "memory.swap.max", "pids.max")}
    assert written == {"memory.max": str(GIB), "memory.swap.max": "0", "pids.max": "500"}
    assert groups.doors("run-7.1") == (str(leaf / "cgroup.procs"),)


def test_weights_follow_the_slots_of_each_run_and_of_all_together(second: SecondVersion) -> None:
    groups = begin(second)
    for name in ("run-7.1", "run-8.1"):
        groups.make(name)
    seen, disk = [], []
    for slots in (
        {"run-7.1": 0, "run-8.1": 0},
        {"run-7.1": 0, "run-8.1": 2},
        {"run-7.1": 3, "run-8.1": 2, "run-9.1": 5},
    ):  # 9 waits, it has no group yet
        groups.settle(slots)
        seen.append(
            [(folder / "cpu.weight").read_text() for folder in (base_of(second) / "run-7.1", base_of(second) / "run-8.1", base_of(second))]
        )
        disk.append([(base_of(second) / name / "io.weight").read_text() for name in ("run-7.1", "run-8.1", ".")])
    assert seen == [["25", "25", "100"], ["25", "200", "200"], ["300", "200", "500"]]
    assert disk == [["25", "25", "max"], ["25", "200", "max"], ["300", "200", "max"]]  # all together: as the kernel made it


def test_a_group_goes_when_its_run_has_ended_and_nothing_is_in_it_any_more(second: SecondVersion) -> None:
    groups = begin(second)
    groups.make("run-7.1")
    leaf = base_of(second) / "run-7.1"
    second.write(leaf / "cgroup.procs", "200")
    groups.settle({})
    assert leaf.is_dir()
    second.write(second.top / "cgroup.procs", "200")
    groups.settle({})
    assert not leaf.exists()
    groups.end()
    assert [entry.name for entry in (second.top / "studio.service").iterdir() if entry.is_dir()] == ["edt-studio"]


def test_what_a_killed_host_left_behind_goes_with_the_next_but_for_runs_that_live(second: SecondVersion) -> None:
    earlier = begin(second)
    for name in ("run-7.1", "run-8.1"):
        earlier.make(name)
    second.write(base_of(second) / "run-7.1" / "cgroup.procs", "200")
    groups = begin(second, "studio.service/edt-studio")  # where the processes of the studio are now
    groups.settle({"run-7.1": 2})
    assert [leaf.name for leaf in cgroup.leaves(base_of(second))] == ["run-7.1"]
    assert (base_of(second) / "run-7.1" / "cpu.weight").read_text() == "200"


def test_a_host_that_is_started_in_another_group_goes_on_with_the_groups_of_its_runs(second: SecondVersion) -> None:
    begin(second).make("run-7.1")
    leaf = base_of(second) / "run-7.1"
    second.write(leaf / "cgroup.procs", "200")
    (second.top / "elsewhere").mkdir()
    groups = begin(second, "elsewhere")
    groups.settle({"run-7.1": 3})
    assert (leaf / "cpu.weight").read_text() == "300"
    second.write(second.top / "cgroup.procs", "200")
    assert begin(second, "elsewhere").notes == ()
    assert not leaf.parent.exists()
    assert len(list((second.top / "elsewhere").glob("edt-*"))) == 1


def test_a_container_s_own_limits_are_what_its_runs_share(second: SecondVersion) -> None:
    (second.top / "studio.service" / "memory.max").write_text(str(8 * GIB))
    (second.top / "studio.service" / "pids.max").write_text("400")
    begin(second)
    assert (base_of(second) / "memory.max").read_text() == str(7 * GIB)
    assert (base_of(second) / "pids.max").read_text() == "300"


def test_what_cannot_be_had_is_left_out_and_said(second: SecondVersion, tmp_path: Path) -> None:
    (second.top / "studio.service" / "cgroup.controllers").write_text("memory")
    groups = begin(second)
    assert [note.split(" (")[0] for note in groups.notes] == [
        "the processes of all runs together are not limited",
        "runs do not share the processors by the slots they hold",
        "runs do not share the disk by the slots they hold",
    ]
    nothing = cgroup_bases.begin_in(Places({}, None), tmp_path / "host", memory=None, processes=9, machine_bytes=GIB)
    assert len(nothing.notes) == len(CONTROLLERS)
    assert nothing.words() == nothing.notes
    nothing.make("run-1.1")
    nothing.settle({"run-1.1": 2})
    assert nothing.doors("run-1.1") == ()
    assert nothing.explain(nothing.shortage("run-1.1")) == ""
    nothing.end()


def test_weights_are_set_on_a_disk_that_heeds_none_too_and_that_is_said(second: SecondVersion) -> None:
    groups = begin(second, disk=Disk("none"))
    assert groups.notes == ("runs do not share the disk by the slots they hold (its scheduler is none, which heeds no weights; bfq does)",)
    groups.make("run-7.1")
    groups.settle({"run-7.1": 2})
    assert (base_of(second) / "run-7.1" / "io.weight").read_text() == "200"


def test_a_kernel_without_weights_for_disks_is_said(second: SecondVersion, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SecondVersion, "FILES", SecondVersion.FILES | {"io": ("io.max",)})
    (note,) = begin(second).notes
    assert note == "runs do not share the disk by the slots they hold (this kernel has no weights of groups for disks)"


def test_a_group_of_systemds_is_taken_where_it_is_delegated_and_else_left_as_it_is(
    second: SecondVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = begin(second, systemd=True)
    assert all("studio.service is systemd's own: give the studio a group by Delegate=yes" in note for note in groups.notes)
    assert len(groups.notes) == len(CONTROLLERS)
    assert (second.top / "studio.service" / "cgroup.procs").read_text() == "100\n101\n"
    monkeypatch.setattr(cgroup_bases.os, "getxattr", lambda _group, name: b"1" if name == "user.delegate" else b"0")
    assert begin(second, systemd=True).notes == ()


def test_a_group_that_may_not_be_changed_is_left_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "memory").mkdir()
    found = Places({"memory": (str(tmp_path / "memory"), str(tmp_path))}, None)  # a plain folder: no files come with what is made in it
    groups = cgroup_bases.begin_in(found, tmp_path, memory=None, processes=9, machine_bytes=GIB)
    assert "memory.limit_in_bytes: No such file or directory" in groups.notes[0]
    assert list((tmp_path / "memory").iterdir()) == []


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("EDT_RUN_MEMORY=16", "a share of the machine's memory up to 1, or bytes from"),
        ("EDT_RUN_MEMORY=half", "is not a number"),
        ("EDT_RUN_MEMORY=-1", "must not be negative"),
        ("EDT_RUN_PROCESSES=3", "must be at least 16"),
        ("EDT_SANDBOX_DEVICES=yes", "1, or 0 for none"),
    ],
)
def test_settings_that_mean_nothing_are_refused_with_a_sentence(setting: str, words: str, tmp_path: Path) -> None:
    name, value = setting.split("=")
    with pytest.raises(ValueError, match=words):
        sandbox_policy({name: value}, home=tmp_path)
    policy = sandbox_policy({"EDT_RUN_MEMORY": "0.5", "EDT_RUN_PROCESSES": "64", "EDT_UID_BASE": "0"}, home=tmp_path)
    assert (policy.run_memory, policy.max_processes) == (0.5, 64)
