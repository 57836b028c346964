"""The filter of system calls: what its program says on each processor, and each refused call tried by user code in a real box."""

from __future__ import annotations

import errno
import os
import platform
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from tests.host.box import BOTH_LEVELS, needs_box, try_in_the_box
from tests.host.conftest import REPOSITORY, HostUnderTest
from training_runtime.host.sandbox import levels, seccomp

USERS = BOTH_LEVELS  # each promise is kept at both levels

TOKENS = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
I386, ARM = 0x40000003, 0x40000028
COLUMN = ("x86_64", "aarch64")
ALLOW = 0x7FFF0000
here = platform.machine()
needs_table = pytest.mark.skipif(here not in TOKENS, reason="there is no table of system calls for this processor")


def numbers(table: dict[str, tuple[int | None, int | None]], machine: str) -> dict[str, int]:
    return {name: number for name, both in table.items() if (number := both[COLUMN.index(machine)]) is not None}


def answer(machine: str, number: int, *, first: int = 0, second: int = 0, token: int | None = None, alone: bool = False) -> int:
    """What the kernel would make of the program: 0 where the call is allowed, else the error. Every jump must lead forwards to a return."""
    data = struct.pack("=IIQ6Q", number, TOKENS[machine] if token is None else token, 0, first, second, 0, 0, 0, 0)
    program, at, value = seccomp.instructions(machine, alone=alone), 0, 0
    while True:
        code, yes, no, constant = program[at]
        at += 1
        if code == 0x20:
            (value,) = struct.unpack_from("=I", data, constant)
        elif code == 0x54:
            value &= constant
        elif code == 0x06:
            assert constant == ALLOW or constant >> 16 == 5
            return 0 if constant == ALLOW else constant & 0xFFFF
        else:
            holds = {0x15: value == constant, 0x35: value >= constant, 0x45: bool(value & constant)}[code]
            at += yes if holds else no


@pytest.mark.parametrize("machine", TOKENS)
def test_of_all_numbers_those_in_the_tables_are_refused_and_no_others(machine: str) -> None:
    absent, refused = numbers(seccomp._ABSENT, machine), numbers(seccomp._REFUSED, machine)
    expected = dict.fromkeys(absent.values(), errno.ENOSYS) | dict.fromkeys(refused.values(), errno.EPERM)
    expected[numbers(seccomp._BY_ARGUMENT, machine)["socket"]] = errno.EAFNOSUPPORT  # family 0
    assert {number: found for number in range(1024) if (found := answer(machine, number))} == expected


@pytest.mark.parametrize("machine", TOKENS)
def test_a_process_that_is_alone_is_refused_those_that_runs_are_and_more(machine: str) -> None:
    """See `file_box`: it starts no process, signals none and opens no socket, whatever the arguments."""
    others = numbers(seccomp._REFUSED, machine) | numbers(seccomp._ALONE, machine)
    expected = dict.fromkeys(numbers(seccomp._ABSENT, machine).values(), errno.ENOSYS) | dict.fromkeys(others.values(), errno.EPERM)
    for first in (0, 1, 2, 17):
        assert {number: found for number in range(1024) if (found := answer(machine, number, first=first, alone=True))} == expected


@pytest.mark.parametrize("machine", TOKENS)
def test_namespaces_are_refused_and_plain_processes_and_threads_are_not(machine: str) -> None:
    by_argument = numbers(seccomp._BY_ARGUMENT, machine)
    fork, thread = 0x01200011, 0x003D0F00
    for flags in (fork, thread, 0x4000 | 17):
        assert answer(machine, by_argument["clone"], first=flags) == 0
    for namespace in (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000):
        assert answer(machine, by_argument["clone"], first=fork | namespace) == errno.EPERM
        assert answer(machine, by_argument["unshare"], first=namespace) == errno.EPERM
        assert answer(machine, by_argument["unshare"], first=namespace | 1 << 40) == errno.EPERM
    assert answer(machine, by_argument["unshare"], first=0x80) == errno.EPERM  # of time
    assert answer(machine, by_argument["unshare"], first=0x600) == 0  # of open files and folders


