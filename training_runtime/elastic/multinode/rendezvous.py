"""Where the driver of a run can be reached: a file in the run's result folder, which its machines share, for the run's own user alone."""

from __future__ import annotations

import dataclasses
import json
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training_runtime.elastic.state import durable
from training_runtime.errors import ProtocolError
from training_runtime.records import build


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

    durable.write(path_of(result_dir), save)


def read(result_dir: Path) -> Rendezvous | None:
    """Read the file; None if no driver can be reached now."""
    try:
        return build(Rendezvous, json.loads(path_of(result_dir).read_bytes()))
    except (OSError, ValueError, ProtocolError):
        return None


def own_address(result_dir: Path) -> str:
    """By which the run's other machines reach this one: what it was told (EDT_ADDRESS), or that of the network card towards the driver."""
    if told := os.environ.get("EDT_ADDRESS", ""):
        return told
    found = read(result_dir)
    if found is None:
        return "127.0.0.1"
    family, _, _, _, there = socket.getaddrinfo(found.address, found.port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as towards:
        towards.connect(there)  # sends nothing
        return str(towards.getsockname()[0])


def forget(result_dir: Path) -> None:
    path_of(result_dir).unlink(missing_ok=True)
