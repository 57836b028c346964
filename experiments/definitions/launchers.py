"""Commands that begin with PyTorch's launcher: `torchrun --nproc-per-node 4 main.py --epochs 5`. Its options are taken off, since the
studio does its work; only how often workers may be started again is read. Pure, standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

MAX_RESTARTS = 3  # where the command does not say: the old launcher's own number
MOST_RESTARTS = 100
MODULES = ("torch.distributed.run", "torch.distributed.launch", "torchelastic.distributed.launch")
_PYTHON = re.compile(r"python(3(\.\d+)?)?$")
_FLAGS = frozenset({"--standalone", "--use-env", "--run-path", "--with-etcd"})
_VALUES = frozenset(
    [
        "--nnodes",
        "--nproc-per-node",
        "--node-rank",
        "--rdzv-backend",
        "--rdzv-endpoint",
        "--rdzv-id",
        "--rdzv-conf",
        "--max-restarts",
        "--monitor-interval",
        "--start-method",
        "--event-log-handler",
        "--role",
        "--log-dir",
        "-r",
        "--redirects",
        "-t",
        "--tee",
        "--local-ranks-filter",
        "--duplicate-stdout-filters",
        "--duplicate-stderr-filters",
        "--master-addr",
        "--master-port",
        "--local-addr",
        "--logs-specs",
        "--numa-binding",
        "--signals-to-handle",
        "--shutdown-timeout",
        "--virtual-local-rank",
    ]
)
_REFUSED = {
    "--no-python": "only Python scripts are run",
}


class WrongLauncher(ValueError):
    """The message says which option is wrong and what to do."""


@dataclass(frozen=True)
class Launcher:
    """`name` as people call it; `max_restarts` None where it was not said."""

    name: str
    max_restarts: int | None = None


def divided(words: Sequence[str]) -> tuple[Launcher | None, tuple[str, ...]]:
    """The launcher, None where the command begins with none, and what it was to start: script and arguments, or -m, a module and
    arguments. Raises WrongLauncher."""
    name, rest = _named(list(words))
    if not name:
        return None, tuple(words)
    restarts: int | None = None
    while rest and rest[0].startswith("-") and rest[0] != "-":
        given, sign, value = rest.pop(0).partition("=")
        option = given.replace("_", "-")
        if option in ("-m", "--module"):
            return Launcher(name, restarts), ("-m", *rest)
        if option in _REFUSED:
            raise WrongLauncher(f"{given} of {name} is not possible here: {_REFUSED[option]}.")
        if option in _FLAGS:
            continue
        if option not in _VALUES:
            raise WrongLauncher(f"{name} has no option {given[:60]}: write it before the script only if it is one of {name}'s.")
        if not sign:
            if not rest:
                raise WrongLauncher(f"{given} of {name} has no value: write {given} VALUE.")
            value = rest.pop(0)
        if option == "--max-restarts":
            restarts = _whole(given, value)
    return Launcher(name, restarts), tuple(rest)


def _named(words: list[str]) -> tuple[str, list[str]]:
    if words and words[0].rsplit("/", 1)[-1] == "torchrun":
        return "torchrun", words[1:]
    if words and _PYTHON.match(words[0].rsplit("/", 1)[-1]):
        after = words[2:] if words[1:2] == ["-u"] else words[1:]
        if after[:1] == ["-m"] and after[1:2] and after[1] in MODULES:
            return after[1], after[2:]
    return "", words


def _whole(option: str, value: str) -> int:
    if not value.isascii() or not value.isdigit() or int(value[:9]) > MOST_RESTARTS:
        raise WrongLauncher(f"{option} {value[:20]} is no whole number from 0 to {MOST_RESTARTS}.")
    return int(value)