@pytest.mark.parametrize("machine", TOKENS)
def test_sockets_are_of_four_families(machine: str) -> None:
    number = numbers(seccomp._BY_ARGUMENT, machine)["socket"]
    assert {family for family in range(64) if answer(machine, number, first=family) == 0} == {1, 2, 10, 16}


@pytest.mark.parametrize("machine", TOKENS)
def test_limits_are_set_for_the_caller_alone(machine: str) -> None:
    number = numbers(seccomp._BY_ARGUMENT, machine)["prlimit64"]
    assert [answer(machine, number, first=pid) for pid in (0, 1, 4711, 1 << 32)] == [0, errno.EPERM, errno.EPERM, 0]


@pytest.mark.parametrize("machine", TOKENS)
@pytest.mark.parametrize("call", seccomp._CLOCKS)
def test_the_clock_of_a_process_that_is_named_is_refused_and_no_other(machine: str, call: str) -> None:
    number = numbers(seccomp._BY_ARGUMENT, machine)[call]

    def of(pid: int, kind: int) -> int:
        return (~pid << 3 | kind) & 0xFFFFFFFF

    for pid in (1, 4711, 1 << 22):
        assert {answer(machine, number, first=of(pid, kind)) for kind in (0, 1, 2, 3)} == {errno.EPERM}
        assert {answer(machine, number, first=of(pid, kind | 4)) for kind in (0, 1, 2)} == {
            0
        }  # a thread: the kernel tells of its own alone
    assert {answer(machine, number, first=first) for first in (*range(12), of(0, 2), of(0, 6))} == {0}


@pytest.mark.parametrize("machine", TOKENS)
def test_who_owns_a_process_is_not_told_by_its_handle(machine: str) -> None:
    number = numbers(seccomp._BY_ARGUMENT, machine)["ioctl"]
    for size in (64, 72, 4096):
        assert answer(machine, number, second=0xC000FF0B | size << 16) == errno.ENOTTY
    assert {answer(machine, number, second=second) for second in (0x5401, 0x541B, 0xFF0A, 0xFF0C, 0xC020462A)} == {0}


@pytest.mark.parametrize("machine", TOKENS)
def test_the_other_entries_of_a_processor_have_no_calls_at_all(machine: str) -> None:
    for token in {I386, ARM, *TOKENS.values()} - {TOKENS[machine]}:
        assert {answer(machine, number, token=token) for number in range(512)} == {errno.ENOSYS}
    if machine == "x86_64":
        assert {answer(machine, 0x40000000 | number) for number in range(600)} == {errno.ENOSYS}


def test_a_processor_without_a_table_is_said_in_the_notes_and_the_box_is_there_without_it(tmp_path: Path) -> None:
    code = (
        "import platform, sys, pathlib; from training_runtime.host.sandbox import probe, levels as sandbox\n"
        "platform.machine = lambda: 'riscv64'\n"
        "found = probe.strongest(pathlib.Path(sys.argv[1]), sandbox.Policy(uid_base=0))\n"
        "print(found.filtered, *found.notes, sep=chr(10))"
    )
    said = subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    assert said.splitlines()[0] == "False"
    assert "no system call is refused: there is no table of system calls for riscv64" in said.splitlines()


@needs_table
def test_who_builds_environments_and_fetches_code_is_filtered_too(tmp_path: Path) -> None:
    from training_runtime.host.sandbox.probe import strongest

    found = strongest(tmp_path, levels.Policy(uid_base=0))
    assert found.filtered, found.notes
    assert levels.box_for_building(str(tmp_path), found, policy=levels.Policy(), read=()).filtered


