"""What to do about errors that scripts written elsewhere often run into here: a missing package or file, a data folder that is read-only, a
closed network, a machine without GPUs."""

from __future__ import annotations

import errno
import importlib.machinery
import importlib.metadata
import importlib.util
import os
import re
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import torch

from training_runtime.elastic.processes import hidden_gpus

DISTRIBUTIONS = {"PIL": "pillow", "sklearn": "scikit-learn", "cv2": "opencv-python-headless", "yaml": "pyyaml", "skimage": "scikit-image"}
# Those whose import has the name of somebody else's package.
DISTRIBUTIONS |= {"hydra": "hydra-core", "ignite": "pytorch-ignite", "umap": "umap-learn", "faiss": "faiss-cpu", "git": "gitpython"}
DISTRIBUTIONS |= {"bs4": "beautifulsoup4", "dotenv": "python-dotenv", "imblearn": "imbalanced-learn", "Bio": "biopython", "attr": "attrs"}
DISTRIBUTIONS |= {"skopt": "scikit-optimize", "dateutil": "python-dateutil", "pkg_resources": "setuptools<81"}  # which has it no more
OFFERED = {"torchvision", "PIL", "sklearn", "pandas", "tqdm", "tensorboard", "matplotlib", "keras"}  # requirements-packages.txt
_REFUSED = (errno.EROFS, errno.EACCES, errno.EPERM)
NO_TENSORFLOW = (
    "TensorFlow is not installed where scripts run: for a script that uses tf.keras alone add a line keras to requirements.txt in the "
    "upload, for any other a line tensorflow-cpu; or ask an administrator for make packages or make tensorflow, which do so for everybody"
)
DATA_IS_READ_ONLY = (
    "The data folder (DATA_DIR) is read-only for scripts: upload what it should have as a data asset of the project, or let the script "
    "store what it downloads in os.environ['RESULT_DIR']."
)
NO_NETWORK = (
    "This run reaches no network, since its training definition does not ask for it: save a new version with the network The internet, or "
    "upload what it downloads as a data asset of the project, in the same folders, and choose it in the experiment: the script finds it at "
    "os.environ['DATA_DIR'], its arguments may name it as $DATA_DIR, and where the code says ./data or ../data it is there, too"
)
PRIVATE_NETWORK = (
    "This run reaches the internet, but no private network and nothing of the machine that it runs on: ask an administrator to name what "
    "it needs there in EDT_RUN_NETWORK_ALLOW"
)
NO_FILE = (
    "Relative paths begin in the working folder, a copy of the upload: what is not in the zip, folders without a file included, is not "
    "there, nor what .gitignore names where edt run sent it. Upload data as a data asset of the project and choose it in the experiment: "
    "the script finds it at os.environ['DATA_DIR'], and its arguments may say $DATA_DIR"
)
BESIDE_THE_SCRIPT = (
    "The script runs from the top of the upload and lies in its folder {folder}: there the file is {path}. Name it so, or upload that "
    "folder alone, and it runs from there"
)
NO_GPU = (
    "This run's slots have no GPU: tell the script to compute on the processor (often by an argument such as --device cpu), with the "
    "backend gloo where it uses torch.distributed and with map_location='cpu' in torch.load"
)
SEES_NO_GPU = (
    "The process that comes to the training sees no GPU, its workers do. What the script puts on a GPU there, its workers have on theirs; "
    "what is more (a stream, an event, a generator of CUDA, free memory) is to be asked for in a callback or in the loop"
)
TWO_DEVICES = (
    "The model and its batches are on the worker's GPU, and a tensor that was made without a device, or that a dataset holds, is on the "
    "processor: say .to(x.device), x being a tensor that is there"
)
WRITES_IN_ITS_FOLDER = (
    "A run writes to its own folder alone: its working folder, HOME, TMPDIR and RESULT_DIR are in it; /tmp and others may be closed"
)
NO_KEY = (
    "Nobody can be asked for a key here: give it as the secret WANDB_API_KEY under Variables of the project or the training definition, "
    "with the network The internet; or set the variable WANDB_MODE to offline, and what is logged is on the charts here"
)
IN_A_PACKAGE = (
    "A module that imports relatively is found by the name of its package alone, as in import package.module, and not by its own name "
    "beside the script"
)
AT_THE_TOP = (
    "{name} lies at the top of the upload, and Python looks for modules beside the script. Begin the command with python -m {as_module}, "
    "and it looks at the top"
)
BESIDE_THE_MODULE = (
    "{name} lies beside the script, and python -m looks for modules at the top of the upload. Begin the command with {script}, and Python "
    "looks beside it"
)
MADE_BEFORE = (
    "If the run was started again, its first start has made it: what a run writes stays for its later starts. Let the script mind neither "
    "case, as os.makedirs(path, exist_ok=True) does"
)
_UNREACHABLE = (errno.ENETUNREACH, errno.EHOSTUNREACH)
# Libraries that try one mirror after another raise an error of their own that has of these only the words.
_UNREACHABLE_WORDS = re.compile(r"name resolution|Name or service not known|Network is unreachable|No address associated with hostname")
_NO_GPU_WORDS = re.compile(
    r"No (?:CUDA|HIP) GPUs are available|not compiled with CUDA enabled|Found no NVIDIA driver|torch\.cuda\.is_available\(\) is False"
    r"|Cannot access accelerator device when none is available|no GPUs found|doesn't have NCCL built in|CUDA is not available"
    r"|torch\._C' has no attribute '_cuda"
)
_TWO_DEVICES_WORDS = re.compile(r"at least two devices, (?:cuda:\d+ and cpu|cpu and cuda:\d+)")
_NO_KEY_WORDS = re.compile(r"No API key configured|api_key not configured")
_ASKED_FOR = re.compile(r"\bpip3? install (?:-[-a-zA-Z]+ )*['\"`]?([A-Za-z0-9][A-Za-z0-9._-]{0,99})(?![A-Za-z0-9._+:/-])")
_MOST_CAUSES = 50
LONGEST_TEXT = 10_000


