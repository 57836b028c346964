"""What a joined machine is told: by its command line, its environment, and what it has written down from before."""

from __future__ import annotations

import argparse
import ipaddress
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from training_runtime.host.settings import ADDRESS

TOKEN = "EDT_NODE_TOKEN"  # noqa: S105 (its name)
NO_ADDRESS = "none"
INSTALLATION = "installation"  # the file in a studio's home that says whose it is
_USAGE = """\
examples:
  edt-node join https://studio.example.org --token edtn_...
  edt-node join                  # again, as before: for a service that starts with the machine
  edt-node join --replace        # after an upgrade, while runs train here
"""


@dataclass(frozen=True)
class Settings:
    """`home`: all that the machine keeps. `data`: where scripts find shared data. `slots`: how many it offers; None: what the studio says.
    `name`: what the studio called it when it last joined; empty before. `address`: where other machines of the studio reach this one;
    empty: see `address_of`. `replace`: take over from the `edt-node join` that runs in this home. `shares`: the studio's own home, where
    this machine sees it too: code, data and the folders of its runs are used where they are. `has_host`: the link keeps a node host;
    else somebody else does. `temporary`: `home` is deleted at the end. `insecure`: a studio elsewhere is spoken to without TLS."""

    studio: str
    home: Path
    data: Path
    token: str = field(repr=False)
    slots: int | None = None
    name: str = ""
    verify: bool | str = True
    address: str = ""
    replace: bool = False
    shares: Path | None = None
    has_host: bool = True
    temporary: bool = False
    insecure: bool = False

    @property
    def work(self) -> Path:
        """The home of the node host: of code, of data, and of the folders of runs whose driver is here."""
        return self.shares or self.home

    @property
    def note(self) -> Path:
        return self.home / "node.json"

    def write_down(self, name: str) -> None:
        """For the next start, readable by this user alone: the token is in it."""
        beside = self.note.with_suffix(".new")
        handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "w") as file:
            facts = {"studio": self.studio, "token": self.token, "name": name, "slots": self.slots, "data": str(self.data)}
            shares = str(self.shares) if self.shares is not None else ""
            trusted = {"ca": self.verify if isinstance(self.verify, str) else "", "insecure": self.insecure}
            json.dump({**facts, **trusted, "address": self.address, "shares": shares, "host": self.has_host}, file)
        beside.replace(self.note)


def parse(arguments: Sequence[str], environment: Mapping[str, str]) -> Settings:
    """Ends the process with status 2 and one sentence when something is wrong, as argparse does."""
    join = parser(environment)
    given = join.parse_args(arguments)
    if given.slots is not None and not 1 <= given.slots <= 10_000:
        join.error(f"--slots {given.slots}: from 1 to 10000")
    home = given.home.expanduser().absolute()
    try:
        home.mkdir(parents=True, exist_ok=True, mode=0o755)
        before = json.loads((home / "node.json").read_text()) if (home / "node.json").exists() else {}
        is_taken = given.temporary and any(home.iterdir())
    except (OSError, ValueError) as error:
        join.error(f"--home {home}: {error}")
    if is_taken:
        join.error(f"--temporary: all of --home is deleted at the end, and {home} is not empty; name a folder that is not there yet")
    studio, token = (given.studio or before.get("studio", "")).rstrip("/"), given.token or before.get("token", "")
    if token == "-":  # noqa: S105
        token = sys.stdin.readline().strip()
    ca, insecure = _trusted(given, before if before.get("studio") == studio else {})
    if problem := address_problem(studio, insecure=insecure):
        join.error(problem)
    if not token:
        join.error('a token is needed: the page "Add a machine" of the studio shows it once')
    shares = Path(said).absolute() if (said := given.shares or before.get("shares")) else None
    if shares is not None and (problem := shared_problem(shares, home)):
        join.error(problem)
    data = given.data_root or Path(before.get("data") or (shares or home) / "data")
    slots = given.slots if given.slots is not None else before.get("slots")
    name = before.get("name", "") if before.get("token") == token else ""
    address = given.address if given.address is not None else before.get("address", "")
    if not ADDRESS.fullmatch(address):
        join.error(f"--address {address!r}: one host name or IP address, without a port, or none")
    has_host = before.get("host", True) if given.host is None else given.host
    return Settings(
        studio, home, data.absolute(), token, slots, name, ca or True, address, given.replace, shares, has_host, given.temporary, insecure
    )


