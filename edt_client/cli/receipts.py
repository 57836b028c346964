"""Receipts from a shell: fetched, checked, and runs that are done again to see whether the same comes out."""

from __future__ import annotations

import json
import time
from pathlib import Path

import click

from edt_client import operations, receipts
from edt_client.cli.look import run_argument
from edt_client.cli.output import as_json, say_json, with_studio
from edt_client.client import Studio
from edt_client.errors import ClientError
from edt_client.transport import EVERY_S

SAME = ("identical", "same figures")
ONLY_SUM = "Its signature was not checked, which takes a package: pip install cryptography."
NOT_OURS = "The studio at {} has not sealed this receipt: it was changed, or made elsewhere."


@click.command("receipt")
@run_argument
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Where to; left out, run-N.receipt.json here.")
@as_json
@with_studio
def receipt(studio: Studio, run: int, output: Path | None, as_json: bool) -> None:
    """Fetch what the studio vouches for of a run that has ended.

    \b
    Example: edt receipt 7
    """
    target = output or Path(f"run-{run}.receipt.json")
    target.write_bytes(studio.do(operations.receipt(run)))
    say_json({"run": run, "file": str(target)}) if as_json else click.echo(f"{target}: edt verify {target} checks it.")


@click.command("verify")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--ask", is_flag=True, help="Ask the studio that you are logged in to whether it has sealed it.")
@as_json
def verify(file: Path, ask: bool, as_json: bool) -> int:
    """Check that nothing in a receipt was changed since it was sealed. Takes no studio and no login.

    The exit status is 0 where it is as it was sealed, and 1 where it is not.

    \b
    Example: edt verify run-7.receipt.json
    """
    if file.stat().st_size > receipts.MOST_BYTES:
        raise ClientError(receipts.NO_RECEIPT)
    raw = file.read_bytes()
    found = receipts.check(raw)
    problem, said = found.problem, f"Unchanged since it was sealed with the key {found.key}." + ("" if found.signature else f" {ONLY_SUM}")
    if ask and not problem:
        studio = Studio.from_environment()
        click.get_current_context().call_on_close(studio.close)
        problem = "" if studio.do(operations.is_ours(json.loads(raw))) else NOT_OURS.format(studio.url)
        said = f"Sealed by the studio at {studio.url}, and unchanged since."
    if as_json:
        say_json({"problem": problem, "key": found.key, "signature_checked": found.signature})
    else:
        click.echo(problem or said)
    return 1 if problem else 0


@click.command("reproduce")
@run_argument
@click.option("--wait", is_flag=True, help="Until it has ended; the exit status is 0 where the same came out, and 1 where not.")
@as_json
@with_studio
def reproduce(studio: Studio, run: int, wait: bool, as_json: bool) -> int:
    """Run it again, with all that it had, and say whether the same comes out, bit for bit.

    \b
    Example: edt reproduce 7 --wait
    """
    made = studio.do(operations.reproduce(run))
    if not wait:
        say_json(made) if as_json else click.echo(f"Run {made.id} repeats run {run}: {made.url}")
        return 0
    while not (facts := studio.do(operations.run(made.id))).has_ended:
        time.sleep(EVERY_S)
    told = studio.do(operations.reproduction(made.id))
    if as_json:
        say_json({"run": facts.id, "state": facts.state, "result": told.result, "sentence": told.sentence})
    else:
        click.echo(f"Run {facts.id} {facts.state}. {told.sentence}")
    return 0 if told.result in SAME else 1


COMMANDS = (receipt, verify, reproduce)
