"""What a person can do about a package that a script imports and that is not there."""

from __future__ import annotations

import importlib.util
from contextlib import suppress

DISTRIBUTIONS = {"PIL": "pillow", "sklearn": "scikit-learn", "cv2": "opencv-python-headless", "yaml": "pyyaml", "skimage": "scikit-image"}
OFFERED = {"torchvision", "PIL", "sklearn", "pandas", "tqdm", "tensorboard", "matplotlib"}  # requirements-packages.txt
OTHER_FRAMEWORKS = {"tensorflow", "keras", "tf_keras", "jax"}


def advice(error: BaseException) -> str:
    """Sentences for a module that was not found, to follow its message; nothing for all else."""
    found = _advice(error)
    return f". {found}" if found else ""


def _advice(error: BaseException) -> str:
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return ""
    top, _, below = error.name.partition(".")
    package = DISTRIBUTIONS.get(top, top)
    if below and _is_there(top):
        return f"The package {top} is installed, in a version that has no {error.name}."
    if top in OTHER_FRAMEWORKS:
        return f"Models of {top} cannot be trained here: scripts train PyTorch models."
    what = f"The package {package} is not installed where scripts run"
    if top in OFFERED:
        return f"{what}: an administrator adds it, with others that scripts use often, by make packages."
    return (
        f"{what}: an administrator can install it there (.venv/bin/python -m pip install {package}), or put it into the upload beside the "
        f"script. If {top} is a file of your own, it is missing in the upload."
    )


def _is_there(top: str) -> bool:
    with suppress(ImportError, ValueError):
        return importlib.util.find_spec(top) is not None
    return False