def after(error: BaseException) -> str:
    """Advice to append to the error's message, in sentences; empty if there is none."""
    found = _on_missing(error) if isinstance(error, ImportError) else _on_refused(error) if isinstance(error, OSError) else ""
    found = found or _on_exists(error)
    found = found or _on_network(error) or _on_no_file(error) or _on_devices(error) or _on_no_key(error) or _on_asked_for(error)
    return f"{_full_stop(error)} {found}" if found else ""


def _on_missing(error: ImportError) -> str:
    if str(error) == "attempted relative import with no known parent package":
        return f"{IN_A_PACKAGE}."
    if not error.name:
        return ""
    top, _, below = error.name.partition(".")
    if top == "tensorflow" and importlib.machinery.PathFinder.find_spec(top) is None:  # what stands in for it counts for nothing
        return f"{NO_TENSORFLOW}."
    if not isinstance(error, ModuleNotFoundError):
        return ""
    package = DISTRIBUTIONS.get(top, top)
    if below and _is_there(top):
        return f"The package {top} is installed, in a version that has no {error.name}."
    if named := _at_the_top(top) or _beside_the_module(top):
        return named
    if top in OFFERED:
        return f"{_add(package)}, or ask an administrator for make packages, which adds it for everybody."
    return f"{_add(package)}. If {top} is a file of your own, it is missing in the upload."


def _at_the_top(name: str) -> str:
    """Advice where the code has this module, but not beside the script, which therefore does not find it."""
    script = Path(sys.argv[0]).absolute()
    if not (Path(f"{name}.py").is_file() or any(Path(name).glob("*.py"))) or not script.is_relative_to(Path.cwd()):
        return ""
    as_module = ".".join(script.relative_to(Path.cwd()).with_suffix("").parts)
    return f"{AT_THE_TOP.format(name=name, as_module=as_module)}." if "." in as_module else ""


def _beside_the_module(name: str) -> str:
    """Advice where it lies beside a script that was begun as a module, which looks at the top."""
    script = Path(sys.argv[0]).absolute()
    is_there = (script.parent / f"{name}.py").is_file() and str(script.parent) not in sys.path
    if not is_there or not script.is_relative_to(Path.cwd()):
        return ""
    return f"{BESIDE_THE_MODULE.format(name=name, script=script.relative_to(Path.cwd()))}."


def _on_asked_for(error: BaseException) -> str:
    """A library that lacks another one says so in words of its own."""
    for name in _ASKED_FOR.findall(_says(error)):
        try:
            importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            return f"{_add(name)}."
        except ValueError:
            continue
    return ""


