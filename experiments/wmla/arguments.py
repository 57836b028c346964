"""The `args` of a submission, as dlicmd.py and the notebooks write them: what is for the platform, and what is left for the script.

Pure: text in, facts out. The order of what is left is kept, and it is split as a shell would split it, whatever blanks lie between.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from experiments.definitions import launchers
from training_runtime import notebooks

_PYTHON = re.compile(r"(?:.*/)?python(?:3(?:\.\d+)?)?")
MOST_CHARACTERS = 16_000
# Each takes a value. Those that say how a cluster of IBM's places a job, or which image it starts, mean nothing here and are taken off.
VALUES = frozenset(
    [
        "--exec-start",
        "--cs-datastore-meta",
        "--data-source",
        "--model-main",
        "--model-dir",
        "--appName",
        "--consumer",
        "--conda-env-name",
        "--numWorker",
        "--workerDeviceType",
        "--workerDeviceNum",
        "--workerMemory",
        "--workerCPULimit",
        "--workerMemoryLimit",
        "--driverDeviceType",
        "--driverDeviceNum",
        "--driverMemory",
        "--driverCPULimit",
        "--driverMemoryLimit",
        "--numPs",
        "--python-version",
        "--ig",
        "--edt-options",
        "--gpuPerWorker",
        "--cs-rmq-meta",
        "--cs-url-meta",
        "--cs-url-bearer",
        "--msd-env",
        "--msd-attr",
        "--msd-label",
        "--msd-image-name",
        "--msd-image-pull-secret",
        "--msd-image-pull-policy",
        "--msd-pull-secret",
        "--msd-pull-policy",
        "--msd-priority",
        "--msd-task0-node-selector",
        "--msd-task12n-node-selector",
        "--msd-pending-timeout",
        "--lsf-gpu-syntax",
        "--msd-podaffinity-rule",
        "--msd-podaffinity-topology-key",
        "--msd-podaffinity-label-key",
        "--msd-podaffinity-label-value",
        "--msd-pack-id",
        "--debug-level",
    ]
)
USER_CMD = (
    "A command of one's own (--user-cmd) is python or torchrun with a Python script, or bash with a file that hands its arguments to "
    "torchrun: for all else name a Python script with --model-main."
)
UNKNOWN = {
    "--pbmodel-name": "There are no prebuilt models here (--pbmodel-name): send the model's code, and name its script with --model-main.",
    "--pbmodel-cmd": "There are no prebuilt models here (--pbmodel-cmd): send the model's code, and name its script with --model-main.",
}


class WrongArguments(ValueError):
    """The message says which argument is wrong and how to write it."""


@dataclass(frozen=True)
class Arguments:
    """`workers`: the most slots of the job, each with `devices`; None where it was not said. `script`: what the script is called with."""

    framework: str
    main: str = ""
    model_dir: str = ""
    data_path: str = ""
    instance_group: str = ""
    environment_name: str = ""  # one that administrators offer; what is not offered means nothing here
    workers: int | None = None
    devices: int = 1
    device_type: str = ""
    priority: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    script: tuple[str, ...] = ()
    wrapper: str = ""  # a file of the code that is to hand `main` and `script` to torchrun

    @property
    def slots(self) -> int | None:
        return self.workers * max(1, self.devices) if self.workers is not None else None


def parse(args: str, spec: Mapping[str, Any] | None = None) -> Arguments:
    """`spec`: the JSON object that later clients send beside the args; what it says of hardware and data wins. Raises WrongArguments."""
    if len(args) > MOST_CHARACTERS:
        raise WrongArguments(f"The args have {len(args)} characters: at most {MOST_CHARACTERS} are taken.")
    if "\0" in args:
        raise WrongArguments("The args have a NUL character in them: write them anew.")
    try:
        words = shlex.split(args)
    except ValueError:
        raise WrongArguments("The args have a quotation mark without its partner: close the quotes.") from None
    words, command = _without_command(words)
    said, environment, script = _divided(words)
    facts = _facts(said)
    if command:
        facts["wrapper"], facts["main"], *script = _of_command(command)
    if not facts["framework"]:
        raise WrongArguments("The args name no framework: begin with --exec-start edtPyTorch.")
    facts.update(_of_spec(spec or {}))
    return Arguments(**facts, environment=environment, script=tuple(script))


def read_json(text: str | bytes) -> Any:
    """Raises ValueError, also for text that cannot be written down (halves of characters), and RecursionError."""
    found = json.loads(text)
    json.dumps(found, ensure_ascii=False).encode()
    return found


def _without_command(words: list[str]) -> tuple[list[str], list[str]]:
    """What is for the platform and the script, and a command of the user's own: all that follows --user-cmd."""
    end = words.index("--") if "--" in words else len(words)
    if "--user-cmd" not in words[:end]:
        return words, []
    at = words.index("--user-cmd")
    command = words[at + 2 :] if words[at + 1 : at + 2] == ["--"] else words[at + 1 :]
    if not command:
        raise WrongArguments(USER_CMD)
    return words[:at], command


