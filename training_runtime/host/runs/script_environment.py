"""The environment that a run's processes see, as WMLA scripts expect it. Pure: facts in, a dictionary out.

Two environments: that of the warm process (an allow-list of the host's own, because it stays visible in /proc/PID/environ of everything
forked from it) and that of a run. Neither holds a secret of the studio; the user's own variables and secrets can add to a run's, not
change what the studio sets.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from training_runtime import variables
from training_runtime.node.places import agent_folder
from training_runtime.protocol import RunSpec

_KEPT = frozenset(
    {"PATH", "LANG", "LANGUAGE", "TZ", "LD_LIBRARY_PATH", "LIBRARY_PATH", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"}
)
_KEPT_PREFIXES = ("LC_", "CUDA_", "NCCL_", "GLOO_", "TORCH_", "PYTORCH_", "EDT_PULL_", "EDT_HANG_", "EDT_RELEASE_")
_SECRET = re.compile(r"SECRET|PASSWORD|PASSWD|TOKEN|CREDENTIAL|PRIVATE|API_?KEY|ACCESS_?KEY|DATABASE|REDIS|BROKER")
_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"


@dataclass(frozen=True)
class Places:
    """Where things of a run and of the host are; absolute paths. `temporary` is inside the result folder, under a short name if need
    be; `modules`: where what scripts of the original import is looked for, last of all."""

    work_dir: str
    log_dir: str
    temporary: str
    fabric_home: str
    packages: str
    modules: tuple[str, ...]


def warm_environment(own: Mapping[str, str], *, home: str, programs: Iterable[str] = ()) -> dict[str, str]:
    """What the warm process may keep of the host's environment: what an installation of torch needs, nothing that looks like a secret.
    `programs`: folders that come first in PATH."""
    kept = {k: v for k, v in own.items() if (k in _KEPT or k.startswith(_KEPT_PREFIXES)) and not _SECRET.search(k.upper())}
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1")
    # Asking torch whether there is a GPU must not initialise it in a process that will be forked. GPUs are numbered as the studio does.
    gpus = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    # Hash order of strings is part of what a script computes: it must be the same in every attempt of a run.
    fixed = {"HOME": home, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1", "PYTHONNOUSERSITE": "1"}
    path = {"PATH": ":".join((*programs, kept.get("PATH", _DEFAULT_PATH)))}
    return {"LANG": "C.UTF-8"} | kept | path | one_thread | gpus | fixed


def user_environment(env: Mapping[str, str]) -> dict[str, str]:
    """The user's own variables without those that nobody may give (`variables`): the studio has refused them before, with a sentence."""
    return {name: value for name, value in env.items() if not variables.refusal(name, value)}


def folder_name(name: str) -> str:
    """One safe path component from a run's name, which its owner chose."""
    return re.sub(r"[^A-Za-z0-9_-]+", "_", name).strip("_")[:64] or "code"


def log_folder(node: str, *, remote: bool) -> str:
    """Below a run's log/: of the run's driver, or of its remote agent on the node."""
    return agent_folder(node) if remote else "driver"


def run_environment(spec: RunSpec, *, places: Places, warm: Mapping[str, str]) -> dict[str, str]:
    """The whole environment of a run's driver and, by inheritance, of everything it starts (WMLA.md's table of script variables)."""
    result, data_root = spec.result_dir, spec.data_root or spec.data_dir
    below = os.path.relpath(spec.data_dir, data_root) if spec.data_dir else "."
    own = {
        "DATA_DIR": spec.data_dir,
        "DATA_PATH": spec.data_dir,
        "DLI_DATA_FS": data_root,
        "DLI_SHARED_FS": data_root,
        "DL_NFS_PATH": data_root,
        "DLI_CS_DATASTORE_META": "type=fs" if below == "." else f"type=fs,data_path={below}",
        "RESUME_WEIGHT_PATH": f"{result}/checkpoint" if spec.continue_from else "",
        "EXEC_TYPE": "batch",
        "RESULT_DIR": result,
        "DLI_RESULT_FS": result,
        "SAVED_MODEL_DIR": f"{result}/model",
        "LOG_DIR": places.log_dir,
        "JOB_STATE_DIR": result,
        "DLI_EXECID": str(spec.run),
        "TRAINING_ID": str(spec.run),
        "DLI_WORK_DIR": places.work_dir,
        "MODEL_PATH": places.work_dir,
        "PS_PATH": places.work_dir,
        "FABRIC_HOME": places.fabric_home,
        "FABRIC_BACKEND": "pytorch",
        "FRAME_WORK": "PyTorch",
        "DLI_IS_ELASTIC": "true" if spec.elastic and spec.torchrun != "fixed" else "false",
        "HOME": result,
        "USER": folder_name(spec.user),
        "LOGNAME": folder_name(spec.user),
        "TMPDIR": places.temporary,
        "KERAS_HOME": f"{places.temporary}/keras",
        "MPLCONFIGDIR": f"{places.temporary}/matplotlib",
        "XDG_CACHE_HOME": f"{places.temporary}/cache",
        "TORCH_HOME": f"{places.temporary}/torch",
        "CUDA_CACHE_PATH": f"{places.temporary}/cuda",
        "TRITON_CACHE_DIR": f"{places.temporary}/triton",
        "MPLBACKEND": "module://training_runtime.figures",
        "PYTHONPATH": ":".join((places.packages, *places.modules)),
    }
    # The GPU of a slot is told to the process that computes on it. A driver computes nothing; what it took of a device others would lack.
    own["CUDA_VISIBLE_DEVICES"] = ""
    return (
        {"FABRIC_BACKEND": "pytorch", "DLI_LOGGER_LEVEL": "INFO"}
        | _of_libraries(spec, places)
        | dict(warm)
        | user_environment(spec.env)
        | user_environment(spec.secrets)
        | own
    )


def _of_libraries(spec: RunSpec, places: Places) -> dict[str, str]:
    """What counts less than the run's variables. Without a network wandb would wait for its server, and fail; its log is read as it
    grows, which by itself would be each 15 s. The settings of Ultralytics have the full path of where it writes, which is another on
    another machine."""
    wandb = {"WANDB__TRANSACTION_LOG_FLUSH_INTERVAL": "1", **({} if spec.network else {"WANDB_MODE": "offline"})}
    return {**wandb, "YOLO_CONFIG_DIR": f"{places.temporary}/ultralytics"}
