"""Which processor and GPUs this machine has, as far as results depend on it. Read from the kernel; standard library only."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import NamedTuple

_GENERATION = ("cpu family", "model", "CPU implementer", "CPU part")  # of x86-64; of Arm, which has no model name
_GPUS = Path("/proc/driver/nvidia/gpus")
_VECTORS = ("avx2", "avx512f", "avx512_bf16", "amx_tile", "asimd", "sve", "sve2")


def processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Its name, generation and vector instructions. Kernels are chosen by these, so machines of which all is equal round alike.

    The name is not enough: a virtual machine may call every generation the same, and hide instructions.
    """
    fields: dict[str, str] = {}
    try:
        with open(cpuinfo) as lines:
            for line in lines:
                if not line.strip():
                    break  # the other cores are like the first
                name, _, value = line.partition(":")
                fields[name.strip()] = value.strip()
    except OSError:
        return platform.machine()
    generation = "/".join(fields[name] for name in _GENERATION if name in fields)
    able = set(fields.get("flags", fields.get("Features", "")).split())
    return f"{fields.get('model name', platform.machine())} ({', '.join((generation, *(v for v in _VECTORS if v in able)))})"


class Gpu(NamedTuple):
    """`minor`: of its device file. `uuid`: as CUDA_VISIBLE_DEVICES takes it; question marks where the driver has not started it."""

    minor: int
    model: str
    uuid: str


def gpus(folder: Path = _GPUS) -> tuple[str, ...]:
    """Model names in the order of their minor numbers, which is the driver's own order."""
    return tuple(gpu.model for gpu in gpu_list(folder))


def gpu_list(folder: Path = _GPUS) -> tuple[Gpu, ...]:
    """In the same order: the place in it is the GPU's number."""
    found = []
    for information in folder.glob("*/information"):
        fields = dict(line.split(":", 1) for line in information.read_text().splitlines() if ":" in line)
        model, uuid = fields.get("Model", "NVIDIA GPU").strip(), fields.get("GPU UUID", "").strip()
        found.append(Gpu(int(fields.get("Device Minor", "0")), model, uuid))
    return tuple(sorted(found))
