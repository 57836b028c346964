"""What a person can do about an error that scripts from elsewhere meet here: a package that is not there, a data folder that cannot be
written to."""

from __future__ import annotations

import errno
import importlib.machinery
import importlib.util
import os
from contextlib import suppress
from pathlib import Path

DISTRIBUTIONS = {"PIL": "pillow", "sklearn": "scikit-learn", "cv2": "opencv-python-headless", "yaml": "pyyaml", "skimage": "scikit-image"}
OFFERED = {"torchvision", "PIL", "sklearn", "pandas", "tqdm", "tensorboard", "matplotlib", "keras"}  # requirements-packages.txt
OTHER_FRAMEWORKS = {"tf_keras", "jax"}
_REFUSED = (errno.EROFS, errno.EACCES, errno.EPERM)
NO_TENSORFLOW = (
    "TensorFlow is not installed where scripts run: for a script that uses tf.keras alone add a line keras to requirements.txt in the "
    "upload, for any other a line tensorflow-cpu; or ask an administrator for make packages or make tensorflow, which do so for everybody"
)
DATA_IS_READ_ONLY = (
    "The data folder (DATA_DIR) is read-only for scripts: upload what it should have as a data asset of the project, or let the script "
    "store what it downloads in os.environ['RESULT_DIR']."
)


def after(error: BaseException) -> str:
    """Sentences to follow the error's message; nothing where there is none to give."""
    found = _on_missing(error) if isinstance(error, ImportError) else _on_refused(error) if isinstance(error, OSError) else ""
    return f". {found}" if found else ""


def _on_missing(error: ImportError) -> str:
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
    if top in OTHER_FRAMEWORKS:
        return f"Models of {top} cannot be trained here: scripts train models of PyTorch and of Keras 3."
    what = f"The package {package} is not installed where scripts run"
    add = f"add a line {package} to requirements.txt in the upload and save it as a new version"
    if top in OFFERED:
        return f"{what}: {add}, or ask an administrator for make packages, which adds it for everybody."
    return f"{what}: {add}. If {top} is a file of your own, it is missing in the upload."


def _on_refused(error: OSError) -> str:
    """Of a folder that takes no files: MNIST(os.environ["DATA_DIR"], download=True)."""
    if error.errno not in _REFUSED or not isinstance(error.filename, (str, bytes)):
        return ""
    path = Path(os.fsdecode(error.filename))
    if path.exists() and not os.access(path, os.R_OK):  # it was to be read
        return ""
    folders = [Path(os.environ[name]).resolve() for name in ("DATA_DIR", "DLI_DATA_FS") if os.environ.get(name)]
    return DATA_IS_READ_ONLY if any(path.resolve().is_relative_to(folder) for folder in folders) else ""


def _is_there(top: str) -> bool:
    with suppress(ImportError, ValueError):
        return importlib.util.find_spec(top) is not None
    return False
