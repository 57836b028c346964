"""Which GPUs a control group lets its processes open, in the two languages of the kernel: pure, numbers in and values out.

Version 1: Documentation/admin-guide/cgroup-v1/devices.rst of the kernel. Version 2: a program of type BPF_PROG_TYPE_CGROUP_DEVICE
(cgroup-v2.rst, "Device controller"), assembled here by hand; its instructions are those of
Documentation/bpf/standardization/instruction-set.rst, and what it is given is struct bpf_cgroup_dev_ctx of linux/bpf.h.
"""

from __future__ import annotations

import struct
from collections.abc import Collection

NVIDIA_MAJOR = 195  # /dev/nvidia*; of the driver's other devices (nvidia-uvm, nvidia-caps) the kernel gives out the major
CONTROLS = (254, 255)  # nvidia-modeset and nvidiactl, without which no GPU can be used
GPU_MINORS = range(254)
EVERYTHING = "a *:* rwm"  # devices.list of a group that is refused nothing by a list

_CHARACTER_DEVICE = 2  # in the lower half of the first word; the upper half says what is wanted of it
_TYPE, _MAJOR, _MINOR = 0, 4, 8  # where the words are
_LOAD_WORD, _AND, _JUMP_IF_EQUAL, _JUMP_IF_NOT, _MOVE, _EXIT = 0x61, 0x57, 0x15, 0x55, 0xB7, 0x95
_ANSWER, _GIVEN, _WORD = 0, 1, 2  # registers


def changes(before: Collection[int] | None, after: Collection[int]) -> tuple[tuple[str, str], ...]:
    """Version 1: files and values that make a group which lets `before` be opened one that lets `after`; None: nobody knows, and every
    minor is said. The kernel takes no pattern with exceptions: each GPU that there could be is named."""
    known = GPU_MINORS if before is None else [minor for minor in GPU_MINORS if (minor in before) != (minor in after)]
    return tuple(("devices.allow" if minor in after else "devices.deny", f"c {NVIDIA_MAJOR}:{minor} rwm") for minor in known)


def program(opened: Collection[int]) -> bytes:
    """Version 2: refuses every character device of NVIDIA's but the controls and these minors, and nothing else."""
    minors = sorted({*opened, *CONTROLS})
    after = len(minors) + 2  # instructions from the first comparison of a minor to the one that allows
    return b"".join(
        (
            _instruction(_LOAD_WORD, _WORD, _GIVEN, offset=_TYPE),
            _instruction(_AND, _WORD, value=0xFFFF),
            _instruction(_JUMP_IF_NOT, _WORD, offset=after + 3, value=_CHARACTER_DEVICE),
            _instruction(_LOAD_WORD, _WORD, _GIVEN, offset=_MAJOR),
            _instruction(_JUMP_IF_NOT, _WORD, offset=after + 1, value=NVIDIA_MAJOR),
            _instruction(_LOAD_WORD, _WORD, _GIVEN, offset=_MINOR),
            *(_instruction(_JUMP_IF_EQUAL, _WORD, offset=after - place - 1, value=minor) for place, minor in enumerate(minors)),
            _instruction(_MOVE, _ANSWER, value=0),
            _instruction(_EXIT),
            _instruction(_MOVE, _ANSWER, value=1),
            _instruction(_EXIT),
        )
    )


def _instruction(code: int, target: int = 0, source: int = 0, *, offset: int = 0, value: int = 0) -> bytes:
    """`offset`: of a word, in bytes; of a jump, in instructions from the next one."""
    return struct.pack("=BBhi", code, source << 4 | target, offset, value)
