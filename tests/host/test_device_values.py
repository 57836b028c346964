"""Which devices the programs and lists of a control group refuse, without a kernel: programs are carried out instruction by
instruction."""

from __future__ import annotations

import struct
from collections.abc import Collection

import pytest

from training_runtime.host.sandbox.device_values import CONTROLS, GPU_MINORS, changes, program

BLOCK, CHARACTER = 1, 2
MAKE, READ, WRITE = 1, 2, 4


def answer(code: bytes, *, kind: int, access: int, major: int, minor: int) -> int:
    """What the kernel would get from it, by the semantics of the few instructions that there are."""
    given, registers, place = struct.pack("=III", access << 16 | kind, major, minor), [0] * 11, 0
    while True:
        operation, pair, offset, value = struct.unpack_from("=BBhi", code, 8 * place)
        target, source = pair & 15, pair >> 4
        place += 1
        match operation:
            case 0x61:
                assert source == 1, "what is given is in register 1"
                registers[target] = struct.unpack_from("=I", given, offset)[0]
            case 0x57:
                registers[target] &= value
            case 0x15 | 0x55:
                assert offset >= 0, "the kernel takes no loop here"
                place += offset if (registers[target] == value) == (operation == 0x15) else 0
            case 0xB7:
                registers[target] = value
            case 0x95:
                return registers[0]
            case _:
                raise AssertionError(f"no such instruction: {operation:#x}")


@pytest.mark.parametrize("opened", [(), (1,), (0, 3), range(16)])
@pytest.mark.parametrize("access", [MAKE, READ, WRITE, READ | WRITE])
def test_of_nvidias_devices_only_the_controls_and_those_of_the_slots_are_allowed(opened: Collection[int], access: int) -> None:
    code = program(opened)
    allowed = {minor for minor in range(257) if answer(code, kind=CHARACTER, access=access, major=195, minor=minor)}
    assert allowed == {*opened, *CONTROLS}


@pytest.mark.parametrize(
    ("kind", "major", "minor"),
    [
        pytest.param(CHARACTER, 1, 3, id="null"),
        pytest.param(CHARACTER, 226, 128, id="a render node"),
        pytest.param(CHARACTER, 510, 0, id="nvidia-uvm"),
        pytest.param(BLOCK, 195, 0, id="a block device of the same number"),
    ],
)
def test_any_other_device_is_as_before(kind: int, major: int, minor: int) -> None:
    assert answer(program(()), kind=kind, access=READ | WRITE, major=major, minor=minor) == 1


def test_a_list_names_every_gpu_once_and_then_what_changes() -> None:
    first = changes(None, {1})
    assert dict((value, file) for file, value in first) == {
        f"c 195:{minor} rwm": "devices.allow" if minor == 1 else "devices.deny" for minor in GPU_MINORS
    }
    assert changes({1}, {1}) == ()
    assert changes({1, 2}, {2, 5}) == (("devices.deny", "c 195:1 rwm"), ("devices.allow", "c 195:5 rwm"))
    assert not {f"c 195:{minor} rwm" for minor in CONTROLS} & {value for _, value in first}
