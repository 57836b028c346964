"""Commands that begin with a program of a package, as `yolo detect train data=digits.yaml`, `nnUNetv2_train 1 2d 0` or
`accelerate launch main.py` do, and with no script of the code. Which programs there are is known when the run's packages are. Pure."""

from __future__ import annotations

import re

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,99}")
NOT_OF_PACKAGES = frozenset(  # what people begin a line of a shell with: a script does that
    """apt bash cat cd chmod conda cp curl dash docker echo env exec export fish git ls make mamba mkdir module mpiexec mpirun mv nice nohup
    nvidia-smi perl pip pip3 poetry rm sbatch sh source srun sudo tar time unzip uv wget zsh""".split()  # noqa: SIM905 - as a list it is a screen
)


def is_program(word: str) -> bool:
    return bool(_NAME.fullmatch(word)) and word not in NOT_OF_PACKAGES
