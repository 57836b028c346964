"""Where the driver of a run can be reached: a file in the run's result folder, which its machines share, for the run's own user alone."""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training_runtime.elastic.state import checkpoint
from training_runtime.errors import ProtocolError
from training_runtime.protocol import build


@dataclass(frozen=True)
class Rendezvous:
    """`token`: who knows it belongs to the run."""

    address: str
    port: int
    token: str


def path_of(result_dir: Path) -> Path:
    return result_dir / "checkpoint" / ".rendezvous.json"


def write(result_dir: Path, found: Rendezvous) -> None:
    def save(file: Any) -> None:
        os.fchmod(file.fileno(), 0o600)
        file.write(json.dumps(dataclasses.asdict(found)).encode())

    checkpoint.write(path_of(result_dir), save)


def read(result_dir: Path) -> Rendezvous | None:
    """None where no driver can be reached now."""
    try:
        return build(Rendezvous, json.loads(path_of(result_dir).read_bytes()))
    except (OSError, ValueError, ProtocolError):
        return None


def forget(result_dir: Path) -> None:
    path_of(result_dir).unlink(missing_ok=True)
