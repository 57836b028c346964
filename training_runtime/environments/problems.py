"""What uv's output means for whoever wrote the requirements: one sentence that names package and line. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from packaging.utils import canonicalize_name

from training_runtime.environments.requirements import Line

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_CREDENTIALS = re.compile(r"(\w+://)[^/\s@]+@")
_NOT_FOUND = re.compile(r"([\w.-]+)(?:\[[^\]]*\])? was not found in the (?:package registry|provided package locations)")
_NO_VERSION = re.compile(r"there (?:is|are) no versions? of ([\w.-]+)")
_NOT_BUILT = re.compile(r"Failed to (?:build|download and build) `([\w.-]+?)(?:==[^`]*| @ [^`]*)?`")
_NO_WHEEL = re.compile(r"([\w.-]+)(?:==\S+)? has no usable wheels|Building source distributions(?: for [`']?([\w.-]+)[`']?)? is disabled")
_NETWORK = re.compile(
    r"(?:error sending request|dns error|Failed to fetch|Connection refused|tcp connect error|certificate)", re.IGNORECASE
)
_NAMES = re.compile(r"[A-Za-z0-9][\w.-]*")
LONGEST = 700


def clean(text: str) -> str:
    """For logs and pages: without colours, and without the names and passwords of addresses."""
    return _CREDENTIALS.sub(r"\1", _ANSI.sub("", text)).replace("\0", "")


def needs_source(output: str) -> bool:
    """Whether it failed for want of a wheel, so that building from source could help."""
    return _NO_WHEEL.search(_joined(output)) is not None or "no wheels" in output


def explain(output: str, lines: Sequence[Line], *, base: str, node: str) -> str:
    """Why uv failed. `base`: what scripts run on there, in words."""
    text = _joined(clean(output))
    cause = text.split("cause: ", 1)[1] if "cause: " in text else text.split("error: ")[-1]
    if found := _NOT_FOUND.search(text):
        return f"{_who(found[1], lines)} is not in the package index: check its spelling (names of packages and of modules may differ)."
    if found := _NOT_BUILT.search(text):
        return f"{_who(found[1], lines)} has no wheel for {base.split(',')[0]} and could not be built: {_short(cause)}"
    if _NETWORK.search(text) and "unsatisfiable" not in text:
        return (
            f"The package index cannot be reached from {node}: {_short(cause)} An administrator checks HTTPS_PROXY and UV_INDEX_URL there."
        )
    if found := _NO_WHEEL.search(text):
        return (
            f"{_who(found[1] or found[2] or '', lines)} has no wheel for {base.split(',')[0]}, and packages are not built from source here."
        )
    if "unsatisfiable" in text or "No solution found" in text:
        if found := _NO_VERSION.search(text):
            return f"{_who(found[1], lines)} cannot be had in that version: {_short(cause)}"
        first = next((line for name in _NAMES.findall(cause) for line in lines if line.name == canonicalize_name(name)), None)
        who = f"{first.where} ({first.text})" if first else "What is required"
        return f"{who} does not fit the rest, or {base}: {_short(cause)}"
    return f"The environment could not be built: {_short(cause)}"


def _who(name: str, lines: Sequence[Line]) -> str:
    line = next((line for line in lines if line.name == canonicalize_name(name)), None)
    return f"{line.where}: {line.text}" if line else f"The package {name}" if name else "A package"


def _joined(output: str) -> str:
    return " ".join(output.split())


def _short(text: str) -> str:
    words = text.strip()
    words = words if len(words) <= LONGEST else words[: LONGEST - 3] + "..."
    return words if words.endswith((".", "!", "?")) else f"{words}."
