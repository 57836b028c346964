"""What of the files of a run can be registered as a model, what is proposed first, and what goes along with it. Pure.

A file that somebody names takes along what is beside it under the same name in another format (model.pth: model.onnx); a folder, as
MLflow's `log_model` and Transformers' `save_pretrained` write one, goes as it is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

FINAL = "model/train/model_epoch_final.pth"  # what the engine writes at the end of training
STOPPED = "model/train/model_stopped.pth"  # and of a run that was stopped
WEIGHTS = (".pth", ".pt", ".ckpt", ".bin", ".safetensors", ".onnx", ".keras", ".h5", ".pkl", ".joblib", ".gguf", ".npz")
TORCH = (".pth", ".pt", ".ckpt", ".bin")  # what torch.save may have written
OTHER_FORMATS = (".onnx", ".onnx.data", ".safetensors")
MARKS = ("MLmodel", "config.json", "saved_model.pb")  # a folder with one of these in it, and weights, is one model
NEVER = ("log/", "_submitted_code/", "tmp/")
MOST_FILES = 1000  # of a version
MOST_OFFERED = 200


@dataclass(frozen=True)
class Candidate:
    """A file or a folder that can be registered. `kind`: "final", "stopped", "folder", "model", "checkpoint" or "other"."""

    path: str
    kind: str
    size_bytes: int


@dataclass(frozen=True)
class Chosen:
    """A file of the run, and what the version calls it."""

    path: str
    name: str


def candidates(files: Iterable[tuple[str, int, float]]) -> list[Candidate]:
    """Of files as (path, bytes, when it was last written), what is proposed first at first; at most MOST_OFFERED."""
    there = [each for each in files if not each[0].startswith(NEVER)]
    folders = _folders([path for path, _, _ in there])
    found = [(Candidate(top, "folder", _size(there, top)), _newest(there, top)) for top in folders]
    for path, size, written in there:
        inside = any(path.startswith(f"{top}/") for top in folders)
        if path.lower().endswith(WEIGHTS) and not inside and not _accompanies(path, {each for each, _, _ in there}):
            found.append((Candidate(path, _kind(path), size), written))
    order = ("final", "folder", "stopped", "model", "other", "checkpoint")
    found.sort(key=lambda each: (order.index(each[0].kind), -each[1], each[0].path))
    return [candidate for candidate, _ in found[:MOST_OFFERED]]


def chosen(paths: Collection[str], asked: str) -> list[Chosen]:
    """The files that a version of `asked` (a path of `paths`, or a folder above some) has; none where there is no such thing."""
    known = set(paths)
    if asked in known:
        stem = _stem(asked)
        beside = [f"{stem}{end}" for end in OTHER_FORMATS]
        return [Chosen(path, _name(path)) for path in dict.fromkeys([asked, *(path for path in beside if path in known)])]
    top = f"{asked}/" if asked else ""
    return [Chosen(path, path.removeprefix(top)) for path in sorted(known) if top and path.startswith(top)]


def to_convert(names: Collection[str]) -> list[tuple[str, str]]:
    """(file, what its safetensors is called) of those files of a version that torch may have written and that have none beside them."""
    found = [(name, f"{_stem(name)}.safetensors") for name in sorted(names) if name.lower().endswith(TORCH)]
    return [(name, made) for name, made in found if made not in names and not any(other.endswith(".safetensors") for other in names)]


def _kind(path: str) -> str:
    named = {FINAL: "final", STOPPED: "stopped"}
    top = path.partition("/")[0]
    return named.get(path, top if top in ("model", "checkpoint") else "other")


def _folders(paths: list[str]) -> list[str]:
    """The topmost folders that hold one model."""
    marked = {path.rpartition("/")[0] for path in paths if _name(path) in MARKS} - {"", "model", "checkpoint", "artifacts"}
    with_weights = [top for top in marked if any(path.startswith(f"{top}/") and path.lower().endswith(WEIGHTS) for path in paths)]
    return sorted(top for top in with_weights if not any(top.startswith(f"{other}/") for other in with_weights))


def _accompanies(path: str, paths: set[str]) -> bool:
    """Whether it goes along with another file of its name."""
    return path.lower().endswith(OTHER_FORMATS) and any(f"{_stem(path)}{end}" in paths for end in TORCH)


def _size(files: list[tuple[str, int, float]], top: str) -> int:
    return sum(size for path, size, _ in files if path.startswith(f"{top}/"))


def _newest(files: list[tuple[str, int, float]], top: str) -> float:
    return max(written for path, _, written in files if path.startswith(f"{top}/"))


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _stem(path: str) -> str:
    end = next((end for end in (*OTHER_FORMATS, *WEIGHTS) if path.lower().endswith(end)), "")
    return path[: len(path) - len(end)] if end else path