def _trusted(given: argparse.Namespace, before: Mapping[str, object]) -> tuple[str, bool]:
    """The certificate, and whether it goes without TLS: as said now, or `before` of the same studio."""
    said = before.get("ca", "") if given.ca is None else given.ca and Path(given.ca).expanduser().absolute()
    return str(said), given.insecure or before.get("insecure") is True


def parser(environment: Mapping[str, str]) -> argparse.ArgumentParser:
    """Of the command line."""
    made = argparse.ArgumentParser(
        prog="edt-node",
        description="This machine's slots for a studio.",
        epilog=_USAGE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = made.add_subparsers(dest="command", required=True, metavar="join")
    _add_arguments(commands.add_parser("join", help="share this machine's slots, until it is told to end (SIGTERM, Ctrl-C)"), environment)
    return made


def _add_arguments(join: argparse.ArgumentParser, environment: Mapping[str, str]) -> None:
    join.add_argument("studio", nargs="?", default="", help="the studio's address, as in a browser (default: as before)")
    join.add_argument("--token", default=environment.get(TOKEN, ""), help=f'from the page "Add a machine"; - reads it from stdin ({TOKEN})')
    join.add_argument("--home", type=Path, default=Path(environment.get("EDT_NODE_HOME") or Path.home() / ".edt-node"))
    join.add_argument("--slots", type=int, help="how many slots to offer (default: as the page says, else one a GPU, else 4)")
    join.add_argument("--data-root", type=Path, help="where scripts find shared data here (default: data/ of the home)")
    join.add_argument(
        "--address",
        help="host name or IP, without a port, where the studio's other machines reach this one, for runs over several machines (default: "
        "that of the network card towards the studio; none: it shares no run)",
    )
    join.add_argument(
        "--shares",
        help="the studio's EDT_HOME, where this machine sees it too, as on a network file system: code, data and runs' files are used "
        "there and do not travel",
    )
    join.add_argument(
        "--host",
        action=argparse.BooleanOptionalAction,
        help="keep a node host here (default); without, another service starts it, as `python -m training_runtime.host` with the same home",
    )
    join.add_argument("--ca", help="a file with the certificate that the studio's is signed by, if it is your own")
    join.add_argument(
        "--replace",
        action="store_true",
        help="take over from the edt-node join that runs with this home, as after an upgrade: its link and its host end, its runs train on",
    )
    join.add_argument(
        "--temporary",
        action="store_true",
        help="delete all of --home when this ends in order, as in a job of Slurm or Ray; what the studio has not got by then is done again "
        "from the last checkpoint that it has",
    )
    join.add_argument("--insecure", action="store_true", help="speak to a studio without TLS that is not on this machine")


def address_of(settings: Settings, own: str) -> str:
    """Where other machines reach this one; empty: nowhere. `own`: its end of a connection to the studio, which says nothing where that goes
    through the machine itself."""
    if settings.address:
        return "" if settings.address == NO_ADDRESS else settings.address
    return "" if _is_here(own) or "%" in own else own


def address_problem(studio: str, *, insecure: bool) -> str:
    """Why a studio cannot be joined under this address; empty where it can. Secrets of runs travel on the stream."""
    if not studio:
        return "the studio's address is needed, as in https://studio.example.org"
    parts = urlsplit(studio)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return f"{studio!r} is no address of a studio: write it as https://studio.example.org"
    if parts.scheme == "http" and not insecure and not _is_here(parts.hostname):
        return (
            f"{studio} has no TLS, and the code and secrets of runs travel to this machine: use https, or --insecure in a network that you "
            "trust"
        )
    return ""


def shared_problem(shares: Path, home: Path) -> str:
    """Why the folder cannot be what a studio and this machine share; empty where it can."""
    if not (shares / INSTALLATION).is_file() or not (shares / "runs").is_dir():
        return f"--shares {shares}: this is no EDT_HOME of a studio (it has no {INSTALLATION}, or no runs/): is the file system mounted?"
    if home == shares:
        return f"--home {home}: what a machine keeps for itself needs another folder than what it shares with the studio"
    return ""


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
