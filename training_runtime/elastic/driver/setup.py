"""What a script's process has, noted in the run's journal: its arguments as argparse has parsed them, with the defaults, and the versions
of what it has imported. Looked at where the script itself asks for it: nothing is imported or read for it, and nothing that goes wrong
here is the script's trouble.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import platform
import sys
from collections.abc import Callable, Mapping
from typing import Any

from training_runtime.noted import Setup

MOST_ARGUMENTS, MOST_PACKAGES = 200, 100
LONGEST_NAME, LONGEST_VALUE = 120, 400
_OURS = ("training_runtime", "fabric_model", "callbacks", "pyedt", "emetrics", "elog")


class Noticed:
    """`record` is given what is new. In a process that was forked from this one nothing is noticed."""

    def __init__(self, record: Callable[[Setup], None], *, seed: int) -> None:
        self._record, self._seed, self._process = record, seed, os.getpid()
        self._arguments: dict[str, str] = {}
        self._packages: dict[str, str] = {}

    def begin(self) -> None:
        """From now on, what any parser makes of the command line of this process is noticed."""
        current = argparse.ArgumentParser.parse_known_args
        original = getattr(current, "__wrapped__", current)

        @functools.wraps(original)
        def parse_known_args(parser: argparse.ArgumentParser, args: Any = None, namespace: Any = None) -> Any:
            is_own = args is None or (isinstance(args, (list, tuple)) and list(args) == sys.argv[1:])
            found = original(parser, args, namespace)
            if is_own:
                with contextlib.suppress(Exception):  # whatever its values are, the script goes on
                    self.look(vars(found[0]))
            return found

        argparse.ArgumentParser.parse_known_args = parse_known_args  # type: ignore[method-assign,assignment]

    def look(self, parsed: Mapping[str, Any] | None = None) -> None:
        """Note what has been parsed, and what has been imported so far."""
        if os.getpid() != self._process:
            return
        arguments = {} if parsed is None else as_texts(parsed)
        packages = imported()
        new = {name: value for name, value in arguments.items() if self._arguments.get(name) != value}
        newer = {name: value for name, value in packages.items() if self._packages.get(name) != value}
        self._arguments |= new
        self._packages |= newer
        for setup in Setup.of(new, newer, python=platform.python_version(), seed=self._seed):
            self._record(setup)


def as_texts(parsed: Mapping[str, Any]) -> dict[str, str]:
    """The values as texts: on or off, lists with spaces between their words. None and what has no text of its own is left out."""
    texts = {str(name)[:LONGEST_NAME]: _text(value) for name, value in list(parsed.items())[:MOST_ARGUMENTS]}
    return {name: text[:LONGEST_VALUE] for name, text in texts.items() if text is not None}


def _text(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, (list, tuple, set, frozenset)):
        return " ".join(text for each in list(value)[:LONGEST_VALUE] if (text := _text(each)) is not None)
    text = str(value)
    return getattr(value, "__name__", None) if text[:1] == "<" and text[-1:] == ">" else text


def imported() -> dict[str, str]:
    """Top modules of this process that say their version, but those of Python and of the studio."""
    found: dict[str, str] = {}
    for name, module in sorted(list(sys.modules.items())):
        if "." in name or name.startswith("_") or name in sys.stdlib_module_names or name in _OURS:
            continue
        version = getattr(module, "__dict__", {}).get("__version__")
        if isinstance(version, str) and len(found) < MOST_PACKAGES:
            found[name[:LONGEST_NAME]] = str(version)[:LONGEST_VALUE]
    return found