def _of_command(words: list[str]) -> tuple[str, ...]:
    """The file that is to hand the rest to torchrun, or nothing; script and arguments."""
    wrapper, rest = "", tuple(words)
    if words[0] in ("bash", "sh"):
        wrapper, rest = words[1] if words[1:] else "", tuple(words[2:])
    elif _PYTHON.fullmatch(words[0]) and words[1:2] != ["-m"]:
        rest = tuple(words[2:] if words[1:2] == ["-u"] else words[1:])
    else:
        try:
            rest = launchers.divided(words)[1]
        except launchers.WrongLauncher as wrong:
            raise WrongArguments(str(wrong)) from None
    if not rest or not notebooks.is_script(rest[0]) or (words[0] in ("bash", "sh") and not wrapper.endswith(".sh")):
        raise WrongArguments(USER_CMD)
    return (wrapper, *rest)


def _divided(words: list[str]) -> tuple[dict[str, str], dict[str, str], list[str]]:
    """The platform's options, the variables for the environment, and the rest."""
    said: dict[str, str] = {}
    environment: dict[str, str] = {}
    rest: list[str] = []
    left = iter(words)
    for word in left:
        if word == "--":  # all that follows is the script's, whatever it looks like
            rest += left
            break
        name, given, value = word.partition("=")
        if name in UNKNOWN:
            raise WrongArguments(UNKNOWN[name])
        if name not in VALUES:
            rest.append(word)
            continue
        if not given:
            value = _next(left, name)
        if name == "--msd-env":
            key, sign, text = value.partition("=")
            if not sign:
                raise WrongArguments(f"--msd-env {value} gives no value: write --msd-env NAME=VALUE.")
            environment[key] = text
        else:
            said[name] = value
    return said, environment, rest


def _next(words: Iterator[str], name: str) -> str:
    try:
        return next(words)
    except StopIteration:
        raise WrongArguments(f"{name} has no value: write {name} VALUE.") from None


def _facts(said: Mapping[str, str]) -> dict[str, Any]:
    workers = _number("--numWorker", said.get("--numWorker"))
    if workers is None:
        workers = _number("--edt-options maxWorkers", _pairs(said.get("--edt-options", "")).get("maxWorkers"))
    devices = _number("--workerDeviceNum", said.get("--workerDeviceNum") or said.get("--gpuPerWorker"))
    return {
        "framework": said.get("--exec-start", ""),
        "main": said.get("--model-main", ""),
        "model_dir": said.get("--model-dir", "").rstrip("/").rsplit("/", 1)[-1],
        "data_path": _data_path(said),
        "instance_group": said.get("--ig", ""),
        "environment_name": said.get("--conda-env-name", ""),
        "workers": workers,
        "devices": 1 if devices is None else devices,
        "device_type": said.get("--workerDeviceType", "").lower(),
        "priority": _number("--msd-priority", said.get("--msd-priority")),
    }


def _data_path(said: Mapping[str, str]) -> str:
    if source := said.get("--data-source"):
        try:
            return _located(read_json(source))
        except (ValueError, RecursionError):
            raise WrongArguments('--data-source is no JSON: write \'[{"type": "fs", "location": {"paths": "mnist"}}]\'.') from None
    meta = _pairs(said.get("--cs-datastore-meta", ""))
    _check_kind(meta.get("type", "fs"))
    return meta.get("data_path", "")


def _of_spec(spec: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if spec.get("dataSource"):
        found["data_path"] = _located(spec["dataSource"])
    hardware = spec.get("hardwareSpec")
    nodes = hardware.get("nodes") if isinstance(hardware, dict) else None
    if isinstance(nodes, dict):
        if (workers := _number("num_nodes", nodes.get("num_nodes"))) is not None:
            found["workers"] = workers
        gpu = nodes.get("gpu")
        if isinstance(gpu, dict) and (devices := _number("num_gpu", gpu.get("num_gpu"))) is not None:
            found["devices"] = devices
    return found


def _located(sources: Any) -> str:
    """The folder of the first data source: scripts find one folder, DATA_DIR."""
    first = sources[0] if isinstance(sources, list) and sources else sources
    location = first.get("location") if isinstance(first, dict) else None
    path = location.get("paths", location.get("path", "")) if isinstance(location, dict) else None
    if not isinstance(first, dict) or not isinstance(path, str):
        raise WrongArguments('A data source reads {"type": "fs", "location": {"paths": "mnist"}}.')
    _check_kind(str(first.get("type", "fs")))
    return path


def _check_kind(kind: str) -> None:
    if kind != "fs":
        raise WrongArguments(
            f"Data of type {kind} cannot be read here: put it below the shared data root, and name its folder with type=fs."
        )


def _pairs(text: str) -> dict[str, str]:
    found = (part.partition("=") for part in text.split(","))
    return {name.strip(): value.strip() for name, sign, value in found if sign}


def _number(what: str, said: object) -> int | None:
    """None for what was not said."""
    if said is None or said == "":
        return None
    text = str(said)
    if isinstance(said, bool) or not (text.isascii() and text.isdigit() and len(text) < 10):
        raise WrongArguments(f"{what} is {text[:40]}: give a whole number.")
    return int(text)
