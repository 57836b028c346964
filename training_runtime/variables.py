"""Which environment variables people may give their runs: not those that decide which code runs, nor those that the studio sets itself.

Pure, for the side that takes them in, with a sentence, and for the host, which takes nothing else.
"""

from __future__ import annotations

import re

LEAST_SECRET = 4  # characters of a line of a secret: shorter ones would be hidden all over a log, and so are not hidden
CONFIG_JSON = "EDT_CONFIG_JSON"  # what the run finds as config.json in its working folder, as the trials of a search do
GPU_UUIDS = "EDT_GPU_UUIDS"  # of a machine's GPUs, by number, where runs can open those of their slots alone
BEGUN_AGAIN = "EDT_BEGUN_AGAIN"  # why a run's process was started again that had died, for its driver alone
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_LONGEST_NAME = 200
_PREFIXES = ("LD_", "PYTHON", "DYLD_", "BASH_FUNC_", "GCONV_", "MALLOC_")
_STUDIOS = frozenset(
    [
        "DATA_DIR",
        "DATA_PATH",
        "DLI_DATA_FS",
        "DLI_SHARED_FS",
        "DL_NFS_PATH",
        "DLI_CS_DATASTORE_META",
        "RESUME_WEIGHT_PATH",
        "EXEC_TYPE",
        "RESULT_DIR",
        "DLI_RESULT_FS",
        "SAVED_MODEL_DIR",
        "LOG_DIR",
        "JOB_STATE_DIR",
        "DLI_EXECID",
        "TRAINING_ID",
        "DLI_WORK_DIR",
        "MODEL_PATH",
        "PS_PATH",
        "FABRIC_HOME",
        "FABRIC_BACKEND",
        "FRAME_WORK",
        "DLI_IS_ELASTIC",
        "KERAS_HOME",
        "MPLCONFIGDIR",
        "XDG_CACHE_HOME",
        "TORCH_HOME",
        "CUDA_CACHE_PATH",
        "TRITON_CACHE_DIR",
        "MPLBACKEND",
    ]
)
_OTHER_CODE = frozenset(
    {
        "PATH",
        "IFS",
        "ENV",
        "BASH_ENV",
        "HOME",
        "SHELL",
        "USER",
        "LOGNAME",
        "TMPDIR",
        "EDT_SANDBOX",
        "EDT_HOME",
        "EDT_UID_BASE",
        "EDT_ADDRESS",
        "EDT_NETWORK",
        BEGUN_AGAIN,
        "EDT_RELEASE_GRACE_S",
        GPU_UUIDS,
        "CUDA_VISIBLE_DEVICES",
        "CUDA_DEVICE_ORDER",
        "PYTORCH_NVML_BASED_CUDA_CHECK",
    }
)
_WORKERS = frozenset(
    [
        *("RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "NODE_RANK", "ROLE_NAME"),
        *("WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
    ]
)  # of each its own, as torchrun sets them
_WORKERS_PREFIXES = ("TORCHELASTIC_", "PET_", "DLI_", "WMLA_")


def refusal(name: str, value: str) -> str:
    """Why the variable is not passed on; empty where it is."""
    shown = "".join(c if c.isprintable() else "?" for c in name[:80])
    if not _NAME.match(name) or len(name) > _LONGEST_NAME:
        return f"{shown or 'An empty name'} is no name for a variable: use letters, digits and _, as in BATCH_SIZE."
    if "\0" in value:
        return f"{shown} has a NUL character in its value: type it anew."
    if name in _STUDIOS:
        return f"{shown} is set by the studio: leave it out."
    if name in _OTHER_CODE or name.startswith(_PREFIXES):
        return f"{shown} could change which code runs, or where: it cannot be given."
    return ""


def refusal_to_keep(name: str, value: str, *, secret: bool) -> str:
    """The same of one that a project or a training definition keeps for all its runs; `secret`: nobody is to see its value."""
    if said := refusal(name, value):
        return said
    if name in _WORKERS or name.startswith(_WORKERS_PREFIXES):
        return f"{name} is set by the studio, for each worker its own: leave it out."
    if secret and name.startswith("EDT_"):
        return f"{name} is a setting of the studio, which is no secret: make it a plain variable."
    return ""


def refusal_to_hide(value: str) -> str:
    """Why it can be no secret; empty where it can."""
    if max((len(line.strip()) for line in value.splitlines()), default=0) >= LEAST_SECRET:
        return ""
    return (
        f"A secret has at least {LEAST_SECRET} characters in a line: what is shorter cannot be hidden in logs. "
        "Choose a longer value, or make it a plain variable."
    )