def _add(package: str) -> str:
    what = f"The package {package} is not installed where scripts run"
    return f"{what}: add a line {package} to requirements.txt in the upload and save it as a new version"


def _on_refused(error: OSError) -> str:
    """Advice for a folder that is read-only, as in MNIST(os.environ["DATA_DIR"], download=True)."""
    if error.errno not in _REFUSED or not isinstance(error.filename, (str, bytes)):
        return ""
    path = Path(os.fsdecode(error.filename))
    if path.exists() and not os.access(path, os.R_OK):  # it was to be read
        return ""
    folders = [Path(os.environ[name]).resolve() for name in ("DATA_DIR", "DLI_DATA_FS") if os.environ.get(name)]
    if any(path.resolve().is_relative_to(folder) for folder in folders):
        return DATA_IS_READ_ONLY
    own = os.environ.get("RESULT_DIR")
    return f"{WRITES_IN_ITS_FOLDER}." if own and not path.resolve().is_relative_to(Path(own).resolve()) else ""


def _on_exists(error: BaseException) -> str:
    """Where a run was started again, a script that makes a folder without minding that finds it."""
    if not isinstance(error, FileExistsError) or not isinstance(error.filename, (str, bytes)) or not os.environ.get("RESULT_DIR"):
        return ""
    own = Path(os.fsdecode(error.filename)).resolve().is_relative_to(Path(os.environ["RESULT_DIR"]).resolve())
    return f"{MADE_BEFORE}." if own else ""


def _on_network(error: BaseException) -> str:
    """Advice for an address outside the run's network (EDT_NETWORK, set by the node host). Libraries raise their own errors from this
    one."""
    reach = os.environ.get("EDT_NETWORK", "")
    unreachable = any(isinstance(each, socket.gaierror) or each.errno in _UNREACHABLE for each in _below(error))
    if reach == "none" and (unreachable or _UNREACHABLE_WORDS.search(_says(error))):
        return f"{NO_NETWORK}."
    # A route that prohibits answers so, and so does no file without a name.
    if reach == "outward" and any(each.errno == errno.EACCES and each.filename is None for each in _below(error)):
        return f"{PRIVATE_NETWORK}."
    return ""


def _on_no_file(error: BaseException) -> str:
    if not isinstance(error, FileNotFoundError) or not isinstance(error.filename, (str, bytes)):
        return ""
    path = Path(os.fsdecode(error.filename))
    if path.is_absolute() or not path.parts:
        return ""
    folder = Path(sys.argv[0]).parent
    with suppress(OSError):
        if not folder.is_absolute() and folder.parts and (folder / path).exists():
            return f"{BESIDE_THE_SCRIPT.format(folder=folder, path=folder / path)}."
    return f"{NO_FILE}."


def _on_devices(error: BaseException) -> str:
    if _NO_GPU_WORDS.search(_says(error)) and (hidden_gpus.are_hidden() or not torch.cuda.is_available()):
        return f"{SEES_NO_GPU if hidden_gpus.are_hidden() else NO_GPU}."
    return f"{TWO_DEVICES}." if _TWO_DEVICES_WORDS.search(_says(error)) else ""


def _on_no_key(error: BaseException) -> str:
    return f"{NO_KEY}." if _NO_KEY_WORDS.search(_says(error)) else ""


def _full_stop(error: BaseException) -> str:
    return "" if _says(error).rstrip().endswith((".", "!", "?")) else "."


def _says(error: BaseException) -> str:
    with suppress(Exception):  # its own code
        return str(error)[:LONGEST_TEXT]
    return ""


def _below(error: BaseException) -> Iterator[OSError]:
    """Yield the error and its causes, including those that urllib and requests keep in attributes."""
    left: list[object] = [error]
    for _ in range(_MOST_CAUSES):
        if not left:
            return
        each = left.pop()
        if isinstance(each, OSError):
            yield each
        if isinstance(each, BaseException):
            left += [each.__cause__, each.__context__, getattr(each, "reason", None), *each.args[:3]]


def _is_there(top: str) -> bool:
    with suppress(ImportError, ValueError):
        return importlib.util.find_spec(top) is not None
    return False
