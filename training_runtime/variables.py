"""Which environment variables people may give their runs: not those that decide which code runs, nor those that the studio sets itself.

Pure, for the side that takes them in, with a sentence, and for the host, which takes nothing else.
"""

from __future__ import annotations

import re

_NAME = re.compile(r"[A-Z_][A-Z0-9_]*\Z")
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
        "EDT_RELEASE_GRACE_S",
        "CUDA_VISIBLE_DEVICES",
        "CUDA_DEVICE_ORDER",
        "PYTORCH_NVML_BASED_CUDA_CHECK",
    }
)


def refusal(name: str, value: str) -> str:
    """Why the variable is not passed on; empty where it is."""
    shown = "".join(c if c.isprintable() else "?" for c in name[:80])
    if not _NAME.match(name) or len(name) > _LONGEST_NAME:
        return f"{shown or 'An empty name'} is no name for a variable: use capital letters, digits and _, as in BATCH_SIZE."
    if "\0" in value:
        return f"{shown} has a NUL character in its value: type it anew."
    if name in _STUDIOS:
        return f"{shown} is set by the studio: leave it out."
    if name in _OTHER_CODE or name.startswith(_PREFIXES):
        return f"{shown} could change which code runs, or where: it cannot be given."
    return ""