CALL = """
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    ctypes.set_errno(0)
    if libc.syscall(ctypes.c_long(number), *(ctypes.c_long(a) for a in (*arguments, 0, 0, 0, 0, 0, 0)[:6])) < 0:
        raise OSError(ctypes.get_errno(), "refused")
def errors(calls):
    found = {}
    for name, (number, *arguments) in calls.items():
        try:
            call(number, *arguments)
            found[name] = "nothing"
        except OSError as error:
            found[name] = errno.errorcode[error.errno]
    return found
"""


@needs_box
@needs_table
def test_each_refused_call_is_refused_to_user_code(host: HostUnderTest) -> None:
    calls = {name: (number,) for name, number in (numbers(seccomp._ABSENT, here) | numbers(seccomp._REFUSED, here)).items()}
    by_argument = numbers(seccomp._BY_ARGUMENT, here)
    calls |= {
        "a user namespace": (by_argument["unshare"], 0x10000000),
        "a forked one": (by_argument["clone"], 0x10000211),
    }  # invalid where it is not refused
    calls |= {"the hypervisor": (by_argument["socket"], 40, 1), "the kernel's ciphers": (by_argument["socket"], 38, 5)}
    program = CALL + f"import json; print(json.dumps(errors({calls!r})))"
    findings = try_in_the_box(
        host,
        CALL
        + f"""
import subprocess
findings["errors"] = errors({calls!r})
program = {program!r}
findings["of a program"] = json.loads(subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout)
findings["status"] = Path("/proc/self/status").read_text()
""",
    )
    expected = dict.fromkeys(numbers(seccomp._ABSENT, here), "ENOSYS") | dict.fromkeys(numbers(seccomp._REFUSED, here), "EPERM")
    expected |= {"a user namespace": "EPERM", "a forked one": "EPERM", "the hypervisor": "EAFNOSUPPORT"}
    expected |= {"the kernel's ciphers": "EAFNOSUPPORT"}
    assert findings["errors"] == findings["of a program"] == expected
    assert "Seccomp:\t2\n" in findings["status"]
    assert "Speculation_Store_Bypass:\tthread force mitigated" not in findings["status"]


@needs_table
def test_it_is_the_filter_that_refuses_what_every_user_may_call() -> None:
    """The same calls without it: one that fails here as well would prove nothing above."""
    known = numbers(seccomp._ABSENT, here) | numbers(seccomp._REFUSED, here)
    open_to_all = ("inotify_init1", "keyctl", "request_key", "setns", "clone3", "open_tree", "ptrace", "mount_setattr", "fanotify_mark")
    program = CALL + f"print(errors({ ({name: (known[name],) for name in open_to_all})!r}))"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert "ENOSYS" not in found
    assert "EPERM" not in found


@needs_box
@pytest.mark.skipif(here != "x86_64", reason="only this processor has more than one entry")
def test_the_entry_of_32_bit_programs_is_closed(host: HostUnderTest) -> None:
    findings = try_in_the_box(
        host,
        """
import subprocess
program = '''
import ctypes, mmap
memory = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
memory.write(bytes([0xB8, 20, 0, 0, 0, 0xCD, 0x80, 0xC3]))  # mov eax, getpid; int 0x80; ret
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
print(ctypes.CFUNCTYPE(ctypes.c_int)(address)())
'''
ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
findings["getpid"] = [ended.returncode, ended.stdout.strip()]
""",
    )
    assert findings["getpid"] in ([0, str(-errno.ENOSYS)], [-11, ""])  # a kernel without this entry sends SIGSEGV


@needs_box
@needs_table
def test_every_process_of_a_run_is_filtered_and_its_shim_and_host_are_not(host: HostUnderTest) -> None:
    host.want(host.spec(7, "obey"), 1, 2)
    host.apply()
    host.until_holding(7, 1, 2)
    (saved,) = host.saved()["runs"]

    def mode(pid: int) -> str:
        return next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("Seccomp:")).split()[1]

    own = mode(os.getpid())
    assert {mode(pid) for pid in (saved["pid"], *(worker["pid"] for worker in saved["workers"]))} == {"2"}
    assert {mode(pid) for pid in (saved["shim"], host.process.pid, host.warm_pid())} == {own}
